"""The import tree in a library and the binaries in it, written and read."""

from __future__ import annotations

import struct

import pytest
import tvm
from tvm import s_tir, te

from tvmpass.compile.cuda_binary import (
    FATBIN_MAGIC,
    DamagedBinary,
    elf_symbols,
    fatbin_code_bytes,
    fatbin_kernels,
)
from tvmpass.compile.cuda_pack import (
    CudaModule,
    Module,
    add_cuda_modules,
    cuda_modules,
    join_tables,
    kernel_names,
    module_block,
    read_tree,
    write_tree,
)
from tvmpass.compile.cuda_source import emit_cuda
from tvmpass.compile.target import parse_target


def number(value):
    return struct.pack("<Q", value)


def string(text):
    return number(len(text)) + text


def table(*names):
    """A table as TVM writes it: two pointers, launched over one axis."""
    rows = [
        string(n) + string(n) + number(2) + b"\x03\x40\x01\x00" * 2 + number(1) + string(b"threadIdx.x")
        + number(2) + bytes(8)
        for n in names
    ]  # fmt: skip
    return number(len(names)) + b"".join(rows)


def elf(*functions):
    """A cubin with one section of code and a symbol table: ``(name, size)`` each."""
    names = b"\0" + b"".join(name + b"\0" for name, _ in functions)
    entries, offset = [bytes(24)], 1
    for name, size in functions:
        entries.append(struct.pack("<IBBHQQ", offset, 0x12, 0, 1, 0, size))
        offset += len(name) + 1
    symbols = b"".join(entries)
    at = 64 + 4 * 64
    head = b"\x7fELF\x02" + bytes(11) + struct.pack("<HHI", 2, 190, 1) + bytes(16)
    head += struct.pack("<QIHHHHHH", 64, 0, 64, 0, 0, 64, 4, 3)
    row = struct.Struct("<IIQQQQIIQQ").pack
    sections = [
        bytes(64),
        row(0, 1, 6, 0, at, 0, 0, 0, 4, 0),
        row(0, 2, 0, 0, at, len(symbols), 3, 1, 8, 24),
        row(0, 3, 0, 0, at + len(symbols), len(names), 0, 0, 1, 0),
    ]
    return head + b"".join(sections) + symbols + names


def fatbin(*entries):
    """A fatbin of ``(capability, code)`` entries."""
    body = b"".join(
        struct.pack("<HHIQ", 2, 0x101, 64, len(code))
        + bytes(12)
        + struct.pack("<I", capability)
        + bytes(32)
        + code
        for capability, code in entries
    )
    return struct.pack("<IHHQ", FATBIN_MAGIC, 1, 16, len(body)) + body


def test_tree_round_trip():
    tree = [Module("root", b"code", [1]), Module("_lib", None, [2]), Module("cuda", b"payload")]
    assert read_tree(write_tree(tree)) == tree


def test_cuda_modules_are_imports_of_the_library():
    block = write_tree([Module("root", b"code", [1]), Module("_lib", None)])
    modules = [CudaModule("cubin", table(b"k"), b"binary"), CudaModule("cubin", table(b"l", b"m"), b"")]
    tree = read_tree(add_cuda_modules(block, modules))
    assert [(m.kind, m.imports) for m in tree] == [
        ("root", [1]),
        ("_lib", [2, 3]),
        ("cuda", []),
        ("cuda", []),
    ]
    assert cuda_modules(add_cuda_modules(block, modules)) == modules
    assert modules[1].kernels == ("l", "m")


def test_a_block_without_a_mark_for_the_library_gets_one():
    tree = read_tree(add_cuda_modules(write_tree([Module("root", b"")]), []))
    assert [(m.kind, m.imports) for m in tree] == [("root", [1]), ("_lib", [])]


def test_tables_are_joined():
    assert join_tables([table(b"a"), table(b"b", b"c")]) == table(b"a", b"b", b"c")


def test_our_bytes_are_those_of_tvm():
    a = te.placeholder((64,), "float32", name="A")
    schedule = s_tir.Schedule(te.create_prim_func([a, te.compute((64,), lambda i: a[i] + 1.0, name="B")]))
    schedule.bind(schedule.get_loops(schedule.get_sblock("B"))[0], "threadIdx.x")
    target = parse_target("cuda:sm_80", 1)
    source = emit_cuda(schedule.mod["main"], target, "k")
    with target:
        made = tvm.tirx.build(
            tvm.IRModule({"k": schedule.mod["main"].with_attr("global_symbol", "k")}), target
        )
    (module,) = cuda_modules(module_block(made))
    assert module.table == source.table
    assert add_cuda_modules(write_tree([Module("_lib", None)]), [module]) == module_block(made)


@pytest.mark.parametrize("cut", [0, 4, 8, 20, 60, 100, -1])
def test_a_block_cut_short(cut):
    block = add_cuda_modules(
        write_tree([Module("root", b"code", [1]), Module("_lib", None)]),
        [CudaModule("cubin", table(b"k"), b"binary")],
    )
    with pytest.raises(DamagedBinary):
        cuda_modules(block[:cut])


def test_a_module_that_imports_what_is_not_there():
    with pytest.raises(DamagedBinary, match="not there"):
        read_tree(write_tree([Module("root", b"", [7])]))


def test_absurd_counts_take_no_memory():
    with pytest.raises(DamagedBinary):
        CudaModule.from_bytes(string(b"cubin") + number(1 << 60))


def test_kernels_and_code_of_a_fatbin():
    made = fatbin((80, elf((b"k", 128), (b"l", 64))), (90, elf((b"k", 256))), (90, b"ptx: no machine code"))
    assert fatbin_kernels(made) == {80: {"k", "l"}, 90: {"k"}}
    assert fatbin_code_bytes(made) == {"k": 384, "l": 64}


@pytest.mark.parametrize("cut", [0, 10, 30, 90, 400, -1])
def test_a_fatbin_cut_short(cut):
    with pytest.raises(DamagedBinary):
        fatbin_kernels(fatbin((80, elf((b"k", 128))))[:cut])


def test_no_elf_file():
    with pytest.raises(DamagedBinary, match="not a 64-bit ELF file"):
        list(elf_symbols(b"MZ" + bytes(100)))


def test_kernels_that_host_code_names():
    name = b"tvmpass_" + b"0123456789abcdef01234567"
    text = b"..\0" + name + b"_kernel\0" + name + b"_kernel_12\0" + name + b"\0" + name + b"_kernel_x"
    assert kernel_names(text) == {(name + b"_kernel").decode(), (name + b"_kernel_12").decode()}
