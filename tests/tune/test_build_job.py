"""What is timed is what is shipped: libraries of candidates, built in this process."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, s_tir, te, tirx

import tvmpass
from tests.tir_passes import cases
from tests.tune.workloads import workload
from tvmpass.compile.codegen import compile_object
from tvmpass.compile.context import PassContext
from tvmpass.compile.tuned import apply_candidate
from tvmpass.testing.graphs import graph
from tvmpass.tune.build_job import SYMBOL, build_candidate, intermediate_bytes
from tvmpass.tune.workload_file import read_workload, write_workload

R = relax.op


def build(folder, candidate, memory_bytes: int = 1 << 30):
    output = folder / "candidate.so"
    return output, build_candidate(
        str(folder), str(output), candidate.recipe, candidate.trace, [], memory_bytes
    )


def test_the_code_is_that_of_a_build():
    """A build and a candidate of the same schedule give the same object file, byte for byte."""
    weight = np.random.default_rng(0).standard_normal((24, 32)).astype("float32")

    def body(x):
        return R.nn.softmax(R.nn.relu(R.matmul(x, relax.const(weight))), -1)

    mod = graph(body, ((8, 24),))
    config = {"tvmpass.threads": 1, "tvmpass.tuning_logs": "off"}
    with tvmpass.PassContext(config=config):
        lowered, _ = tvmpass.optimize(mod)
        built = tvmpass.build(mod)
    symbols = built._compiled.symbols
    objects = {path.stem: path.read_bytes() for path in built._compiled.objects}
    scheduled = {v.name_hint: f for v, f in lowered.functions_items() if isinstance(f, tirx.PrimFunc)}
    assert set(scheduled) == set(symbols) and len(symbols) >= 2
    for name, function in scheduled.items():
        symbol = symbols[name]
        path = built._compiled.objects[0].with_name("again.o")
        compile_object(symbol, function.with_attr("global_symbol", symbol), cases.TARGET, path)
        assert path.read_bytes() == objects[symbol]


def test_a_library_computes_the_kernel(tmp_path):
    work = workload(cases.matmul(6, 16, 5, epilogue=False))
    write_workload(work, tmp_path)
    path, made = build(tmp_path, work.candidate0)
    applied = apply_candidate(work.function, work.candidate0.recipe, None, work.target, work.options)
    assert made["features"] and isinstance(applied, tirx.PrimFunc)
    a, b = (
        np.random.default_rng(i).standard_normal(s).astype("float32") for i, s in enumerate(((6, 5), (5, 16)))
    )
    c = tvm.runtime.empty((6, 16), "float32")
    tvm.runtime.load_module(str(path))[SYMBOL](tvm.runtime.tensor(a), tvm.runtime.tensor(b), c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-5, atol=1e-5)


def test_a_workload_comes_back_from_its_file(tmp_path):
    work = workload(cases.matmul(6, 16, 5))
    work = dataclasses.replace(work, options=dataclasses.replace(work.options, disabled=("a", "b"), seed=7))
    with PassContext(config={"tirx.disable_vectorize": True}):
        write_workload(work, tmp_path)
    unit = read_workload(tmp_path)
    assert tvm_ffi.structural_equal(unit.function, work.function)
    assert str(unit.target) == str(work.target) and unit.options == work.options
    assert unit.device_class == work.device_class
    assert unit.config == {"tirx.disable_vectorize": True}
    with unit.context():
        assert tvm.transform.PassContext.current().config["tirx.disable_vectorize"]


@pytest.mark.parametrize(
    ("recipe", "said"), [("no-such-step", "recipe-unreadable"), ("tile-window", "wrong-kernel-kind")]
)
def test_a_recipe_that_does_not_fit_is_refused(tmp_path, recipe, said):
    work = workload(cases.matmul(6, 16, 5))
    write_workload(work, tmp_path)
    path, made = build(tmp_path, dataclasses.replace(work.candidate0, recipe=recipe))
    assert made["refused"].startswith(said) and "\n" not in made["refused"] and not path.exists()


def test_what_lies_between_is_counted_before_it_is_allocated(tmp_path):
    x = te.placeholder((64, 64), name="x")
    y = te.compute((64, 64), lambda i, j: x[i, j] + 1.0, name="y")
    function = te.create_prim_func([x, te.compute((64, 64), lambda i, j: y[i, j] * y[j, i], name="z")])
    assert intermediate_bytes(function) == 64 * 64 * 4
    schedule = s_tir.Schedule(function)
    schedule.set_scope(schedule.get_sblock("y"), 0, "local")
    assert intermediate_bytes(schedule.mod["main"]) == 0
    work = workload(function)
    write_workload(work, tmp_path)
    _, made = build(tmp_path, dataclasses.replace(work.candidate0, recipe=None), memory_bytes=1000)
    assert made["memory"].startswith("its intermediate buffers take")
