"""Small scheduled kernels for the tests of the cost model."""

import tvm
from tvm import s_tir, te, tirx

TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})


def schedule_of(*tensors) -> s_tir.Schedule:
    return s_tir.Schedule(te.create_prim_func(list(tensors)))


def unary(rows: int, columns: int, function=tirx.exp, vectorised: bool = True):
    """``function`` of a matrix, row by row, eight lanes at a time or one."""
    a = te.placeholder((rows, columns), name="a")
    schedule = schedule_of(a, te.compute((rows, columns), lambda i, j: function(a[i, j]), name="b"))
    if vectorised:
        _, inner = schedule.split(schedule.get_loops(schedule.get_sblock("b"))[1], [None, 8])
        schedule.vectorize(inner)
    return schedule.mod["main"]


def matmul(m: int, n: int, k: int, tile: int = 1):
    """A matrix product with ``tile`` times 8 accumulators."""
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    axis = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="c")
    schedule = schedule_of(a, b, c)
    block = schedule.get_sblock("c")
    i, j, r = schedule.get_loops(block)
    i0, i1 = schedule.split(i, [None, tile])
    j0, j1 = schedule.split(j, [None, 8])
    schedule.reorder(i0, j0, r, i1, j1)
    schedule.unroll(i1)
    schedule.vectorize(j1)
    schedule.decompose_reduction(block, r)
    return schedule.mod["main"]


def broadcast(rows: int, columns: int, inlined: bool):
    """exp of a row added to a matrix; inlined, exp is evaluated per element."""
    a, row = te.placeholder((rows, columns), name="a"), te.placeholder((columns,), name="row")
    e = te.compute((columns,), lambda j: tirx.exp(row[j]), name="e")
    schedule = schedule_of(a, row, te.compute((rows, columns), lambda i, j: a[i, j] + e[j], name="c"))
    if inlined:
        schedule.compute_inline("e")
    return schedule.mod["main"]
