"""Small scheduled CUDA kernels for the tests of the cost model, scheduled by hand."""

from __future__ import annotations

from tvm import s_tir, te, tirx

from tvmpass.compile.target import parse_target

TARGET = parse_target("cuda:sm_90", 1)


def _schedule(*tensors) -> s_tir.Schedule:
    return s_tir.Schedule(te.create_prim_func(list(tensors)))


def unary(rows: int, columns: int, function=tirx.exp, lanes: int = 1, threads: int = 256):
    """``function`` of a matrix; a thread takes ``lanes`` neighbours with one access."""
    a = te.placeholder((rows, columns), name="a")
    schedule = _schedule(a, te.compute((rows, columns), lambda i, j: function(a[i, j]), name="b"))
    bind(schedule, "b", threads, lanes)
    return schedule.mod["main"]


def bind(schedule: s_tir.Schedule, name: str, threads: int = 256, lanes: int = 1) -> None:
    """Give each thread of flat blocks ``lanes`` results of a block of TIR."""
    fused = schedule.fuse(*schedule.get_loops(schedule.get_sblock(name)))
    block, thread, lane = schedule.split(fused, [None, threads, lanes])
    schedule.bind(block, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    schedule.vectorize(lane)


def transpose(n: int):
    """The transpose of a square matrix: threads side by side read a column."""
    a = te.placeholder((n, n), name="a")
    schedule = _schedule(a, te.compute((n, n), lambda i, j: a[j, i], name="b"))
    bind(schedule, "b")
    return schedule.mod["main"]


def flat_copy(n: int):
    """A copy of a square matrix whose loops see it as one row."""
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True, private=True)
    def copy(a: T.Buffer((n, n), "float32"), b: T.Buffer((n, n), "float32")):
        for block in T.thread_binding(n * n // 256, thread="blockIdx.x"):
            for tx in T.thread_binding(256, thread="threadIdx.x"):
                b[0, block * 256 + tx] = a[0, block * 256 + tx]

    return copy


def windowed(n: int, width: int):
    """Weighted sums over a window, whose operands are copied to registers first."""
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True, private=True)
    def window(
        a: T.Buffer((n + width,), "float32"), w: T.Buffer((width,), "float32"), b: T.Buffer((n,), "float32")
    ):
        part = T.alloc_buffer((1,), scope="local")
        value = T.alloc_buffer((2,), scope="local")
        for block in T.thread_binding(n // 64, thread="blockIdx.x"):
            for tx in T.thread_binding(64, thread="threadIdx.x"):
                part[0] = T.float32(0)
                for step in T.unroll(width):
                    value[0] = a[block * 64 + tx + step]
                    value[1] = w[step]
                    part[0] = part[0] + value[0] * value[1]
                b[block * 64 + tx] = part[0]

    return window


def chain(n: int, fused: bool):
    """exp(2 * x + 1), in one launch or three."""
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="b")
    c = te.compute((n,), lambda i: b[i] + 1.0, name="c")
    schedule = _schedule(a, te.compute((n,), lambda i: tirx.exp(c[i]), name="d"))
    for name in ("b", "c"):
        if fused:
            schedule.compute_inline(name)
        else:
            bind(schedule, name)
    bind(schedule, "d")
    return schedule.mod["main"]


def broadcast(rows: int, columns: int, inlined: bool, costly: int = 8):
    """Nested exps of a row, added to a matrix; inlined, they are evaluated per element."""
    a, row = te.placeholder((rows, columns), name="a"), te.placeholder((columns,), name="row")

    def value(j):
        made = row[j]
        for _ in range(costly):
            made = tirx.exp(made)
        return made

    e = te.compute((columns,), value, name="e")
    schedule = _schedule(a, row, te.compute((rows, columns), lambda i, j: a[i, j] + e[j], name="c"))
    if inlined:
        schedule.compute_inline("e")
    else:
        bind(schedule, "e")
    bind(schedule, "c")
    return schedule.mod["main"]


def gather(n: int, table: int):
    """``table[index[i]]``."""
    index, values = te.placeholder((n,), "int32", name="index"), te.placeholder((table,), name="values")
    schedule = _schedule(index, values, te.compute((n,), lambda i: values[index[i]], name="b"))
    bind(schedule, "b")
    return schedule.mod["main"]


def symbolic(columns: int):
    """exp of a matrix with a run-time number of rows ``n``."""
    n = te.var("n", "int64")
    a = te.placeholder((n, columns), name="a")
    schedule = _schedule(a, te.compute((n, columns), lambda i, j: tirx.exp(a[i, j]), name="b"))
    rows, inner = schedule.get_loops(schedule.get_sblock("b"))
    schedule.bind(rows, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")
    return schedule.mod["main"]


def row_sum(rows: int, columns: int, threads: int):
    """The sums of rows, ``threads`` to a row."""
    a = te.placeholder((rows, columns), name="a")
    axis = te.reduce_axis((0, columns), name="k")
    schedule = _schedule(a, te.compute((rows,), lambda i: te.sum(a[i, axis], axis=axis), name="b"))
    i, k = schedule.get_loops(schedule.get_sblock("b"))
    _, inner = schedule.split(k, [None, threads])
    schedule.bind(i, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")
    return schedule.mod["main"]


def product(n: int, staged: bool, stages: int = 1, pad: int = 0):
    """A square matrix product in 64 by 64 tiles of 16 by 16 threads, operands in shared memory or not."""
    a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n), name="b")
    axis = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="c")
    schedule = _schedule(a, b, c)
    block = schedule.get_sblock("c")
    made = schedule.cache_write(block, 0, "local")
    i, j, k = schedule.get_loops(block)
    i0, i1, i2 = schedule.split(i, [None, 16, 4])
    j0, j1, j2 = schedule.split(j, [None, 16, 4])
    k0, k1 = schedule.split(k, [None, 16])
    schedule.reorder(i0, j0, i1, j1, k0, k1, i2, j2)
    for loop, tag in ((i0, "blockIdx.y"), (j0, "blockIdx.x"), (i1, "threadIdx.y"), (j1, "threadIdx.x")):
        schedule.bind(loop, tag)
    schedule.reverse_compute_at(made, j1)
    for number in range(2 if staged else 0):
        copy = schedule.cache_read(block, number, "shared")
        schedule.compute_at(copy, k0)
        y, x = schedule.get_loops(copy)[-2:]
        _, thread_y, thread_x = schedule.split(schedule.fuse(y, x), [None, 16, 16])
        schedule.bind(thread_y, "threadIdx.y")
        schedule.bind(thread_x, "threadIdx.x")
        if pad:
            schedule.storage_align(copy, 0, axis=-2, factor=32, offset=pad)
    schedule.decompose_reduction(block, k0)
    if stages > 1:
        schedule.annotate(k0, "software_pipeline_stage", [0, 0, stages - 1])
        schedule.annotate(k0, "software_pipeline_order", [0, 1, 2])
        schedule.annotate(k0, "software_pipeline_async_stages", [0])
    return schedule.mod["main"]
