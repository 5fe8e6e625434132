"""Read a TIR function as stages: one loop nest around one block each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.tirx.buffer import is_buffer_var

SPATIAL, REDUCE = 0, 2
IntImm = tirx.IntImm


def as_int(expr) -> int | None:
    """Return a constant extent as an int, None where it is symbolic."""
    if isinstance(expr, int):
        return expr
    return int(expr) if isinstance(expr, IntImm) else None


def variables(expr) -> set:
    """Return the scalar variables that an expression reads (buffers left out)."""
    found: set = set()
    tvm_ffi.structural_walk(expr, [(tirx.Var, found.add)], order="post")
    return {var for var in found if not is_buffer_var(var)}


def loads(node) -> list:
    """Return every tensor load below ``node``, in visiting order."""
    found: list = []
    tvm_ffi.structural_walk(node, [(tvm.ir.TensorLoad, found.append)], order="post")
    return found


def moving_index(load):
    """Return the index of the innermost dimension longer than one, None for a scalar."""
    pairs = [(i, d) for i, d in zip(load.indices, load.source.shape) if as_int(d) != 1]
    return pairs[-1][0] if pairs else None


def substitute(node, mapping: Mapping[Any, Any]):
    """Replace variables (scalars or buffers) by expressions, everywhere below ``node``."""
    return tvm_ffi.structural_map(node, [(tirx.Var, lambda var: mapping.get(var, var))], order="post")


def regions(accesses: Iterable[tuple[Any, Iterable[Any]]]) -> list:
    """Return one region per buffer from (buffer, indices) pairs.

    A dimension that is always indexed by the same expression is a point there,
    any other is taken whole.
    """
    seen: dict[Any, list] = {}
    for buffer, indices in accesses:
        indices = list(indices)
        known = seen.setdefault(buffer, indices)
        if known is not indices:
            seen[buffer] = [
                a if a is not None and tvm_ffi.structural_equal(a, b) else None
                for a, b in zip(known, indices)
            ]
    return [tirx.BufferRegion(buffer, _ranges(buffer, indices)) for buffer, indices in seen.items()]


def _ranges(buffer, indices) -> list:
    return [
        tvm.ir.Range(tirx.const(0, str(dim.ty.dtype)), dim)
        if index is None
        else tvm.ir.Range.from_min_extent(index, tirx.const(1, index.ty.dtype))
        for index, dim in zip(indices, buffer.shape)
    ]


@dataclass(frozen=True)
class Stage:
    """One block with the loops right around it; loops bind its iterators one to one."""

    block: Any
    loops: tuple[Any, ...]

    @property
    def name(self) -> str:
        return self.block.name_hint

    @property
    def iters(self) -> tuple[Any, ...]:
        return tuple(self.block.iter_vars)

    @property
    def spatial(self) -> tuple[Any, ...]:
        return tuple(iv for iv in self.block.iter_vars if int(iv.iter_type) != REDUCE)

    @property
    def reduce(self) -> tuple[Any, ...]:
        return tuple(iv for iv in self.block.iter_vars if int(iv.iter_type) == REDUCE)

    @property
    def store(self):
        """The single store of the block, None where its body is anything else."""
        body = self.block.body
        return body if isinstance(body, tirx.BufferStore) else None


def extent(iter_var) -> int | None:
    """Return an iterator's extent, None where symbolic."""
    return as_int(iter_var.dom.extent)


def root_block(func):
    """Return the root block of a function, None where it has none."""
    body = func.body
    if isinstance(body, s_tir.SBlockRealize) and body.block.name_hint == "root":
        return body.block
    return None


def stages(func) -> list[Stage] | None:
    """Return the stages in program order, None where the function is not of that form.

    The form: a root block over a sequence of perfect loop nests, each around
    exactly one block whose iterators are the loop variables, starting at zero.
    """
    root = root_block(func)
    if root is None:
        return None
    body = root.body
    parts = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    found = []
    for part in parts:
        stage = _stage(part)
        if stage is None:
            return None
        found.append(stage)
    return found


def _stage(node) -> Stage | None:
    loops = []
    while isinstance(node, tirx.For):
        if as_int(node.min) != 0 or int(node.kind) != 0:
            return None
        loops.append(node)
        node = node.body
    if not isinstance(node, s_tir.SBlockRealize) or as_int(node.predicate) == 0:
        return None
    bound = list(node.iter_values)
    # A block without iterators may sit below a loop of extent 1 that TVM adds.
    names = {loop.loop_var for loop in loops}
    for value in bound:
        if not isinstance(value, tirx.Var):
            if as_int(value) == 0:
                continue
            return None
        if value not in names:
            return None
        names.discard(value)
    if any(as_int(loop.extent) != 1 for loop in loops if loop.loop_var in names):
        return None
    return Stage(node.block, tuple(loops))


def walk_blocks(func) -> Iterator[Any]:
    """Yield every block of a function but the root."""
    found: list = []
    tvm_ffi.structural_walk(func.body, [(s_tir.SBlock, found.append)], order="pre")
    return (block for block in found if block.name_hint != "root")
