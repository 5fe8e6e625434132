"""Is every kernel that an exported CUDA library launches really in it?

The library is read, not run: the kernels that its host code names, the tables of
its CUDA modules, and the symbols of their machine code for each architecture.
That needs no driver, and finds a library cut short before it is loaded.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tvmpass.core.cuda_arch import capability
from tvmpass.core.errors import TvmpassError

from .cuda_binary import DamagedBinary, elf_symbols, fatbin_kernels
from .cuda_pack import BLOCK_SYMBOL, cuda_modules, kernel_names


@dataclass(frozen=True)
class CudaLibrary:
    """The kernels of a library: launched by its host code, and there to be launched.

    ``code[kernel]`` holds the compute capabilities that it has machine code for;
    only kernels in a module's table are there.
    """

    launched: frozenset[str]
    code: dict[str, frozenset[int]]

    def missing(self, arches: Sequence[str]) -> tuple[str, ...]:
        """Return the launched kernels without a table entry or code for one of ``arches``."""
        wanted = {capability(arch) for arch in arches}
        return tuple(sorted(name for name in self.launched if not wanted <= self.code.get(name, frozenset())))


def read_library(path: str | Path) -> CudaLibrary:
    """Read an exported library; `TvmpassError` for one that is damaged."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            blocks = [symbol for symbol in elf_symbols(view) if symbol.name == BLOCK_SYMBOL]
            if not blocks:
                raise DamagedBinary("it holds no modules")
            start, end = blocks[0].offset, blocks[0].offset + blocks[0].size
            modules = cuda_modules(view[start:end])
            launched = kernel_names(view[:start]) | kernel_names(view[end:])
        code: dict[str, frozenset[int]] = {}
        for module in modules:
            compiled = fatbin_kernels(module.code)
            for name in module.kernels:
                code[name] = frozenset(c for c, names in compiled.items() if name in names)
    except (OSError, DamagedBinary) as error:
        raise TvmpassError(f"{path}: the library is damaged ({error})") from None
    return CudaLibrary(launched, code)


def check_library(path: str | Path, arches: Sequence[str]) -> None:
    """Raise `TvmpassError` for a library whose host code launches what is not in it."""
    missing = read_library(path).missing(arches)
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise TvmpassError(f"{path}: the library lacks kernel {missing[0]}{more}: build it again")


def resolvable(artifact) -> tuple[str, ...]:
    """Return the kernels that a CUDA artifact launches but does not hold: none, if it is whole.

    An artifact that was built here is linked to a temporary file for that.
    """
    if artifact.path is not None:
        return read_library(artifact.path).missing(artifact.arches)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.so"
        artifact.export(path)
        return read_library(path).missing(artifact.arches)
