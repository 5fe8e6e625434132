"""Tensor-core instructions on 16 x 16 fragments, as TVM tensor intrinsics.

TVM registers its own when `tvm.s_tir.tensor_intrin` is imported, which takes
most of a minute and leaves out bfloat16 and a transposed left operand.  Each is made here
when first asked for, from the text of its two functions: what it computes, and
the call that does it.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import s_tir
from tvm.script import tirx as T

SIDE = 16
DTYPES = ("float16", "bfloat16")

_BUFFER = 'T.match_buffer({name}, (16, 16), "{dtype}", align=64, offset_factor=16, scope="{scope}"{strides})'
_INDEX = "{0}.elem_offset // {1} // 16 * ({1} // 16) + {0}.elem_offset % {1} // 16"
_TEXT = """
@T.prim_func(s_tir=True)
def {name}({parameters}) -> None:
{buffers}
    with T.sblock("root"):
        T.reads({reads})
        T.writes({writes})
{body}
"""


@dataclass(frozen=True)
class _Operand:
    name: str
    dtype: str
    scope: str


def fill(accumulator: str) -> str:
    """Return the name of the intrinsic that sets a fragment of sums to zero."""
    sums = _Operand("C", accumulator, "wmma.accumulator")
    call = f"T.tvm_fill_fragment(C.data, 16, 16, 16, {_index('C')}, T.float32(0), dtype='void')"
    zero = f'T.Cast("{accumulator}", T.float32(0))' if accumulator != "float32" else "T.float32(0)"
    return _registered(f"fill.{accumulator}", [sums], "", "C", f"C[vi, vj] = {zero}", call)


def load(dtype: str, side: str, row_major: bool, scope: str = "shared.dyn") -> str:
    """Return the name of the intrinsic that loads a fragment of operand ``side``, a or b."""
    source, made = _Operand("A", dtype, scope), _Operand("C", dtype, f"wmma.matrix_{side}")
    layout = "row_major" if row_major else "col_major"
    call = (
        f"T.tvm_load_matrix_sync(C.data, 16, 16, 16, {_index('C')}, "
        f'A.access_ptr("r"), A_rows, "{layout}", dtype="void")'
    )
    name = f"load_{side}.{dtype}.{layout}.{scope}"
    return _registered(name, [source, made], "A", "C", "C[vi, vj] = A[vi, vj]", call)


def store(accumulator: str, scope: str = "shared.dyn") -> str:
    """Return the name of the intrinsic that stores a fragment of sums."""
    sums, made = _Operand("A", accumulator, "wmma.accumulator"), _Operand("C", accumulator, scope)
    call = (
        f"T.tvm_store_matrix_sync(A.data, 16, 16, 16, {_index('A')}, "
        f'C.access_ptr("w"), C_rows, "row_major", dtype="void")'
    )
    return _registered(f"store.{accumulator}.{scope}", [sums, made], "A", "C", "C[vi, vj] = A[vi, vj]", call)


def multiply(dtype: str, accumulator: str, a_row_major: bool, b_row_major: bool) -> str:
    """Return the name of the intrinsic that adds the product of two fragments to a third."""
    a, b = _Operand("A", dtype, "wmma.matrix_a"), _Operand("B", dtype, "wmma.matrix_b")
    sums = _Operand("C", accumulator, "wmma.accumulator")
    left, right = ("A[vi, vk]" if a_row_major else "A[vk, vi]", "B[vk, vj]" if b_row_major else "B[vj, vk]")
    if dtype != accumulator:
        left, right = f'T.Cast("{accumulator}", {left})', f'T.Cast("{accumulator}", {right})'
    indices = ", ".join(f"{name}.data, {_index(name)}" for name in "CABC")
    call = f"T.tvm_mma_sync({indices}, dtype='void')"
    value = f"C[vi, vj] = C[vi, vj] + {left} * {right}"
    name = f"multiply.{dtype}.{accumulator}.{'rc'[not a_row_major]}{'rc'[not b_row_major]}"
    return _registered(name, [a, b, sums], "CAB", "C", value, call, "k")


def _index(name: str) -> str:
    return _INDEX.format(name, name + "_rows")


def _registered(
    name: str, operands: list[_Operand], reads: str, writes: str, value: str, call: str, depth: str = ""
) -> str:
    full = f"tvmpass.wmma.{name}"
    if s_tir.TensorIntrin.get(full, allow_missing=True) is None:
        loops = "i, j, k" if depth else "i, j"
        grid, kinds = ("16, 16, 16", "SSR") if depth else ("16, 16", "SS")
        iterators = loops.replace("i", "vi").replace("j", "vj").replace("k", "vk")
        body = (
            f"        for {loops} in T.grid({grid}):\n"
            f'            with T.sblock(""):\n'
            f'                {iterators} = T.axis.remap("{kinds}", [{loops}])\n'
            f"                {value}\n"
        )
        description = _function("description", operands, reads, writes, body, strided=False)
        calls = _function("calls", operands, reads, writes, f"        T.evaluate({call})\n", strided=True)
        s_tir.TensorIntrin.register(full, description, calls)
    return full


def _function(name: str, operands: list[_Operand], reads: str, writes: str, body: str, strided: bool):
    buffers = []
    for operand in operands:
        strides = ""
        if strided:
            buffers += [f"    {operand.name}_{part} = T.int32()" for part in ("rows", "columns")]
            strides = f", strides=[{operand.name}_rows, {operand.name}_columns]"
        declared = _BUFFER.format(
            name=operand.name.lower(), dtype=operand.dtype, scope=operand.scope, strides=strides
        )
        buffers.append(f"    {operand.name} = {declared}")
    text = _TEXT.format(
        name=name,
        parameters=", ".join(f"{operand.name.lower()}: T.handle" for operand in operands),
        buffers="\n".join(buffers),
        reads=", ".join(f"{n}[0:16, 0:16]" for n in reads),
        writes=", ".join(f"{n}[0:16, 0:16]" for n in writes),
        body=body,
    )
    return tvm.script.from_source(text, extra_vars={"T": T})
