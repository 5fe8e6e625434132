"""Compiled emulations kept between processes, named after their content's key."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tvmpass.settings import Settings

_KEPT = 512
"""Files in the folder; those unused for longest go."""


def fetch(name: str, make: Callable[[Path], Any]) -> Path:
    """Return the file called ``name``, made by ``make(path)`` where it is not there.

    Files appear by rename and are never changed, so that several processes may
    use the folder at once.  Where it cannot be written a folder of this process
    takes its place.
    """
    for folder in _folders():
        path = folder / name
        if path.exists():
            with contextlib.suppress(OSError):  # marks it as used; the folder may be read-only
                os.utime(path)
            return path
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle, partial = tempfile.mkstemp(dir=folder, prefix=".", suffix=Path(name).suffix)
        except OSError:
            continue
        os.close(handle)
        try:
            make(Path(partial))
            os.replace(partial, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial)
        _sweep(folder)
        return path
    raise OSError("no folder for temporary files can be written")


def _folders() -> Iterator[Path]:
    settings = Settings.read()
    if settings.cache_size:
        yield settings.cache_dir / "emulator"
    yield Path(_own().name)


@functools.lru_cache(maxsize=1)
def _own() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="tvmpass-emulator-")


def _sweep(folder: Path) -> None:
    with contextlib.suppress(OSError):
        entries = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
        if len(entries) <= _KEPT:
            return
        for entry in sorted(entries, key=lambda e: e.stat().st_mtime)[: len(entries) - _KEPT // 2]:
            os.unlink(entry.path)  # a library that is loaded stays usable
