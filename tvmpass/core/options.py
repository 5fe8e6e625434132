"""The options of one build, read once at entry and passed on explicitly."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import UsageError, nearest

CONFIG_PREFIX = "tvmpass."


def option(key: str, default: Any, *choices: str, parse=None):
    """Declare an option under the config key ``tvmpass.<key>``."""
    return field(default=default, metadata={"key": CONFIG_PREFIX + key, "choices": choices, "parse": parse})


def _min_speedup(value: Any) -> float:
    number = float(value)
    if not 0.0 < number < 1e6:
        raise ValueError("must lie between 0 and 1e6")
    return number


def _positive(value: Any) -> int:
    number = int(value)
    if number < 1:
        raise ValueError("must be at least 1")
    return number


def _count(value: Any) -> int:
    number = int(value)
    if number < 0:
        raise ValueError("must not be negative")
    return number


def _threads(value: Any) -> int:
    return len(os.sched_getaffinity(0)) if value == "all" else _positive(value)


def _path_or_word(value: Any) -> str:
    return os.fspath(value)


def _tuning_logs(value: Any) -> str:
    text = os.fspath(value)
    if text not in ("lookup", "off") and not os.path.isdir(text):
        raise ValueError("expected lookup, off or the path of an existing folder")
    return text


@dataclass(frozen=True)
class Options:
    """Everything a build may be told, with the defaults of a plain call.

    ``level``, ``disabled`` and ``required`` come from the PassContext; rule
    names are kept as given and checked by the catalogue.
    """

    level: int = 3
    disabled: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    fusion: str = option("fusion", "auto", "auto", "always", "never")
    min_speedup: float = option("min_speedup", 1.03, parse=_min_speedup)
    layout: str = option("layout", "auto", "auto", "keep", "NHWC", "NCHW")
    quantize: str = option("quantize", "off", "off", "qdq")
    cost_model: str = option("cost_model", "auto", parse=_path_or_word)
    tuning_logs: str = option("tuning_logs", "lookup", parse=_tuning_logs)
    verify: str = option("verify", "structure", "structure", "off", "numeric")
    tile: str = option("tir.tile", "auto", "auto", "off")
    pipeline: str = option("tir.pipeline", "auto", "auto", "off")
    unroll: str = option("tir.unroll", "auto", "auto", "off")
    tensorize: str = option("tir.tensorize", "auto", "auto", "off")
    price_budget: int = option("price_budget", 300, parse=_count)
    fast_math: bool = option("fast_math", False)
    threads: int = option("threads", 0, parse=_threads)
    seed: int = option("seed", 0, parse=_count)

    def __post_init__(self):
        if not self.threads:
            object.__setattr__(self, "threads", _threads("all"))

    @classmethod
    def keys(cls) -> dict[str, dataclasses.Field]:
        """Map each config key to its field."""
        return {f.metadata["key"]: f for f in dataclasses.fields(cls) if "key" in f.metadata}

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any],
        level: int = 3,
        disabled: Iterable[str] = (),
        required: Iterable[str] = (),
    ) -> Options:
        """Check and convert ``tvmpass.*`` keys; other keys are TVM's and ignored here.

        Raises `UsageError` naming the nearest key, or the choices.
        """
        if not isinstance(level, int) or not 0 <= level <= 3:
            raise UsageError(f"opt_level {level!r} is outside 0..3")
        known = cls.keys()
        values: dict[str, Any] = {}
        for key, raw in config.items():
            if not key.startswith(CONFIG_PREFIX):
                continue
            if key not in known:
                raise UsageError(f"unknown config key {key!r}{nearest(key, known)}")
            values[known[key].name] = _convert(known[key], raw)
        return cls(level=level, disabled=tuple(disabled), required=tuple(required), **values)


def _convert(spec: dataclasses.Field, raw: Any) -> Any:
    key, choices, parse = spec.metadata["key"], spec.metadata["choices"], spec.metadata["parse"]
    if choices:
        if key == "tvmpass.layout" and raw in ("NCHW8c", "NCHW16c"):
            known = "use auto, keep, NHWC or NCHW"
            raise UsageError(f"{key}={raw}: blocked layouts are not available yet; {known}")
        if key == "tvmpass.quantize" and raw == "qdq":
            raise UsageError(f"{key}={raw}: quantisation is not available yet; use off")
        if raw not in choices:
            hint = nearest(str(raw), choices)
            raise UsageError(f"{key}={raw!r}: expected one of {', '.join(choices)}{hint}")
        return raw
    if isinstance(spec.default, bool):
        text = str(raw).lower()
        if text not in ("true", "false", "1", "0"):
            raise UsageError(f"{key}={raw!r}: expected true or false")
        return text in ("true", "1")
    try:
        return parse(raw)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{key}={raw!r}: {error}") from None
