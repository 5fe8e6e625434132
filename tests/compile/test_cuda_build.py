"""Kernels compiled for CUDA: limits, plainer forms, the cache."""

from __future__ import annotations

import pytest
import tvm
from tvm import s_tir, te, tirx

import tvmpass.compile.cuda_build as cuda_build
from tvmpass.compile.compile_cache import CompileCache
from tvmpass.compile.cuda_binary import fatbin_kernels
from tvmpass.compile.cuda_build import compile_cuda
from tvmpass.compile.cuda_toolchain import find_nvcc
from tvmpass.compile.target import parse_target
from tvmpass.core.errors import TvmpassError

TARGET = parse_target("cuda:sm_80,sm_90", 1)
SYMBOL = "tvmpass_0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def nvcc():
    try:
        find_nvcc()
    except TvmpassError as error:
        pytest.skip(str(error))


@pytest.fixture
def build(tmp_path):
    """Compile functions by symbol; ``plainer`` gives another form of one that fails."""
    cache = CompileCache(tmp_path / "cache", 1 << 24)

    def run(functions, plainer=lambda symbol, error: None):
        names = {symbol: f"name of {symbol}" for symbol in functions}
        functions = {s: f.with_attr("global_symbol", s) for s, f in functions.items()}
        return compile_cuda(functions, names, TARGET, cache, tmp_path, plainer)

    return run


def bound(body, shape=(256,)):
    a = te.placeholder(shape, "float32", name="A")
    schedule = s_tir.Schedule(te.create_prim_func([a, te.compute(shape, lambda i: body(a[i]), name="B")]))
    block, thread = schedule.split(schedule.get_loops(schedule.get_sblock("B"))[0], [None, 64])
    schedule.bind(block, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    return schedule.mod["main"]


def unknown_call(x):
    return tirx.call_extern("float32", "no_such_function", x)


def staged(floats):
    """A kernel that stages ``floats`` numbers in shared memory."""
    a = te.placeholder((floats,), "float32", name="A")
    b = te.compute((floats,), lambda i: a[floats - 1 - i], name="B")
    schedule = s_tir.Schedule(te.create_prim_func([a, b]))
    (loop,) = schedule.get_loops(schedule.get_sblock("B"))
    block, thread = schedule.split(loop, [1, None])
    _, thread = schedule.split(thread, [None, 128])
    schedule.bind(block, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    tile = schedule.cache_read(schedule.get_sblock("B"), 0, "shared.dyn")
    schedule.compute_at(tile, block)
    _, thread = schedule.split(schedule.get_loops(tile)[-1], [None, 128])
    schedule.bind(thread, "threadIdx.x")
    return schedule.mod["main"]


def test_device_code_host_code_and_report(build):
    made = build({SYMBOL: bound(lambda x: x + 1.0)})
    assert set(made.reports[SYMBOL]) == {"sm_80", "sm_90"} and made.code_bytes[SYMBOL] > 0
    (module,) = made.modules
    assert module.form == "cubin" and module.kernels == (f"{SYMBOL}_kernel",)
    assert {c: f"{SYMBOL}_kernel" in names for c, names in fatbin_kernels(module.code).items()} == {
        80: True,
        90: True,
    }
    assert made.objects[SYMBOL].read_bytes()[:4] == b"\x7fELF" and made.cache_hits == 0


def test_built_again_from_the_cache(build, monkeypatch):
    functions = {SYMBOL: bound(lambda x: x + 1.0)}
    first = build(functions)
    monkeypatch.setattr("tvmpass.compile.cuda_toolchain._compile", None)
    again = build(functions)
    assert again.cache_hits == 1 and again.modules == first.modules and again.reports == first.reports


def test_a_kernel_over_the_shared_memory_of_a_device(build, tmp_path):
    functions = {SYMBOL: staged(75 << 10)}
    with pytest.raises(TvmpassError) as caught:
        build(functions)
    assert str(caught.value) == (
        f"kernel name of {SYMBOL} needs 307200 bytes of shared memory per block; sm_80 allows 166912: "
        "use a schedule with smaller tiles"
    )
    assert not (tmp_path / f"{SYMBOL}.o").exists()


def test_shared_memory_within_the_limit_but_over_the_static_one(build):
    made = build({SYMBOL: staged(40 << 10)})
    assert made.reports[SYMBOL]["sm_80"]["dynamic_shared_bytes"] == 160 << 10


def test_what_nvcc_refuses_gets_its_plainer_form(build):
    asked = []

    def plainer(symbol, error):
        asked.append((symbol, error))
        return bound(lambda x: x + 2.0)

    other = SYMBOL.replace("0123", "aaaa")
    made = build({SYMBOL: bound(unknown_call), other: bound(lambda x: x * 3.0)}, plainer)
    ((symbol, error),) = asked
    assert symbol == SYMBOL and "no_such_function" in error
    assert sorted(name for module in made.modules for name in module.kernels) == sorted(
        f"{name}_kernel" for name in (SYMBOL, other)
    )


def test_what_has_no_plainer_form_is_an_error(build):
    with pytest.raises(TvmpassError, match=f"kernel name of {SYMBOL} failed: .*no_such_function") as caught:
        build({SYMBOL: bound(unknown_call)})
    assert "\n" not in str(caught.value)


def test_a_plainer_form_that_fails_too(build):
    with pytest.raises(TvmpassError, match="no_such_function"):
        build({SYMBOL: bound(unknown_call)}, lambda symbol, error: bound(unknown_call))


def test_a_function_of_the_host(tmp_path):
    a = te.placeholder((4,), "int64", name="A")
    shapes = te.create_prim_func([a, te.compute((4,), lambda i: a[i] + 1, name="B")])
    shapes = shapes.with_attrs({"tirx.is_host_func": True, "global_symbol": "shape_func"})
    functions, cache = {"shape_func": shapes}, CompileCache(tmp_path / "cache", 0)
    made = compile_cuda(functions, {}, TARGET, cache, tmp_path, lambda symbol, error: None)
    assert made.modules == [] and made.objects["shape_func"].stat().st_size > 0


def test_tools_are_looked_for_before_the_work(monkeypatch):
    def nothing(*_):
        raise TvmpassError("no nvcc")

    monkeypatch.setattr(cuda_build, "find_nvcc", nothing)
    monkeypatch.setattr("tvmpass.compile.build.run_pipeline", None)
    from tvmpass import build as build_model
    from tvmpass.testing.graphs import graph

    with pytest.raises(TvmpassError, match="no nvcc"):
        build_model(graph(lambda x: tvm.relax.op.nn.relu(x), ((4, 4),)), "cuda:sm_80")
