"""Every ``TVMPASS_*`` environment variable, typed, in one place.

These say where things are kept and how much is shown on this machine.  What
changes the built code is an option (`tvmpass.core.options`), never a variable.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PREFIX = "TVMPASS_"

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class SettingError(ValueError):
    """An environment variable has a value that cannot be read."""


@dataclass(frozen=True)
class Settings:
    """The settings of this process, read from the environment.

    Each field ``name`` is the variable ``TVMPASS_NAME``.
    """

    cache_dir: Path
    """Where compiled kernels are kept between builds (``~/.cache/tvmpass``)."""
    cache_size: int
    """Bytes that the cache may hold; ``512M`` and the like; 0 keeps nothing."""
    debug: bool
    """Show tracebacks and TVM's own log lines."""

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read the settings now; raises `SettingError` naming the variable."""
        env = os.environ if environment is None else environment
        return cls(
            cache_dir=Path(env.get("TVMPASS_CACHE_DIR") or _default_cache(env)),
            cache_size=_size("TVMPASS_CACHE_SIZE", env.get("TVMPASS_CACHE_SIZE") or "2G"),
            debug=_flag("TVMPASS_DEBUG", env.get("TVMPASS_DEBUG") or "0"),
        )

    @classmethod
    def variables(cls) -> tuple[str, ...]:
        """Return the names of all variables."""
        return tuple(PREFIX + name.upper() for name in cls.__dataclass_fields__)


def unknown_variables(environment: Mapping[str, str] | None = None) -> list[str]:
    """Describe each ``TVMPASS_*`` variable that nothing reads, with the nearest known."""
    env = os.environ if environment is None else environment
    known = Settings.variables()
    lines = []
    for name in sorted(env):
        if name.startswith(PREFIX) and name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            lines.append(f"the environment variable {name} is unknown and was ignored{hint}")
    return lines


def shipped_logs() -> Path:
    """Return the folder of the records and models that ship with tvmpass.

    It lies beside the installed packages, in a checkout as in a wheel.
    """
    return Path(__file__).resolve().parent.parent / "tuning_logs"


def _default_cache(env: Mapping[str, str]) -> Path:
    base = env.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tvmpass"


def _size(name: str, text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise SettingError(f"{name}={text!r}: expected a size such as 512M or 2G")
    return int(float(match.group(1)) * _UNITS[match.group(2).upper()])


def _flag(name: str, text: str) -> bool:
    value = text.strip().lower()
    if value not in ("0", "1", "true", "false", "yes", "no", "on", "off"):
        raise SettingError(f"{name}={text!r}: expected 1 or 0")
    return value in ("1", "true", "yes", "on")
