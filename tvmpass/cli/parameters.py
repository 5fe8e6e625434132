"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import click


class ShapeType(click.ParamType):
    """``x:n,3,224,224``: an input's name and its dims, numbers or symbols."""

    name = "NAME:D0,D1,…"

    def convert(self, value, param, ctx) -> tuple[str, tuple[int | str, ...]]:
        if isinstance(value, tuple):
            return value
        # The name may itself hold a colon; the dims never do.
        name, colon, text = value.rpartition(":")
        if not colon or not name:
            self.fail(f"{value!r} is no shape; write NAME:DIMS, as in x:1,3,224,224", param, ctx)
        dims = [part.strip() for part in text.split(",")] if text.strip() not in ("", "()") else []
        return name, tuple(self._dim(dim, value, param, ctx) for dim in dims)

    def _dim(self, dim: str, value: str, param, ctx) -> int | str:
        if dim.isascii() and dim.isdigit():
            if len(dim) > 18:
                self.fail(
                    f"{dim[:18]}... in the shape of {value.rpartition(':')[0]!r} is too large", param, ctx
                )
            return int(dim)
        if dim.isidentifier():
            return dim
        self.fail(f"{dim!r} in {value!r} is neither a size (0 or more) nor a symbol such as n", param, ctx)


class ConfigType(click.ParamType):
    """``tvmpass.fusion=never``: a config key and its value."""

    name = "KEY=VALUE"

    def convert(self, value, param, ctx) -> tuple[str, Any]:
        if isinstance(value, tuple):
            return value
        key, equals, text = value.partition("=")
        if not equals or not key.strip():
            self.fail(f"{value!r} is no setting; write KEY=VALUE, as in tvmpass.fusion=never", param, ctx)
        return key.strip(), text.strip()


class RuleNames(click.ParamType):
    """``fuse-softmax,grow-epilogue``: rule names, separated by commas."""

    name = "RULE"

    def convert(self, value, param, ctx) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(name.strip() for name in value.split(",") if name.strip())


def shape_option(command: Callable) -> Callable:
    return click.option(
        "--shape",
        "shapes",
        type=ShapeType(),
        multiple=True,
        help="Shape of one input; a word such as n stays open until run time. May be repeated.",
    )(command)


def params_option(command: Callable) -> Callable:
    return click.option(
        "--params",
        type=click.Path(),
        help="Parameters that the model keeps apart: a file of relay.save_param_dict, or an .npz.",
    )(command)


def config_option(command: Callable) -> Callable:
    return click.option(
        "--config",
        "settings",
        type=ConfigType(),
        multiple=True,
        help="A config key, such as tvmpass.fusion=never. May be repeated; docs/options.md lists them.",
    )(command)


def without_option(command: Callable) -> Callable:
    return click.option("--without", type=RuleNames(), multiple=True, help="Rules to leave out, by name.")(
        command
    )


def rules_option(command: Callable) -> Callable:
    return click.option(
        "--rules",
        "rule_files",
        type=click.Path(dir_okay=False),
        multiple=True,
        help="Python file with a tuple RULES to add. The file is executed.",
    )(command)


def verbose_option(command: Callable) -> Callable:
    return click.option(
        "-v", "--verbose", is_flag=True, help="Show TVM's own log lines, and tracebacks of errors."
    )(command)


def json_option(command: Callable) -> Callable:
    return click.option(
        "--json", "json_path", type=click.Path(), help="Write the result as JSON to a file; - is stdout."
    )(command)


def shapes_of(pairs: Iterable[tuple[str, tuple]]) -> dict[str, tuple]:
    """Return the shapes by input name; one given twice is an error."""
    shapes: dict[str, tuple] = {}
    for name, dims in pairs:
        if name in shapes:
            raise click.UsageError(f"--shape is given twice for input {name!r}")
        shapes[name] = dims
    return shapes


def config_of(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the config; keys of tvmpass stay text, TVM's own are read as JSON.

    ``fusion=never`` is short for ``tvmpass.fusion=never``.
    """
    from tvmpass.core.options import CONFIG_PREFIX, Options

    known = Options.keys()
    config: dict[str, Any] = {}
    for key, text in pairs:
        if "." not in key or CONFIG_PREFIX + key in known:
            key = CONFIG_PREFIX + key
        config[key] = text if key.startswith(CONFIG_PREFIX) else _json_or_text(text)
    return config


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def all_rules(rule_files: Iterable[str]) -> tuple:
    """Return the rules of tvmpass, of installed packages and of ``--rules`` files."""
    from tvmpass import catalogue

    added = [rule for path in rule_files for rule in catalogue.rules_from_file(path)]
    return catalogue.check_unique((*catalogue.rules(), *added))


def write_json(path: str, document: Any) -> None:
    """Write a document to a file, or to stdout for ``-``."""
    from tvmpass.core.files import write_text

    from .printable import printable_json

    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    if path == "-":
        click.echo(printable_json(text), nl=False)
    else:
        write_text(path, text)
