"""NVIDIA's compiler: found, checked against the architectures, run in parallel, cached.

A *unit* is one CUDA source text; it becomes one fatbin with machine code for every
architecture and PTX of the highest, which newer devices translate for themselves.
What ptxas says about registers, shared memory and spills is kept with it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from tvmpass.core.cuda_arch import capability
from tvmpass.core.errors import TvmpassError

from .compile_cache import CompileCache
from .cuda_binary import DamagedBinary, fatbin_kernels
from .host_compiler import host_compiler

CURE = "pip install 'tvmpass[cuda]', or set CUDA_HOME to an installed CUDA toolkit"
_FLAGS = ("-O3", "-std=c++17", "-w", "-Xptxas", "-v")
MAX_THREADS = 16
_FORMAT = 1
"""Counted up when what the cache holds changes its form."""

_OWN_FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
"""Variables of the environment from which nvcc takes flags too."""

_FAULT = re.compile(
    r"unit\.cu\(\d+\)|^ptxas (?:error|.*line \d)|died due to signal (?!9\b|15\b)", re.MULTILINE
)
"""What nvcc writes where the source is at fault, not the machine's memory, disk or set-up."""

_QUESTION_SECONDS = 60
"""How long nvcc may take to tell its version: a wrapper that waits for something is broken."""


class UnitError(TvmpassError):
    """The compiler refused one unit: its name, and the compiler's first error."""

    def __init__(self, unit: str, reason: str):
        super().__init__(f"nvcc failed for kernel {unit}: {reason}")
        self.unit, self.reason = unit, reason


@dataclass(frozen=True)
class Nvcc:
    """One nvcc: its file, its version such as ``13.0.88``, and the toolkit's root folder.

    ``root`` is the toolkit that nvcc itself works in, also where ``path`` is a
    script that runs the real nvcc of another folder.
    """

    path: Path
    version: str
    root: Path


@dataclass(frozen=True)
class Resources:
    """What ptxas reports about one device kernel on one architecture.

    ``registers`` per thread; ``static_shared_bytes`` per block; ``stack_bytes``
    per thread; ``spill_bytes`` are the bytes that a thread's spill code stores
    and loads, counted once each in the code.
    """

    registers: int
    static_shared_bytes: int
    stack_bytes: int
    spill_bytes: int


@dataclass(frozen=True)
class Unit:
    """A compiled unit: the fatbin, and ``resources[device kernel][architecture]``."""

    fatbin: bytes
    resources: dict[str, dict[str, Resources]]


def find_nvcc() -> Nvcc:
    """Find NVIDIA's compiler and return it; `TvmpassError` where there is none.

    Looked for in ``CUDA_HOME`` and ``CUDA_PATH``, in the wheels of the extra
    ``cuda``, then on ``PATH``.
    """
    named = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    for folder in [*map(Path, named), *wheel_folders()]:
        path = folder / "bin" / "nvcc"
        if path.is_file():
            return _examine(path)
    found = shutil.which("nvcc")
    if found is None:
        where = f"{', '.join(named)} (CUDA_HOME), " if named else ""
        raise TvmpassError(
            f"building for CUDA needs nvcc, which is not in {where}the Python packages or on PATH: {CURE}"
        )
    return _examine(Path(found))


def check_architectures(nvcc: Nvcc, arches: Sequence[str]) -> None:
    """Raise `TvmpassError` where ``nvcc`` cannot compile for one of ``arches``."""
    known = _known_architectures(nvcc.path, nvcc.version)
    unknown = [arch for arch in arches if arch.rstrip("af") not in known]
    if unknown:
        raise TvmpassError(
            f"nvcc {nvcc.version} ({nvcc.path}) does not compile for {', '.join(unknown)}, "
            f"only for {', '.join(known)}; use another target or another nvcc: {CURE}"
        )


def compile_units(
    units: Mapping[str, str],
    arches: Sequence[str],
    *,
    nvcc: Nvcc,
    cache: CompileCache | None = None,
    fast_math: bool = False,
    progress: Callable[[str], None] | None = None,
    threads: int | None = None,
) -> dict[str, Unit]:
    """Compile CUDA sources by name to fatbins; equal sources are compiled once, ever.

    ``arches`` is a sequence such as ``("sm_80", "sm_90")``; ``threads`` how many
    units are compiled at a time (default: one per CPU); ``progress`` is called
    with a line after each.  Raises `UnitError` naming the unit and the first
    error of the compiler.
    """
    check_architectures(nvcc, arches)
    compiler = host_compiler()
    cache = cache if cache is not None else CompileCache()
    flags = (*_FLAGS, *(["--use_fast_math"] if fast_math else []), *_code_options(arches))
    keys = {name: _key(source, flags, nvcc) for name, source in units.items()}
    done: dict[str, Unit] = {}
    with tempfile.TemporaryDirectory(prefix="tvmpass-nvcc-") as folder:
        for key in dict.fromkeys(keys.values()):
            unit = _fetch(cache, key, Path(folder))
            if unit is not None:
                done[key] = unit
        todo = {key: name for name, key in keys.items() if key not in done}

        def work(key: str) -> Unit:
            name = todo[key]
            unit = _compile(name, units[name], flags, nvcc, compiler, Path(folder))
            _store(cache, key, unit, Path(folder))
            return unit

        pool = ThreadPoolExecutor(max(1, min(threads or _processors(), len(todo))))
        try:
            running = {key: pool.submit(work, key) for key in todo}
            for count, (key, future) in enumerate(running.items(), 1):
                done[key] = future.result()
                if progress is not None:
                    progress(f"nvcc: {count} of {len(todo)} units")
        finally:
            pool.shutdown(cancel_futures=True)
    return {name: done[key] for name, key in keys.items()}


def _processors() -> int:
    """Return how many units to compile at a time; each takes some 200 MB of memory."""
    return min(len(os.sched_getaffinity(0)), MAX_THREADS)


def wheel_folders() -> list[Path]:
    """Return the toolkit folders that NVIDIA's wheels install, newest major version first."""
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    found = [folder for root in roots for folder in Path(root).glob("cu[0-9]*")]
    return sorted(found, key=lambda folder: int(re.sub(r"\D", "", folder.name) or 0), reverse=True)


def _examine(path: Path) -> Nvcc:
    stamp = path.stat()
    return _examined(path, stamp.st_mtime_ns, stamp.st_size)


@functools.lru_cache(maxsize=8)
def _examined(path: Path, _mtime: int, _size: int) -> Nvcc:
    text = _ask(path, "--version")
    version = re.search(r"\bV(\d+\.\d+\.\d+)", text)
    if version is None:
        raise TvmpassError(f"{path} is not NVIDIA's nvcc: --version says {_first(text)!r}; {CURE}")
    # nvcc says where it works; the path may be a script elsewhere that runs it.
    top = re.search(
        r"^#\$ TOP=(.*)$", _ask(path, "--dryrun", "-fatbin", "-x", "cu", os.devnull), re.MULTILINE
    )
    root = Path(top.group(1).strip()) if top else path.parent.parent
    return Nvcc(path, version.group(1), Path(os.path.realpath(root)))


@functools.lru_cache(maxsize=8)
def _known_architectures(path: Path, _version: str) -> tuple[str, ...]:
    names = re.findall(r"\bsm_\d+\b", _ask(path, "--list-gpu-code"))
    return tuple(sorted(set(names), key=capability))


def _ask(path: Path, *arguments: str) -> str:
    """Return what nvcc answers on both streams; `TvmpassError` where it does not run."""
    try:
        done = _run([str(path), *arguments], timeout=_QUESTION_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = getattr(error, "strerror", None) or f"no answer in {_QUESTION_SECONDS} s"
        raise TvmpassError(f"{path} does not run: {reason}; {CURE}") from None
    if done.returncode:
        raise TvmpassError(f"{path} {arguments[0]} fails: {_first(done.stderr or done.stdout)}; {CURE}")
    return done.stdout + done.stderr


def _run(command: Sequence[str], timeout: float | None = None, folder: Path | None = None):
    environment = {**os.environ, "LC_ALL": "C"}
    if folder is not None:
        environment["TMPDIR"] = str(folder)
    return subprocess.run(
        list(command), capture_output=True, text=True, errors="replace", timeout=timeout, env=environment,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def _code_options(arches: Sequence[str]) -> list[str]:
    """Return nvcc's options for machine code of each architecture and PTX of the last."""
    ordered = sorted(arches, key=capability)
    options = []
    for arch in ordered:
        virtual = arch.replace("sm_", "compute_")
        code = f"[{arch},{virtual}]" if arch == ordered[-1] else arch
        options += ["-gencode", f"arch={virtual},code={code}"]
    return options


def _compile(name: str, source: str, flags, nvcc: Nvcc, compiler: str, folder: Path) -> Unit:
    with tempfile.TemporaryDirectory(dir=folder) as own:
        text, output = Path(own) / "unit.cu", Path(own) / "unit.fatbin"
        text.write_text(source, encoding="utf-8")
        command = [nvcc.path, "-fatbin", "-ccbin", compiler, *flags, "-o", output, text]
        done = _run([str(part) for part in command], folder=Path(own))
        if done.returncode or not output.is_file():
            raise _failure(name, done.stderr or done.stdout, done.returncode)
        fatbin = output.read_bytes()
        try:
            fatbin_kernels(fatbin)  # what is cut short must not be kept in the cache
        except DamagedBinary as error:
            raise TvmpassError(f"{nvcc.path} wrote no usable fatbin: {error}") from None
        return Unit(fatbin, parse_resources(done.stderr + done.stdout))


def _failure(name: str, log: str, status: int) -> TvmpassError:
    """Return a `UnitError` where the source is at fault: only then another form may do."""
    reason = _first_error(log) if log.strip() else f"it says nothing (exit status {status})"
    return UnitError(name, reason) if _FAULT.search(log) else TvmpassError(f"nvcc failed: {reason}")


def parse_resources(log: str) -> dict[str, dict[str, Resources]]:
    """Return ``{kernel: {architecture: Resources}}`` from what ``ptxas -v`` writes."""
    found: dict[str, dict[str, Resources]] = {}
    for part in re.split(r"(?=Compiling entry function ')", log):
        head = re.match(r"Compiling entry function '(\w+)' for '(\w+)'", part)
        if head is None:
            continue
        name, arch = head.groups()
        # Functions that were not inlined have properties of their own.
        _, _, own = part.partition(f"Function properties for {name}\n")
        frame = re.search(
            r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", own or part
        )
        stack, stores, loads = (int(n) for n in frame.groups()) if frame else (0, 0, 0)
        found.setdefault(name, {})[arch] = Resources(
            registers=_number(r"Used (\d+) registers", part),
            static_shared_bytes=_number(r"(\d+) bytes smem", part),
            stack_bytes=stack,
            spill_bytes=stores + loads,
        )
    return found


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return int(match.group(1)) if match else 0


def _first(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "nothing")[:200]


def _first_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    wrong = [line for line in lines if re.search(r"\b(error|fatal)\b", line)]
    # The file's name is that of a temporary folder, and says nothing.
    return re.sub(r"\S*/unit\.cu", "unit.cu", (wrong or lines)[0])[:300]


def _key(source: str, flags: Sequence[str], nvcc: Nvcc) -> str:
    own = [os.environ.get(name, "") for name in _OWN_FLAGS]
    text = json.dumps([_FORMAT, nvcc.version, [*flags, *filter(None, own)], source])
    return "cuda_" + hashlib.sha256(text.encode()).hexdigest()[:40]


def _fetch(cache: CompileCache, key: str, folder: Path) -> Unit | None:
    path = folder / key
    if not cache.fetch(key, path):
        return None
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    resources = {
        kernel: {arch: Resources(**values) for arch, values in arches.items()}
        for kernel, arches in header.items()
    }
    return Unit(content[8 + size :], resources)


def _store(cache: CompileCache, key: str, unit: Unit, folder: Path) -> None:
    header = json.dumps(
        {
            kernel: {arch: asdict(found) for arch, found in arches.items()}
            for kernel, arches in unit.resources.items()
        }
    ).encode()
    path = folder / key
    path.write_bytes(len(header).to_bytes(8, "little") + header + unit.fatbin)
    cache.store(key, path)
