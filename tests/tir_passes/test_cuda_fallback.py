"""Every PrimFunc becomes a CUDA kernel, whatever it is made of."""

from __future__ import annotations

import pytest
import tvm
import tvm_ffi
from tvm import s_tir, te, tirx
from tvm.script import tirx as T

from schedules.cuda.launch import has_too_large_a_grid, is_wholly_bound, launches_itself
from tests.tir_passes.cases import KERNELS, OPTIONS, SYMBOLIC, function, mean, tensor
from tir_passes.cuda_fallback import cuda_fallback, lowers
from tir_passes.recipes import finish, recipes
from tvmpass.compile.target import parse_target
from tvmpass.core.kernels import classify
from tvmpass.core.nest import walk_blocks

TARGET = parse_target("cuda:sm_80,sm_90", 1)
EVERY = {**KERNELS, **SYMBOLIC}


def bound_tags(func: tirx.PrimFunc) -> list[str]:
    """Return the thread tags that loops of ``func`` are bound to, in visiting order."""
    tags: list[str] = []

    def note(loop) -> None:
        if loop.thread_binding is not None:
            tags.append(str(loop.thread_binding.thread_tag))

    tvm_ffi.structural_walk(func.body, [(tirx.For, note)], order="pre")
    return tags


@pytest.mark.parametrize("name", [name for name in EVERY if "half" not in name])
def test_every_kernel_is_launched(name):
    func = EVERY[name][0]()
    made, note = cuda_fallback(func, TARGET)
    # dlight leaves the last step of a sum over everything to the host.
    assert note.startswith("dlight" if name != "mean-all" else "dlight Fallback")
    assert launches_itself(made) and is_wholly_bound(made) and lowers(made, TARGET)


@T.prim_func(s_tir=True)
def scatter(x: T.Buffer((300,), "float32"), at: T.Buffer((7,), "int32"), y: T.Buffer((300,), "float32")):
    with T.sblock("scatter"):
        for i in T.parallel(300):
            y[i] = x[i]
        for j in range(7):
            y[at[j]] = T.float32(1)


def test_parallel_loops_get_threads_and_others_one():
    made, note = cuda_fallback(scatter.with_attr("tvmpass.group", "kept"), TARGET)
    assert note == "1 of 2 loops in one thread"
    assert bound_tags(made) == ["blockIdx.x", "threadIdx.x"] * 2
    assert str(made.attrs["tvmpass.group"]) == "kept"
    assert lowers(made, TARGET)


def test_threads_of_others_are_left_alone():
    first, _ = cuda_fallback(scatter, TARGET)
    again, note = cuda_fallback(first, TARGET)
    assert note == "TVM's own threads"
    tvm.ir.assert_structural_equal(again, first)


@T.prim_func(s_tir=True)
def partly_bound(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    doubled = T.sblock_alloc_buffer((64,))
    for i in range(64):
        with T.sblock("doubled"):
            v = T.axis.spatial(64, i)
            doubled[v] = x[v] * T.float32(2)
    with T.sblock("launched"):
        T.reads()
        T.writes()
        with T.launch_thread("blockIdx.x", 1):
            thread = T.launch_thread("threadIdx.x", 64)
            y[thread] = doubled[63 - thread]


def test_what_threads_of_others_leave_out_is_launched_too():
    assert launches_itself(partly_bound) and not is_wholly_bound(partly_bound)
    assert recipes(classify(partly_bound), TARGET, OPTIONS) == []
    made, note = cuda_fallback(partly_bound, TARGET)
    assert note == "dlight Fallback" and is_wholly_bound(made)


def test_nothing_to_compute_launches_nothing():
    x = tensor("x", 0, 5)
    made, note = cuda_fallback(function(x, te.compute((0, 5), lambda i, j: x[i, j] + 1.0, name="y")), TARGET)
    assert note == "no elements to compute" and not launches_itself(made) and lowers(made, TARGET)


def test_a_sum_of_nothing_is_started():
    x = tensor("x", 5, 0)
    k = te.reduce_axis((0, 0), "k")
    made, _ = cuda_fallback(
        function(x, te.compute((5,), lambda i: te.sum(x[i, k], axis=k), name="y")), TARGET
    )
    assert "y_init" in made.script()


@pytest.mark.parametrize("shared", [False, True])
def test_only_reductions_within_a_thread_are_started_before_their_loops(shared):
    schedule = s_tir.Schedule(mean((4, 64), (1,)))
    block = schedule.get_sblock("x_red")
    row, step = schedule.get_loops(block)[0], schedule.get_loops(block)[-1]
    schedule.bind(row, "blockIdx.x")
    if shared:
        schedule.bind(step, "threadIdx.x")
    made = finish(schedule.mod["main"].with_attr("tvmpass.group", "kept"), TARGET, OPTIONS)
    assert [block.init is not None for block in walk_blocks(made)].count(True) == int(shared)
    assert str(made.attrs["tvmpass.group"]) == "kept"


def test_no_form_is_taken_that_is_too_large_for_a_launch():
    a, b = (te.placeholder((70000, 4, 4), name=n) for n in "ab")
    k = te.reduce_axis((0, 4), "k")
    out = te.compute((70000, 4, 4), lambda n, i, j: te.sum(a[n, i, k] * b[n, k, j], axis=k), name="c")
    made, note = cuda_fallback(te.create_prim_func([a, b, out]), TARGET)
    assert note != "dlight Matmul", "it puts the batch on blockIdx.y"
    assert not has_too_large_a_grid(made)
