"""Refuse a TVM that is known to crash, before it is imported.

apache-tvm 0.27 was built against the ABI of tvm-ffi 0.1.14.  With tvm-ffi 0.1.15
or later, saving IR, tensorizing and MetaSchedule end the process by a signal, so
trying it out in this process is no test: only the installed versions are read.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata

TVM_SERIES = (0, 27)
FFI_FIRST = (0, 1, 14)
FFI_BEFORE = (0, 1, 15)
PYTHON_FIRST = (3, 10)
PYTHON_BEFORE = (3, 14)

REMEDY = "pip install 'apache-tvm==0.27.0.post1' 'apache-tvm-ffi>=0.1.14.post0,<0.1.15'"


class IncompatibleTVM(ImportError):
    """The installed TVM is missing, too old or too new (one clear line)."""


def check_installed() -> None:
    """Raise `IncompatibleTVM` unless the installed TVM pair is known to work.

    Reads package metadata only; costs about a millisecond and imports no TVM.
    """
    if not PYTHON_FIRST <= sys.version_info[:2] < PYTHON_BEFORE:
        found = ".".join(map(str, sys.version_info[:3]))
        raise IncompatibleTVM(f"tvmpass needs Python 3.10 to 3.13, found {found}")
    tvm, ffi = _version("apache-tvm"), _version("apache-tvm-ffi")
    if tvm is None:
        raise IncompatibleTVM(f"tvmpass needs apache-tvm 0.27, which is not installed; try: {REMEDY}")
    if _numbers(tvm)[:2] != TVM_SERIES:
        raise IncompatibleTVM(f"tvmpass needs apache-tvm 0.27, found {tvm}; try: {REMEDY}")
    if ffi is None:
        raise IncompatibleTVM(f"apache-tvm {tvm} needs apache-tvm-ffi, which is not installed; try: {REMEDY}")
    if not FFI_FIRST <= _numbers(ffi)[:3] < FFI_BEFORE:
        raise IncompatibleTVM(
            f"apache-tvm {tvm} with apache-tvm-ffi {ffi} crashes the process "
            f"(it was built for 0.1.14); try: {REMEDY}"
        )


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """Return the release part of a version: ``0.27.0.post1`` gives (0, 27, 0)."""
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in release.group().split(".")) if release else ()
