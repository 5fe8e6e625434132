"""Find the C++ compiler of this machine."""

from __future__ import annotations

import os
import shutil

from tvmpass.core.errors import TvmpassError


def host_compiler(needed_by: str = "nvcc and linking an artifact need") -> str:
    """Return the C++ compiler: ``CXX`` or the first of the usual ones.

    Raises `TvmpassError`, which begins with ``needed_by``, where there is none.
    """
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        if name and shutil.which(name):
            return name
    cure = "install g++ (Debian: apt-get install g++) or set CXX"
    raise TvmpassError(f"{needed_by} a C++ compiler: {cure}")
