"""A lock between processes that lasts no longer than the process that took it.

The system's ``flock`` on a file of its own beside what is guarded: it goes with
its holder, however that ends.  Between machines (NFS) it does not hold.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref
from collections.abc import Callable
from pathlib import Path

from tvmpass.core.errors import TvmpassError


class FileLock:
    """The lock of one file, ``PATH.lock``; a context manager."""

    def __init__(self, path: Path, handle: int):
        self.path, self._handle = path, handle
        _HELD.add(self)

    @classmethod
    def take(cls, path: Path, wait: bool = True, waiting: Callable[[str], None] | None = None) -> FileLock:
        """Lock ``path`` against other writers.

        Where another process has it, ``waiting`` is called once with a line that
        says so, and the call blocks; without ``wait`` it raises `TvmpassError`.
        Raises OSError where no lock file can be made.
        """
        name = f"{path}.lock"
        while True:
            handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                if not _try(handle):
                    who = _holder(handle)
                    if not wait:
                        raise TvmpassError(
                            f"{path} is being written by {who}: wait for it, or name another folder"
                        )
                    if waiting is not None:
                        waiting(f"{path} is being written by {who}: waiting until it is done")
                        waiting = None
                    fcntl.flock(handle, fcntl.LOCK_EX)
                if _is_at(handle, name):
                    os.ftruncate(handle, 0)
                    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
                    return cls(path, handle)
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)  # its last holder has removed it meanwhile: try the next one

    def release(self) -> None:
        """Let the next one in; releasing twice does no harm."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):  # the folder may be gone, and the lock with it
                os.unlink(f"{self.path}.lock")
            # Not by closing alone: a child just forked may still hold a copy.
            fcntl.flock(self._handle, fcntl.LOCK_UN)
        self._forget()

    def _forget(self) -> None:
        _HELD.discard(self)
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


_HELD: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _forget_in_child() -> None:
    """Close a forked child's copies: a lock lasts as long as any copy of it is open."""
    for lock in list(_HELD):
        lock._forget()


os.register_at_fork(after_in_child=_forget_in_child)


def _try(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _is_at(handle: int, name: str) -> bool:
    """Return True where the open file is (still) the one of that name."""
    own = os.fstat(handle)
    try:
        now = os.stat(name)
    except FileNotFoundError:
        return False
    return (now.st_dev, now.st_ino) == (own.st_dev, own.st_ino)


def _holder(handle: int) -> str:
    text = os.pread(handle, 20, 0).decode("ascii", "replace").strip()
    return f"process {text}" if text.isdigit() else "another process"
