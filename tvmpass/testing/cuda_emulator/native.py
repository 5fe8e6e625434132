"""Emitted source compiled by the host's C++ compiler, and loaded."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from tvmpass.core.errors import TvmpassError

from .cache import fetch
from .errors import Unmodelled
from .translate import kernel_names, shared_granule, translate

_FLAGS = ("-std=c++20", "-fPIC", "-march=native", "-fno-exceptions", "-w")
_RUNTIME_FLAGS = ("-O2", "-fvisibility=hidden")
# The sanitizers' calls end in the runtime, no sanitizer library takes part; -g1 is
# for the lines in messages.
_KERNEL_FLAGS = (
    "-O1",
    "-g1",
    "-fwrapv",
    "-fno-strict-aliasing",
    "-fsanitize=thread",
    "-fsanitize=bounds",
    "-fno-sanitize-recover=bounds",
)
_PATTERN = "-ftrivial-auto-var-init=pattern"
"""Makes uninitialised variables show; g++ has it from version 12 on."""
_UNKNOWN = re.compile(
    r"'(?:struct |class )?([\w:]+)' "
    r"(?:was not declared|does not name a type|is not a member|has not been declared)"
)
_HEADERS = "#include <cuda_emulator.h>\n#include <mma.h>\n#include <math_constants.h>\n"
_ENTRY = 'extern "C" EMU_UNCHECKED void emu_entry_{0}(void** arguments) {{ emu::call({0}, arguments); }}'


@dataclass
class Library:
    """One compiled source: its kernels can be launched, one launch at a time."""

    source: str
    granule: int
    handle: Any = field(repr=False)
    path: Path = field(repr=False)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def entry(self, kernel: str) -> int:
        """Return the address of a kernel's entry."""
        return ctypes.cast(getattr(self.handle, f"emu_entry_{kernel}"), ctypes.c_void_p).value or 0

    def line(self, offset: int) -> int:
        """Return the line of the emitted source at a code offset; 0 where no tool tells."""
        tool = shutil.which("addr2line")
        if not offset or tool is None:
            return 0
        # The offset is that of the return address: one less lies within the call.
        command = [tool, "-i", "-e", str(self.path), hex(offset - 1)]
        output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        lines = re.findall(r"kernel\.cu:(\d+)", output)
        return int(lines[-1]) if lines else 0


@functools.lru_cache(maxsize=64)
def load(source: str) -> Library:
    """Compile ``source`` (or take it from the cache) and load it.

    Raises `Unmodelled` where the source uses what the shim does not have, and
    `TvmpassError` without a C++ compiler.
    """
    text = "\n".join([translate(source), *(_ENTRY.format(name) for name in kernel_names(source)), ""])
    path = fetch(f"{_key(text)}.so", functools.partial(_compile, text))
    return Library(source, shared_granule(source), ctypes.CDLL(str(path)), path)


def compiler() -> str:
    """Return the C++ compiler; raises `TvmpassError` when there is none."""
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        if name and shutil.which(name):
            return name
    raise TvmpassError(
        "emulating CUDA kernels needs a C++ compiler: install g++ (Debian: apt-get install g++) or set CXX"
    )


@functools.lru_cache(maxsize=1)
def fills_variables() -> bool:
    """Does the compiler fill variables that are not initialised with a pattern?"""
    tried = _run([compiler(), _PATTERN, "-x", "c++", "-fsyntax-only", os.devnull])
    return tried.returncode == 0


def _kernel_flags() -> tuple[str, ...]:
    return (*_KERNEL_FLAGS, _PATTERN) if fills_variables() else _KERNEL_FLAGS


def _compile(text: str, output: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="tvmpass-emulator-") as folder:
        source, code = Path(folder) / "kernel.cu", Path(folder) / "kernel.o"
        source.write_text(text)
        with resources.as_file(resources.files(__package__)) as package:
            shim = ("-I", str(package / "shim"), "-include", str(_headers(package)))
            files = ("-x", "c++", "-c", str(source), "-o", str(code))
            done = _run([compiler(), *_FLAGS, *_kernel_flags(), *shim, *files])
            if done.returncode:
                raise _refusal(done.stderr)
            runtime = fetch(f"{_key('runtime')}.o", functools.partial(_compile_runtime, package))
        done = _run([compiler(), "-shared", "-Wl,-Bsymbolic", "-o", str(output), str(code), str(runtime)])
        if done.returncode:
            raise _refusal(done.stderr)


def _headers(package: Path) -> Path:
    """Return a header that includes all of ours, its compiled form beside it.

    Compilers take the ``.gch`` for the header itself, which saves most of the
    time that a small kernel takes to compile.
    """
    key = _key("headers")
    plain = fetch(f"{key}.h", lambda path: path.write_text(_HEADERS))
    fetch(f"{key}.h.gch", functools.partial(_compile_headers, package, plain))
    return plain


def _compile_headers(package: Path, plain: Path, output: Path) -> None:
    files = ("-I", str(package / "shim"), "-x", "c++-header", str(plain), "-o", str(output))
    done = _run([compiler(), *_FLAGS, *_kernel_flags(), *files])
    if done.returncode:
        raise TvmpassError(f"the emulator's headers do not compile: {done.stderr.strip()[-500:]}")


def _compile_runtime(package: Path, output: Path) -> None:
    sources = sorted(str(p) for p in (package / "runtime").glob("*.cc"))
    flags = (*_FLAGS, *_RUNTIME_FLAGS, "-r", "-nostdlib")
    done = _run([compiler(), *flags, "-o", str(output), *sources])
    if done.returncode:
        raise TvmpassError(f"the emulator's runtime does not compile: {done.stderr.strip()[-500:]}")


def _refusal(errors: str) -> TvmpassError:
    """Say what a compiler did not know."""
    first = next((line for line in errors.splitlines() if "error:" in line), errors.strip()[-300:])
    name = _UNKNOWN.search(first)
    line = re.search(r"kernel\.cu:(\d+)", first)
    number = int(line.group(1)) if line else 0
    if name is not None:
        return Unmodelled(f"the emulator does not model {name.group(1)} (line {number})", number)
    text = first.partition("error: ")[2] or first.strip()
    return Unmodelled(f"the emulator cannot compile the source: {text[:300]} (line {number})", number)


def _key(text: str) -> str:
    return hashlib.sha256(f"{_identity()}\0{text}".encode()).hexdigest()[:40]


@functools.lru_cache(maxsize=1)
def _identity() -> str:
    """Return what else a compiled emulation depends on: compiler, CPU, flags, our own C++."""
    version = _run([compiler(), "--version"]).stdout
    parts = [version, _processor(), " ".join((*_FLAGS, *_RUNTIME_FLAGS, *_kernel_flags()))]
    for folder in ("runtime", "shim"):
        files = sorted(resources.files(__package__).joinpath(folder).iterdir(), key=lambda f: f.name)
        parts += [file.read_text() for file in files if file.name.endswith((".h", ".cc"))]
    return "\n".join(parts)


def _processor() -> str:
    """Return what distinguishes this CPU from others: code is made for it."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
        return next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return platform.machine()


def _run(command: list[str]) -> subprocess.CompletedProcess:
    environment = {**os.environ, "LC_ALL": "C"}  # messages in English, quotes in ASCII
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
