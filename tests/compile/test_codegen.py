"""Code generation: each kernel once, from the cache where it can."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import tvm
from tvm import relax

import tvmpass
from tvmpass.compile.codegen import kernel_symbol
from tvmpass.compile.compile_cache import CompileCache
from tvmpass.compile.target import parse_target
from tvmpass.core.errors import TvmpassError
from tvmpass.testing.graphs import graph

R = relax.op


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Give the test a kernel cache of its own."""
    monkeypatch.setenv("TVMPASS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


@pytest.fixture
def compiled(monkeypatch):
    """List the names of kernels that LLVM compiles during the test."""
    names: list[str] = []
    build = tvm.tirx.build

    def spy(mod, target):
        names.extend(gv.name_hint for gv in mod.get_global_vars())
        return build(mod, target)

    monkeypatch.setattr(tvm.tirx, "build", spy)
    return names


def net(depth: int, seed: int = 0):
    """Stack equal layers with different weights."""
    rng = np.random.default_rng(seed)
    weights = [relax.const(rng.standard_normal((8, 8)).astype("float32")) for _ in range(depth)]

    def body(x):
        for w in weights:
            x = R.nn.relu(R.matmul(x, w))
        return x

    return graph(body, ((4, 8),))


def result(lib):
    return lib.run(x=np.ones((4, 8), "float32"))[0]


def test_equal_layers_are_compiled_once(folder, compiled):
    lib = tvmpass.build(net(3))
    fused = [n for n in compiled if n.startswith("tvmpass_")]
    assert len(fused) == len(set(fused)) == len({k.symbol for k in lib.report.kernels})
    assert sum(k.calls for k in lib.report.kernels) > len(lib.report.kernels)
    assert all(k.code_bytes > 0 for k in lib.report.kernels)


def test_another_model_with_the_same_kernels_compiles_none(folder, compiled):
    first = result(tvmpass.build(net(3, seed=1)))
    compiled.clear()
    second = tvmpass.build(net(2, seed=1))
    assert [n for n in compiled if n.startswith("tvmpass_")] == []
    assert second._compiled.cache_hits == len({k.symbol for k in second.report.kernels})
    assert not np.array_equal(result(second), first)


def test_the_report_does_not_tell_a_hit_from_a_miss(folder):
    assert tvmpass.build(net(2)).report.dumps() == tvmpass.build(net(2)).report.dumps()


@pytest.mark.parametrize("damage", [b"", b"no object", None])
def test_a_damaged_cache_does_not_break_a_build(folder, compiled, damage):
    expected = result(tvmpass.build(net(2)))
    for path in folder.iterdir():
        content = path.read_bytes()
        path.write_bytes(content[:200] + bytes(50) + content[250:] if damage is None else damage)
    compiled.clear()
    again = tvmpass.build(net(2))
    assert compiled
    np.testing.assert_array_equal(result(again), expected)
    compiled.clear()
    np.testing.assert_array_equal(result(tvmpass.build(net(2))), expected)
    assert compiled == []


def test_without_a_cache(folder, monkeypatch):
    monkeypatch.setenv("TVMPASS_CACHE_SIZE", "0")
    assert tvmpass.build(net(1))._compiled.cache_hits == 0
    assert not folder.exists()


def test_two_processes_build_at_once(folder, tmp_path):
    script = (
        "import numpy as np, tvmpass\n"
        "from tvm import relax\n"
        "from tvmpass.testing.graphs import graph\n"
        "lib = tvmpass.build(graph(lambda x: relax.op.nn.softmax(relax.op.exp(x)), ((4, 8),)))\n"
        "print(lib.run(x=np.ones((4, 8), 'float32'))[0].sum())\n"
    )
    workers = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    results = [worker.communicate()[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    assert [float(r) for r in results] == pytest.approx([4.0, 4.0], abs=1e-5)
    assert [p for p in folder.iterdir() if p.name.startswith(".")] == []


def test_a_symbol_is_made_from_content_target_and_tvms_options():
    lowered, _ = tvmpass.optimize(net(1))
    function = next(f for _, f in lowered.functions_items() if isinstance(f, tvm.tirx.PrimFunc))
    here, other = parse_target("llvm", 1), parse_target("llvm:x86-64-v3", 1)
    symbol = kernel_symbol(function, here)
    renamed = function.with_attr("tvmpass.group", "{}").with_attr("global_symbol", "z")
    assert symbol == kernel_symbol(renamed, here)
    assert symbol != kernel_symbol(function, other)
    with tvm.transform.PassContext(config={"tirx.disable_vectorize": True}):
        assert symbol != kernel_symbol(function, here)


def test_kernels_that_hold_different_constants_have_different_symbols():
    def body(value):
        return graph(lambda x: R.exp(R.multiply(x, relax.const(np.float32(value)))), ((4, 8),))

    libs = [tvmpass.build(body(v)) for v in (1 + 2**-20, 1 + 2**-22)]
    assert len({k.symbol for lib in libs for k in lib.report.kernels}) == 2


def test_a_kernel_that_cannot_be_compiled_is_named(folder, monkeypatch):
    def fails(mod, target):
        raise ValueError("LLVM gave up")

    monkeypatch.setattr(tvm.tirx, "build", fails)
    with pytest.raises(TvmpassError, match="code generation of kernel .* failed: LLVM gave up"):
        tvmpass.build(net(1))


def test_a_kernel_whose_schedule_cannot_be_compiled_falls_back(folder, monkeypatch):
    expected = result(tvmpass.build(net(1)))
    monkeypatch.setenv("TVMPASS_CACHE_SIZE", "0")
    build, seen = tvm.tirx.build, set()

    def fails_once(mod, target):
        (name,) = (gv.name_hint for gv in mod.get_global_vars())
        if name.startswith("tvmpass_") and name not in seen:
            seen.add(name)
            raise ValueError("LLVM gave up")
        return build(mod, target)

    monkeypatch.setattr(tvm.tirx, "build", fails_once)
    lib = tvmpass.build(net(1))
    assert {k.schedule for k in lib.report.kernels} == {"fallback"}
    assert all("LLVM gave up" in k.note for k in lib.report.kernels)
    np.testing.assert_allclose(result(lib), expected, rtol=1e-5)


def test_the_cache_class_is_the_default_one(folder):
    assert CompileCache().folder == folder
