"""A PassContext that also carries ``tvmpass.*`` keys, and reading it once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tvm

from tvmpass.core.errors import UsageError, last_line, nearest
from tvmpass.core.options import CONFIG_PREFIX, Options

_MARK = "tvmpass.context"


def PassContext(
    opt_level: int = 3,
    required_pass: Iterable[str] | None = None,
    disabled_pass: Iterable[str] | None = None,
    instruments: Iterable[Any] | None = None,
    config: Mapping[str, Any] | None = None,
):
    """Make a TVM PassContext whose config may hold ``tvmpass.*`` keys.

    Takes what `tvm.transform.PassContext` takes; TVM's own keys work next to
    ours.  Unknown keys, unknown pass or rule names, and an ``opt_level``
    outside 0..3 raise `UsageError` naming the nearest.
    """
    config = dict(config or {})
    disabled, required = list(disabled_pass or ()), list(required_pass or ())
    Options.from_config(config, opt_level, disabled, required)
    _check_tvm_keys(config)
    _check_pass_names([*disabled, *required])
    own = {key: value for key, value in config.items() if key.startswith(CONFIG_PREFIX)}
    theirs = {key: value for key, value in config.items() if key not in own}
    try:
        plain = tvm.transform.PassContext(
            opt_level=opt_level,
            required_pass=required,
            disabled_pass=disabled,
            instruments=list(instruments or ()),
            config=theirs,
        )
    except (AttributeError, TypeError, ValueError) as error:  # TVM's answers to a value of a wrong type
        raise UsageError(f"config: {last_line(error)}") from error
    # TVM refuses keys that no C++ code registered; building the node skips that check.
    return tvm.ir.make_node(
        "transform.PassContext",
        opt_level=opt_level,
        required_pass=list(plain.required_pass),
        disabled_pass=list(plain.disabled_pass),
        instruments=list(plain.instruments),
        config={**dict(plain.config), **own, _MARK: 1},
    )


def read_options(extra: Mapping[str, Any] | None = None) -> tuple[Options, list[str]]:
    """Read the current context once; return the options and notes for the report.

    Under a stock PassContext, or none, the defaults hold.
    """
    current = tvm.transform.PassContext.current()
    config = dict(current.config)
    notes: list[str] = []
    if _MARK in config:
        level = int(current.opt_level)
        disabled, required = list(current.disabled_pass), list(current.required_pass)
    else:
        level, disabled, required = 3, [], []
        if _is_customised(current, config):
            notes.append(
                "built under a stock tvm PassContext: its opt_level and pass lists do not reach tvmpass, "
                "which used its defaults; use tvmpass.PassContext"
            )
        config = {}
    config.pop(_MARK, None)
    config.update(extra or {})
    return Options.from_config(config, level, [str(d) for d in disabled], [str(r) for r in required]), notes


@contextlib.contextmanager
def usual_tvm_passes() -> Iterator[None]:
    """Run TVM's own passes at their usual level inside the block.

    ``opt_level`` and the pass lists say which *rules* run. TVM's passes that
    lower a module are needed at every level, and would be skipped below 2.
    Instruments do not see into the block where the level had to be raised.
    """
    current = tvm.transform.PassContext.current()
    config = dict(current.config)
    foreign_lists = _MARK not in config and (list(current.disabled_pass) or list(current.required_pass))
    if int(current.opt_level) >= 2 and not foreign_lists:
        yield
        return
    own = {key: value for key, value in config.items() if not key.startswith(CONFIG_PREFIX)}
    with tvm.transform.PassContext(opt_level=3, config=own):
        yield


def _is_customised(context, config: Mapping[str, Any]) -> bool:
    lists = list(context.disabled_pass) + list(context.required_pass) + list(context.instruments)
    return int(context.opt_level) != 2 or bool(config) or bool(lists)


def _check_tvm_keys(config: Mapping[str, Any]) -> None:
    known = set(tvm.transform.PassContext.list_configs())
    for key in config:
        if key.startswith(CONFIG_PREFIX) or key in known:
            continue
        if key.startswith("relay."):
            raise UsageError(f"config key {key!r} went with Relay: leave it out (docs/migration.md)")
        raise UsageError(f"unknown config key {key!r}{nearest(key, known | set(Options.keys()))}")


def _check_pass_names(names: Iterable[str]) -> None:
    names = list(names)
    if not names:
        return
    from tvmpass import catalogue

    catalogue.check_names(names, where="disabled_pass/required_pass", stock=stock_pass_names())


def stock_pass_names() -> frozenset[str]:
    """Return the names of TVM's own passes, as a context's lists may name them."""
    import inspect

    names: set[str] = set()
    for module in (tvm.relax.transform, tvm.tirx.transform, tvm.s_tir.transform):
        for name, value in vars(module).items():
            if name[:1].isupper() and (inspect.isfunction(value) or inspect.isclass(value)):
                names.update((name, f"tirx.{name}", f"s_tir.{name}"))
    return frozenset(names)
