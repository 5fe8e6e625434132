"""CUDA text of scheduled kernels, and what is read off their lowered TIR."""

from __future__ import annotations

import math
import re

import pytest
import tvm
from tvm import s_tir, te, tirx
from tvm.script import tirx as T

from tvmpass.compile.cuda_pack import CudaModule
from tvmpass.compile.cuda_source import Parameter, emit_cuda, evaluate
from tvmpass.compile.target import parse_target
from tvmpass.core.errors import TvmpassError

AMPERE = parse_target("cuda:sm_80,sm_90", 1)
TURING = parse_target("cuda:sm_75", 1)


def elementwise(body, shape=(1000,), dtype="float32", threads=128):
    """A kernel that applies ``body`` to each element, ``threads`` of them a block."""
    a = te.placeholder(shape, dtype, name="A")
    b = te.compute(shape, lambda *i: body(a[i]), name="B")
    schedule = s_tir.Schedule(te.create_prim_func([a, b]))
    loop = schedule.fuse(*schedule.get_loops(schedule.get_sblock("B")))
    block, thread = schedule.split(loop, [None, threads])
    schedule.bind(block, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    return schedule.mod["main"]


def two_stages(n, scope="global"):
    """A kernel whose row maxima go to a buffer of ``scope`` that a second stage reads."""
    a = te.placeholder((n, 64), "float32", name="A")
    k = te.reduce_axis((0, 64), "k")
    s = te.compute((n,), lambda i: te.max(a[i, k], axis=k), name="S")
    b = te.compute((n, 64), lambda i, j: a[i, j] - s[i], name="B")
    schedule = s_tir.Schedule(te.create_prim_func([a, b]))
    first, second = schedule.get_sblock("S"), schedule.get_sblock("B")
    if scope == "global":
        block, thread = schedule.split(schedule.get_loops(first)[0], [None, 32])
        schedule.bind(block, "blockIdx.x")
        schedule.bind(thread, "threadIdx.x")
        row, column = schedule.get_loops(second)
        schedule.bind(row, "blockIdx.x")
        schedule.bind(column, "threadIdx.x")
    else:
        row, column = schedule.get_loops(second)
        schedule.bind(row, "blockIdx.x")
        schedule.bind(column, "threadIdx.x")
        schedule.compute_at(first, row)
        schedule.set_scope(first, 0, scope)
        schedule.bind(schedule.get_loops(first)[-1], "threadIdx.x")
    return schedule.mod["main"]


def test_launch_and_parameters():
    source = emit_cuda(elementwise(lambda x: x + 1.5), AMPERE, "k")
    (kernel,) = source.kernels
    assert kernel.name == "k_kernel" and f'extern "C" __global__ void __launch_bounds__(128) {kernel.name}('
    assert kernel.grid == (8, 1, 1) and kernel.block == (128, 1, 1) and kernel.threads == 128
    assert kernel.parameters == (Parameter("A_ptr", "float32", True), Parameter("B_ptr", "float32", True))
    assert kernel.static_shared_bytes == kernel.dynamic_shared_bytes == 0
    assert "void __launch_bounds__(128) k_kernel(float* __restrict__ A_ptr" in source.source


def test_symbolic_dims_are_scalar_parameters():
    n = tirx.Var("n", "int64")
    source = emit_cuda(two_stages(n), AMPERE, "k")
    first, second = source.kernels
    assert [first.name, second.name] == ["k_kernel", "k_kernel_1"]
    assert Parameter("n", "int64", False) in first.parameters
    assert first.grid_for({"n": 33, "cse_v1": 33 * 64}) == (2, 1, 1)
    values = {p.name: 33 for p in second.parameters if not p.pointer}
    assert second.grid_for(values) == (33, 1, 1)


def test_workspace_between_kernels_is_the_hosts():
    source = emit_cuda(two_stages(40), AMPERE, "k")
    assert len(source.kernels) == 2
    text = source.entry.script()
    assert "S = T.alloc_buffer((40,)" in text
    assert text.count("call_ffi_kernel") == 2


@pytest.mark.parametrize(("scope", "static", "dynamic"), [("shared", 4, 0), ("shared.dyn", 0, 4)])
def test_shared_memory_comes_from_the_lowered_function(scope, static, dynamic):
    (kernel,) = emit_cuda(two_stages(40, scope), AMPERE, "k").kernels
    assert kernel.static_shared_bytes >= static and kernel.dynamic_shared_bytes == dynamic
    assert (kernel.static_shared_bytes > 0) == (static > 0) or scope == "shared.dyn"


@pytest.mark.parametrize(("dtype", "word"), [("float16", "half*"), ("bfloat16", "nv_bfloat16*")])
def test_half_precision(dtype, word):
    source = emit_cuda(elementwise(lambda x: x * x + x, dtype=dtype), AMPERE, "k")
    assert source.kernels[0].parameters[0] == Parameter("A_ptr", dtype, True)
    assert f"k_kernel({word} __restrict__ A_ptr" in source.source


def staged_copy():
    """A product over shared tiles whose copies are annotated to be asynchronous."""
    a = te.placeholder((64, 64), "float32", name="A")
    k = te.reduce_axis((0, 64), "k")
    b = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * a[k, j], axis=k), name="B")
    schedule = s_tir.Schedule(te.create_prim_func([a, b]))
    block = schedule.get_sblock("B")
    i, j, k = schedule.get_loops(block)
    ko, ki = schedule.split(k, [None, 16])
    schedule.bind(i, "blockIdx.x")
    schedule.reorder(i, j, ko, ki)
    schedule.bind(j, "threadIdx.x")
    tile = schedule.cache_read(block, 0, "shared")
    schedule.compute_at(tile, ko)
    schedule.bind(schedule.get_loops(tile)[-1], "threadIdx.x")
    schedule.annotate(ko, "software_pipeline_stage", [0, 1])
    schedule.annotate(ko, "software_pipeline_order", [0, 1])
    schedule.annotate(ko, "software_pipeline_async_stages", [0])
    return schedule.mod["main"]


def test_asynchronous_copies_from_ampere_on():
    function = staged_copy()
    assert "cp.async.c" in emit_cuda(function, AMPERE, "k").source
    assert "cp.async" not in emit_cuda(function, TURING, "k").source


def test_floats_stay_as_written():
    @T.prim_func(s_tir=True)
    def function(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
        for i in T.thread_binding(128, "threadIdx.x"):
            with T.sblock("B"):
                v = T.axis.spatial(128, i)
                B[v] = (A[v] + T.float32(3.0) - T.float32(3.0)) + (A[v] - A[v])

    source = emit_cuda(function, AMPERE, "k").source
    assert source.count("3.000000e+00") == 2
    line = next(line for line in source.splitlines() if "B_ptr[" in line)
    assert line.count("A_ptr[") == 3


def test_the_table_names_the_kernels():
    source = emit_cuda(two_stages(40), AMPERE, "k")
    assert sorted(CudaModule("cubin", source.table, b"").kernels) == ["k_kernel", "k_kernel_1"]


def test_host_code_checks_arguments_and_launches():
    text = emit_cuda(elementwise(lambda x: x + 1.5), AMPERE, "k").host.script(show_meta=False)
    assert "call_ffi_kernel" in text and "device_type" in text


def test_a_grid_without_blocks_is_not_launched():
    known = emit_cuda(two_stages(40), AMPERE, "k").host.script(show_meta=False)
    assert "T.int64(0):" not in known
    text = emit_cuda(two_stages(tirx.Var("n", "int64")), AMPERE, "k").host.script(show_meta=False)
    lines = text.splitlines()
    for number in (i for i, line in enumerate(lines) if "call_ffi_kernel" in line):
        assert lines[number - 1].strip().startswith("if ") and "> T.int64(0)" in lines[number - 1]


@pytest.mark.parametrize("bound", [False, True])
def test_a_stage_that_is_not_bound_is_refused(bound):
    a = te.placeholder((8, 8), "float32", name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((8, 8), lambda i, j: b[j, i] + 1.0, name="C")
    schedule = s_tir.Schedule(te.create_prim_func([a, c]))
    if bound:
        schedule.bind(schedule.get_loops(schedule.get_sblock("B"))[0], "threadIdx.x")
    with pytest.raises(TvmpassError, match="not bound to the device's blocks and threads"):
        emit_cuda(schedule.mod["main"], AMPERE, "k")


def test_evaluate():
    n = tirx.Var("n", "int64")
    assert evaluate((n + 7) // 8, {"n": 17}) == 3
    assert evaluate(5, {}) == 5
    with pytest.raises(KeyError):
        evaluate(n, {})


def test_the_callers_config_is_kept():
    with tvm.transform.PassContext(config={"tirx.disable_vectorize": True}):
        assert emit_cuda(elementwise(lambda x: x + 1.5), AMPERE, "k").kernels


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_infinity_and_nan_in_bfloat16_are_spelled_for_the_compiler(value):
    text = emit_cuda(
        elementwise(lambda x: x + tirx.const(value, "bfloat16"), dtype="bfloat16"), AMPERE, "k"
    ).source
    assert "__int_as_float(0x7f" in text
    assert not re.search(r"\b(inff|nanf)\b", text)
