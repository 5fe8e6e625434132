"""What Linux offers to keep a child process within bounds and to end it surely."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Iterable
from pathlib import Path

FILE_BYTES = 2 << 30
"""The largest file that a child may write."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PAGE = resource.getpagesize()


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process with its parent, whose id is ``parent``.

    Only for a parent with one thread: the kernel looks at the thread that forked.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was told
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def address_space() -> int:
    """Return the bytes of address space that this process has in use."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE


def resident_bytes(pid: int) -> int:
    """Return the bytes of memory that a process has in use, 0 where it ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def threads() -> int:
    """Return how many threads this process has."""
    return len(os.listdir("/proc/self/task"))


def limit(seconds: float, memory_bytes: int | None) -> None:
    """Bound this process: memory beyond what it has now, processor time, files, no core dump.

    Processor time is a second bound: wall time is the parent's to watch, but a
    process that got away from it must end too.
    """
    cpu = max(1, int(seconds * (os.cpu_count() or 1)) + 10)
    _lower(resource.RLIMIT_CPU, cpu)
    _lower(resource.RLIMIT_FSIZE, FILE_BYTES)
    _lower(resource.RLIMIT_CORE, 0)
    if memory_bytes is not None:
        _lower(resource.RLIMIT_AS, address_space() + memory_bytes)


def _lower(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def kill_group(group: int) -> None:
    """End every process of a group, also where it is gone already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def children(pid: int) -> list[int]:
    """Return the processes whose parent is ``pid``, zombies included."""
    try:
        return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # the kernel was built without that file
        return [int(entry.name) for entry in os.scandir("/proc") if _parent(entry) == pid]


def _parent(entry: os.DirEntry[str]) -> int | None:
    if not entry.name.isdigit():
        return None
    try:
        status = Path(entry.path, "stat").read_text()
    except OSError:  # it ended meanwhile
        return None
    # The second field is the name in parentheses, which may hold anything.
    return int(status.rpartition(")")[2].split()[1])


def kill_orphans(known: Iterable[int]) -> None:
    """End the adopted children of this process, and theirs: all that are not ``known``."""
    known = frozenset(known)
    while strays := [pid for pid in children(os.getpid()) if pid not in known]:
        for pid in strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
