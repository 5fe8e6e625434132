"""The modules inside an exported library: TVM's import tree, read and written.

A library carries one block of bytes: the virtual machine's code, a mark for the
library itself, and what the library imports.  For CUDA those imports are modules
that hold a fatbin and a table of its kernels.  TVM writes such modules only where
a CUDA driver is; here their bytes are composed, so that a build needs none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cuda_binary import DamagedBinary

LIBRARY = "_lib"
"""The kind under which TVM files the library that carries the block."""
CUDA = "cuda"
BLOCK_SYMBOL = "__tvm_ffi__library_bin"
"""The symbol under which TVM's loader looks for the block."""
BINARY_FORMAT = "cubin"
"""What TVM's CUDA module calls code that the driver loads as it is: cubin, fatbin or PTX."""


@dataclass
class Module:
    """One module of the tree: its kind, its bytes (None: the library) and its imports."""

    kind: str
    payload: bytes | None
    imports: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class CudaModule:
    """A CUDA module's bytes: format of the code, table of kernels, code."""

    form: str
    table: bytes
    code: bytes

    @property
    def kernels(self) -> tuple[str, ...]:
        """Return the names of the kernels in the table."""
        return tuple(_table_names(Reader(self.table)))

    def to_bytes(self) -> bytes:
        """Return the bytes as TVM's CUDA runtime reads them."""
        return _string(self.form.encode()) + self.table + _string(self.code)

    @classmethod
    def from_bytes(cls, payload: bytes) -> CudaModule:
        """Take a module's bytes apart; `DamagedBinary` for what is none."""
        reader = Reader(payload)
        form = reader.string().decode("utf-8", "replace")
        start = reader.position
        _table_names(reader)
        table = payload[start : reader.position]
        code = reader.string()
        reader.finish()
        return cls(form, table, code)


def join_tables(tables: Iterable[bytes]) -> bytes:
    """Return one table with the kernels of several."""
    given = list(tables)
    count = sum(Reader(table).number() for table in given)
    return count.to_bytes(8, "little") + b"".join(table[8:] for table in given)


def read_tree(block: bytes) -> list[Module]:
    """Return the modules of a block, the first being the root."""
    reader = Reader(block)
    size = reader.number()
    if size != len(block) - reader.position:
        raise DamagedBinary("the block of modules has another length than it says")
    rows, children = reader.numbers(), reader.numbers()
    modules = []
    for index in range(len(rows) - 1):
        kind = reader.string().decode("utf-8", "replace")
        payload = None if kind == LIBRARY else reader.string()
        modules.append(Module(kind, payload, list(children[rows[index] : rows[index + 1]])))
    reader.finish()
    if any(child >= len(modules) for module in modules for child in module.imports):
        raise DamagedBinary("a module imports one that is not there")
    return modules


def write_tree(modules: Sequence[Module]) -> bytes:
    """Return the block of a tree of modules, as TVM's loader reads it."""
    rows = [0]
    children: list[int] = []
    for module in modules:
        children += module.imports
        rows.append(len(children))
    parts = [_numbers(rows), _numbers(children)]
    for module in modules:
        parts.append(_string(module.kind.encode()))
        if module.payload is not None:
            parts.append(_string(module.payload))
    body = b"".join(parts)
    return len(body).to_bytes(8, "little") + body


def module_block(module: Any) -> bytes:
    """Return TVM's own block for a runtime module and what it imports."""
    from tvm.runtime import _ffi_api

    return _ffi_api.ModulePackImportsToTensor(module).numpy().tobytes()


def add_cuda_modules(block: bytes, modules: Iterable[CudaModule]) -> bytes:
    """Return a block in which the library imports ``modules`` too."""
    tree = read_tree(block)
    library = next((module for module in tree if module.kind == LIBRARY), None)
    if library is None:
        library = Module(LIBRARY, None)
        tree[0].imports.append(len(tree))
        tree.append(library)
    for made in modules:
        library.imports.append(len(tree))
        tree.append(Module(CUDA, made.to_bytes()))
    return write_tree(tree)


def cuda_modules(block: bytes) -> list[CudaModule]:
    """Return the CUDA modules of a block."""
    return [CudaModule.from_bytes(m.payload or b"") for m in read_tree(block) if m.kind == CUDA]


def embed(data: bytes, symbol: str, folder: Path) -> Path:
    """Write assembler text to ``folder`` that gives ``data`` a symbol; return its path."""
    content, source = folder / f"{symbol}.bin", folder / f"{symbol}.s"
    content.write_bytes(data)
    source.write_text(
        f'.section .rodata.{symbol},"a"\n.balign 16\n.globl {symbol}\n.type {symbol}, %object\n'
        f'.size {symbol}, {len(data)}\n{symbol}:\n.incbin "{content}"\n'
        '.section .note.GNU-stack,"",%progbits\n'
    )
    return source


def kernel_names(text: bytes, prefix: str = "tvmpass_") -> frozenset[str]:
    """Return the device kernels that host code names: its zero-terminated strings."""
    pattern = re.compile(rb"\b" + re.escape(prefix.encode()) + rb"[0-9a-f]{24}_kernel(?:_\d+)?(?=\0)")
    return frozenset(match.decode() for match in pattern.findall(text))


class Reader:
    """A position in bytes of TVM's stream format; each read is checked against the end."""

    def __init__(self, data: bytes):
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise DamagedBinary("a module is cut short")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def number(self) -> int:
        """Return the next unsigned number of 8 bytes."""
        return int.from_bytes(self.take(8), "little")

    def numbers(self) -> tuple[int, ...]:
        """Return a counted sequence of numbers."""
        count = self.number()
        data = self.take(8 * count)
        return tuple(int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8))

    def string(self) -> bytes:
        """Return a counted sequence of bytes."""
        return self.take(self.number())

    def finish(self) -> None:
        """Raise `DamagedBinary` where bytes are left."""
        if self.position != len(self.data):
            raise DamagedBinary("a module is longer than it says")


def _table_names(reader: Reader) -> list[str]:
    """Read a table of kernels: per kernel its name, argument types and launch parameters."""
    names = []
    for _ in range(reader.number()):
        names.append(reader.string().decode("utf-8", "replace"))
        reader.string()
        reader.take(4 * reader.number())  # types of the arguments
        for _ in range(reader.number()):
            reader.string()  # thread axes in the order in which their extents are passed
        reader.take(4 * reader.number())  # how arguments are passed
    return names


def _string(data: bytes) -> bytes:
    return len(data).to_bytes(8, "little") + data


def _numbers(values: Sequence[int]) -> bytes:
    return b"".join(value.to_bytes(8, "little") for value in (len(values), *values))
