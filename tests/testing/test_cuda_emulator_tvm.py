"""What TVM emits runs in the emulator: reductions, pipelines, host code, symbolic dims."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx
from tvm.s_tir import dlight

from tvmpass.compile.cuda_source import emit_cuda
from tvmpass.compile.target import parse_target
from tvmpass.core.errors import UsageError
from tvmpass.testing.cuda_emulator import EmulationError, emulate

TARGET = parse_target("cuda:sm_80,sm_90", 1)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("float32")


def softmax_like(rows: int, columns: int, threads: int) -> s_tir.Schedule:
    """Divide each row by its sum, which the threads of a block make together."""
    a = te.placeholder((rows, columns), "float32", name="A")
    k = te.reduce_axis((0, columns), name="k")
    total = te.compute((rows,), lambda i: te.sum(a[i, k], axis=k), name="S")
    out = te.compute((rows, columns), lambda i, j: a[i, j] / total[i], name="T")
    schedule = s_tir.Schedule(te.create_prim_func([a, out]))
    s, t = schedule.get_sblock("S"), schedule.get_sblock("T")
    i, j = schedule.get_loops(t)
    _, inner = schedule.split(j, [None, threads])
    schedule.bind(i, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")
    schedule.compute_at(s, i)
    schedule.set_scope(s, 0, "shared")
    _, inner = schedule.split(schedule.get_loops(s)[-1], [None, threads])
    schedule.bind(inner, "threadIdx.x")
    return schedule


@pytest.mark.parametrize("threads", [32, 128, 20])
def test_reductions_across_threads(threads):
    source = emit_cuda(softmax_like(7, 260, threads).mod["main"], TARGET, "rows")
    x = normal(7, 260) + 3
    result = emulate(source, [x, np.zeros_like(x)])
    assert result.stable and result.masks[1].all() and not result.masks[0].any()
    np.testing.assert_allclose(result.arrays[1], x / x.sum(1, keepdims=True), rtol=2e-6)


def pipelined_product(m: int, n: int, k: int, tile: int = 32, depth: int = 16, each: int = 4):
    """A matrix product whose tiles come by asynchronous copies, one ahead."""
    a, b = te.placeholder((m, k), "float32", name="A"), te.placeholder((k, n), "float32", name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    schedule = s_tir.Schedule(te.create_prim_func([a, b, c]))
    block = schedule.get_sblock("C")
    i, j, r = schedule.get_loops(block)
    threads = tile // each
    bi, ti, ii = schedule.split(i, [None, threads, each])
    bj, tj, jj = schedule.split(j, [None, threads, each])
    ro, ri = schedule.split(r, [None, depth])
    schedule.reorder(bi, bj, ti, tj, ro, ri, ii, jj)
    for loop, axis in ((bi, "blockIdx.y"), (bj, "blockIdx.x"), (ti, "threadIdx.y"), (tj, "threadIdx.x")):
        schedule.bind(loop, axis)
    schedule.reverse_compute_at(schedule.cache_write(block, 0, "local"), tj)
    for operand in (0, 1):
        staged = schedule.cache_read(block, operand, "shared")
        schedule.compute_at(staged, ro)
        fused = schedule.fuse(*schedule.get_loops(staged)[-2:])
        _, ty, tx, lanes = schedule.split(fused, [None, threads, threads, 4])
        schedule.bind(ty, "threadIdx.y")
        schedule.bind(tx, "threadIdx.x")
        schedule.vectorize(lanes)
    schedule.annotate(ro, "software_pipeline_stage", [0, 0, 1])
    schedule.annotate(ro, "software_pipeline_order", [0, 1, 2])
    schedule.annotate(ro, "software_pipeline_async_stages", [0])
    schedule.decompose_reduction(block, ro)
    return emit_cuda(schedule.mod["main"], TARGET, "product")


def test_a_pipeline_of_asynchronous_copies():
    source = pipelined_product(64, 96, 48)
    assert "cp.async.cg" in source.source
    a, b = normal(64, 48), normal(48, 96)
    result = emulate(source, [a, b, np.full((64, 96), np.nan, "float32")])
    assert result.stable and result.blocks == (6, 6)
    np.testing.assert_allclose(result.arrays[2], a @ b, atol=2e-5)


def test_every_barrier_and_wait_of_the_pipeline_is_needed():
    source = pipelined_product(32, 32, 64)
    arrays = [normal(32, 64), normal(64, 32), np.zeros((32, 32), "float32")]
    parts = source.source.split("__syncthreads();")
    changed = []
    for number in range(1, len(parts)):
        pieces = ["__syncthreads();".join(parts[:number]), "__syncthreads();".join(parts[number:])]
        changed.append(";".join(pieces))
    changed += [source.source.replace(f"wait_group {n};", f"wait_group {n + 1};") for n in (0, 1)]
    assert len(changed) == 5
    for text in changed:
        with pytest.raises(EmulationError):
            emulate(replace(source, source=text), arrays, orders=1)


def two_kernels():
    """Row sums, then something of each element and its row's sum: two launches, a workspace."""
    n = tirx.Var("n", "int64")
    a = te.placeholder((n, 96), "float32", name="A")
    k = te.reduce_axis((0, 96), name="k")
    total = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="B")
    out = te.compute((n, 96), lambda i, j: total[i] + a[i, 95 - j], name="C")
    module = tvm.IRModule({"main": te.create_prim_func([a, out])})
    with TARGET:
        scheduled = dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())(module)
    return emit_cuda(scheduled["main"], TARGET, "two")


@pytest.mark.parametrize("rows", [1, 37])
def test_host_code_with_a_workspace_and_a_symbolic_dim(rows):
    source = two_kernels()
    assert len(source.kernels) == 2
    x = normal(rows, 96)
    result = emulate(source, [x, np.zeros_like(x)])
    np.testing.assert_allclose(result.arrays[1], x.sum(1, keepdims=True) + x[:, ::-1], atol=2e-5)


def test_only_the_last_kernel_is_sampled():
    x = normal(300, 96)
    result = emulate(two_kernels(), [x, np.zeros_like(x)], sample_blocks=3, orders=1)
    assert result.blocks == (1 + 3, 1 + 29)
    ((_, _, _), (mask, wanted, found)) = result.written([x, x.sum(1, keepdims=True) + x[:, ::-1]])
    assert mask.sum() == 2 * 1024 + 300 * 96 % 1024 or mask.sum() == 3 * 1024
    np.testing.assert_allclose(found[mask], wanted[mask], atol=2e-5)


def test_an_empty_array():
    x = normal(0, 96)
    assert emulate(two_kernels(), [x, x]).arrays[1].shape == (0, 96)


def test_wrong_arguments_are_refused():
    source = two_kernels()
    with pytest.raises(UsageError, match="takes 2 arguments, 1 were given"):
        emulate(source, [normal(3, 96)])
    with pytest.raises(UsageError, match="has dtype float64"):
        emulate(source, [normal(3, 96).astype("float64"), normal(3, 96)])
