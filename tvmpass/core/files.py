"""Write files whole or not at all; say in one line why one cannot be read or written."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .errors import TvmpassError, UsageError

_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})
"""What can go wrong with the disk while the caller writes; its other errors are its own."""


def writes_directly(path: str | os.PathLike) -> bool:
    """Return True for what must not be replaced: a device, a pipe, ``/dev/stdout``."""
    text = os.path.abspath(path)
    if text.startswith(("/dev/", "/proc/")):
        # /dev/stdout resolves to whatever the shell opened: never rename over it.
        return not text.startswith("/dev/shm/")
    try:
        mode = os.stat(text).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary path; on success it becomes ``path``, on failure it goes.

    The temporary file lies in the folder of ``path`` (so that the rename is
    atomic) and keeps its suffix.  A path that is no regular file (`writes_directly`)
    gets the finished bytes copied into it instead.  Raises `TvmpassError` with
    one line where the file cannot be written.
    """
    target = Path(path)
    if writes_directly(target):
        with tempfile.TemporaryDirectory() as folder:
            temporary = Path(folder) / ("output" + target.suffix)
            yield temporary
            with _explained(target), open(temporary, "rb") as source, open(target, "wb") as sink:
                shutil.copyfileobj(source, sink)
        return
    with _explained(target):
        # A symbolic link is followed, so that the link stays and its file is replaced.
        final = Path(os.path.realpath(target))
        if final.is_dir():
            raise IsADirectoryError(errno.EISDIR, "Is a directory", str(target))
        handle, name = tempfile.mkstemp(prefix=f".{final.stem}.", suffix=final.suffix, dir=final.parent)
        os.close(handle)
    temporary = Path(name)
    try:
        with _explained(target, _DISK):
            yield temporary
        with _explained(target):
            os.chmod(temporary, _mode(final))
            _sync(temporary)
            os.replace(temporary, final)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def reading(path: str | os.PathLike, what: str, expected: str) -> Iterator[None]:
    """Turn what goes wrong in reading a file that the user named into one line.

    ``what`` is the kind of file (``model file``), ``expected`` what its path should
    be (``an .onnx file``).  Raises `UsageError` for a path without a file,
    `TvmpassError` for a file that cannot be read.
    """
    where = os.fspath(path)
    try:
        yield
    except FileNotFoundError:
        raise UsageError(f"{what} not found: {where}") from None
    except IsADirectoryError:
        raise UsageError(f"{where} is a folder; give the path of {expected}") from None
    except OSError as error:
        raise TvmpassError(f"cannot read {where}: {error.strerror or error}") from None


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write ``text`` as UTF-8, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def check_writable(path: str | os.PathLike) -> None:
    """Raise `TvmpassError` now if ``path`` could not be written later.

    Meant to be called before long work; leaves nothing behind.
    """
    target = Path(path)
    with _explained(target):
        if writes_directly(target):
            with open(target, "ab"):
                return
        final = Path(os.path.realpath(target))
        if final.is_dir():
            raise IsADirectoryError(errno.EISDIR, "Is a directory", str(target))
        with tempfile.TemporaryFile(dir=final.parent) as probe:
            probe.write(b"\0")
            probe.flush()


def check_apart(output: str | os.PathLike, *others: str | os.PathLike | None) -> None:
    """Raise `UsageError` where writing ``output`` would overwrite one of ``others``.

    Links count as what they lead to; a device or a pipe is never overwritten.
    """
    if writes_directly(output):
        return
    for other in others:
        if other is None or writes_directly(other):
            continue
        same = os.path.realpath(output) == os.path.realpath(other)
        with contextlib.suppress(OSError):  # one of them does not exist (yet)
            same = same or os.path.samefile(output, other)
        if same:
            raise UsageError(
                f"writing {os.fspath(output)} would overwrite {os.fspath(other)}: name another file"
            )


@contextlib.contextmanager
def _explained(target: Path, only: frozenset[int] | None = None) -> Iterator[None]:
    """Turn an OSError (of the kinds ``only``) into one line about ``target``."""
    try:
        yield
    except OSError as error:
        if only is not None and error.errno not in only:
            raise
        raise TvmpassError(f"cannot write {target}: {error.strerror or error}") from error


def _mode(path: Path) -> int:
    """Return the mode of the file to be replaced, else what the umask gives."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask


def _sync(path: Path) -> None:
    """Flush to disk, so that a full or failing disk is noticed before the rename."""
    with open(path, "rb") as handle:
        os.fsync(handle.fileno())
