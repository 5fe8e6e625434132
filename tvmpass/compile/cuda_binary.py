"""Read what is in fatbins and in ELF files: architectures, kernels, symbols.

Only the outer structure is read, every offset is checked: the files may be cut
short or made by others.  No CUDA tool and no driver is needed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

FATBIN_MAGIC = 0xBA55ED50
_CUBIN = 2
_ELF_MAGIC = b"\x7fELF"
_SYMBOL_TABLES = (2, 11)
"""Section types of symbol tables: SHT_SYMTAB and SHT_DYNSYM."""
_NO_BITS = 8
"""The type of sections that take no room in the file (SHT_NOBITS)."""
_FUNCTION = 2


class DamagedBinary(ValueError):
    """A file's structure points outside of it, or is none that is known."""


@dataclass(frozen=True)
class Symbol:
    """A defined symbol: its name, whether it is a function, and where its bytes lie."""

    name: str
    function: bool
    offset: int
    size: int


def fatbin_kernels(fatbin: bytes) -> dict[int, frozenset[str]]:
    """Return the functions in a fatbin's machine code by compute capability: 80, 90."""
    found: dict[int, frozenset[str]] = {}
    for capability, symbol in _fatbin_functions(fatbin):
        found[capability] = found.get(capability, frozenset()) | {symbol.name}
    return found


def fatbin_code_bytes(fatbin: bytes) -> dict[str, int]:
    """Return the bytes of each function's machine code, all architectures together."""
    found: dict[str, int] = {}
    for _, symbol in _fatbin_functions(fatbin):
        found[symbol.name] = found.get(symbol.name, 0) + symbol.size
    return found


def _fatbin_functions(fatbin: bytes) -> Iterator[tuple[int, Symbol]]:
    for kind, capability, code in _fatbin_entries(fatbin):
        if kind == _CUBIN and code[:4] == _ELF_MAGIC:
            yield from ((capability, symbol) for symbol in elf_symbols(code) if symbol.function)


def _fatbin_entries(fatbin: bytes) -> Iterator[tuple[int, int, bytes]]:
    magic, _, header, size = _unpack("<IHHQ", fatbin, 0)
    if magic != FATBIN_MAGIC:
        raise DamagedBinary("not a fatbin")
    position, end = header, header + size
    if end > len(fatbin):
        raise DamagedBinary("the fatbin is cut short")
    while position < end:
        kind, _, header, size = _unpack("<HHIQ", fatbin, position)
        (capability,) = _unpack("<I", fatbin, position + 28)
        if header < 32 or position + header + size > end:
            raise DamagedBinary("the fatbin is cut short")
        yield kind, capability, fatbin[position + header : position + header + size]
        position += header + size


def elf_symbols(data) -> Iterator[Symbol]:
    """Yield the defined symbols of a 64-bit ELF file (a cubin, a shared library).

    ``offset`` counts from the start of ``data``, which may be bytes or a memory map.
    """
    if bytes(data[:5]) != _ELF_MAGIC + b"\x02":
        raise DamagedBinary("not a 64-bit ELF file")
    (table,) = _unpack("<Q", data, 40)
    (kind,) = _unpack("<H", data, 16)
    entry, count = _unpack("<HH", data, 58)
    if entry < 64:
        raise DamagedBinary("the ELF file has no section table")
    sections = [_section(data, table + entry * index) for index in range(count)]
    for section in sections:
        if section.kind not in _SYMBOL_TABLES:
            continue
        if section.link >= len(sections) or section.entry < 24:
            raise DamagedBinary("a symbol table has no names")
        names = sections[section.link]
        for position in range(section.offset, section.offset + section.size - 23, section.entry):
            name, info, _, home, value, size = _unpack("<IBBHQQ", data, position)
            if not 0 < home < len(sections):
                continue  # not defined in this file
            base = sections[home].address if kind != 1 else 0  # 1: values count from the section
            offset = sections[home].offset + value - base
            yield Symbol(_text(data, names, name), info & 15 == _FUNCTION, offset, size)


@dataclass(frozen=True)
class _Section:
    kind: int
    address: int
    offset: int
    size: int
    link: int
    entry: int


def _section(data, position: int) -> _Section:
    _, kind, _, address, offset, size, link, _, _, entry = _unpack("<IIQQQQIIQQ", data, position)
    if kind != _NO_BITS and offset + size > len(data):
        raise DamagedBinary("a section lies outside of the file")
    return _Section(kind, address, offset, size, link, entry)


def _text(data, names: _Section, offset: int) -> str:
    start = names.offset + offset
    end = data.find(b"\0", start, names.offset + names.size)
    if offset >= names.size or end < 0:
        raise DamagedBinary("a symbol has no name")
    return bytes(data[start:end]).decode("utf-8", "replace")


def _unpack(form: str, data, position: int) -> tuple[int, ...]:
    try:
        return struct.unpack_from(form, data, position)
    except struct.error:
        raise DamagedBinary("the file is cut short") from None
