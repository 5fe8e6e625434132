"""A folder of compiled kernels, shared by all builds of one user on one machine.

Files are named after their content's key, appear by rename and are never
changed, so that several processes may use the folder at once.  Each ends in the
hash of what precedes it: a damaged file is deleted, never used.  When the
folder outgrows its cap the files unused for longest go.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from tvmpass.settings import Settings

_SUFFIX = ".o"
_HASH_BYTES = 32
_SWEEP_EVERY = 64
"""Stores between two looks at the folder's size: listing it costs milliseconds."""


class CompileCache:
    """Fetch and store object files by key; a cache that cannot be used is no error."""

    def __init__(self, folder: Path | None = None, size_limit: int | None = None):
        settings = Settings.read()
        self.folder = folder if folder is not None else settings.cache_dir / "kernels"
        self.size_limit = settings.cache_size if size_limit is None else size_limit
        self._stored = 0

    def fetch(self, key: str, output: Path) -> bool:
        """Write the object of ``key`` to ``output``; return whether it was there, whole."""
        if not self.size_limit:
            return False
        source = self.folder / (key + _SUFFIX)
        try:
            content = source.read_bytes()
        except OSError:
            return False
        code, found = content[:-_HASH_BYTES], content[-_HASH_BYTES:]
        if not code or hashlib.sha256(code).digest() != found:
            with contextlib.suppress(OSError):
                source.unlink()
            return False
        output.write_bytes(code)
        with contextlib.suppress(OSError):  # marks it as used; the folder may be read-only
            os.utime(source)
        return True

    def store(self, key: str, source: Path) -> None:
        """Keep a copy of ``source``; drops old files when the folder is too big."""
        if not self.size_limit:
            return
        code = source.read_bytes()
        with contextlib.suppress(OSError):  # a full or read-only disk must not fail a build
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.folder, prefix=".", suffix=_SUFFIX)
            try:
                with open(handle, "wb") as file:
                    file.write(code + hashlib.sha256(code).digest())
                os.replace(name, self.folder / (key + _SUFFIX))
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name)
            self._stored += 1
            if self._stored % _SWEEP_EVERY == 1:
                self.sweep()

    def sweep(self) -> None:
        """Delete the files unused for longest until the folder fits its cap."""
        entries = []
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.folder):
                if entry.name.endswith(_SUFFIX):
                    with contextlib.suppress(OSError):  # another process may have deleted it
                        status = entry.stat()
                        entries.append((status.st_mtime, status.st_size, entry.path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.size_limit:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= size
