"""Keys of kernels: equal for equal kernels and for no others, in every process."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tvm
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import te, tirx
from tvm_ffi import core as ffi_core

import tvmpass
from tests.tir_passes.cases import KERNELS, function, tensor
from tvmpass import catalogue
from tvmpass.compile import kernel_key as module
from tvmpass.compile.context import usual_tvm_passes
from tvmpass.compile.grouping import GROUP_ATTR
from tvmpass.compile.kernel_key import canonical_text, kernel_key, plain_kernel, record_key
from tvmpass.compile.pipeline import Job, run_pipeline
from tvmpass.compile.schedule import Scheduler
from tvmpass.compile.target import parse_target
from tvmpass.core.options import Options
from tvmpass.core.report import Ledger
from tvmpass.tune.tasks import plan_tasks

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "examples" / "models" / "ch_ppocr_mobile_v2.0_cls_infer.onnx"
CLASS = "x86-64-v3-t1"
OPTIONS = Options(threads=1)


def renamed(func: tirx.PrimFunc, prefix: str = "zz") -> tirx.PrimFunc:
    """Give every variable, buffer and block another name."""
    graph = json.loads(tvm.ir.save_json(func))
    nodes = graph["nodes"]
    for index, node in enumerate(list(nodes)):
        field = {"ir.Var": "name", "s_tir.SBlock": "name_hint"}.get(node["type"])
        if field is not None:
            nodes.append({"type": "ffi.String", "data": f"{prefix}{index}"})
            node["data"][field] = len(nodes) - 1
    return tvm.ir.load_json(json.dumps(graph))


def chain(constant: float, dtype: str = "float32", size: int = 8) -> tirx.PrimFunc:
    x = tensor("x", size, dtype=dtype)
    return function(x, te.compute((size,), lambda i: x[i] * tirx.FloatImm(dtype, constant), name="y"))


@pytest.mark.parametrize("name", KERNELS)
def test_names_say_nothing(name):
    func = KERNELS[name][0]()
    other = renamed(func).with_attr("global_symbol", "another").with_attr(GROUP_ATTR, '{"rule": "x"}')
    assert canonical_text(other) == canonical_text(func)
    assert kernel_key(other, CLASS, OPTIONS) == kernel_key(func, CLASS, OPTIONS)


def test_equal_text_means_structurally_equal():
    made = [plain_kernel(case[0]()) for case in KERNELS.values()]
    made += [plain_kernel(renamed(func)) for func in made]
    texts = [canonical_text(func) for func in made]
    for one, text in zip(made, texts):
        for other, another in zip(made, texts):
            assert (text == another) == tvm_ffi.structural_equal(one, other)


SIZES = st.sampled_from((1, 2, 3))
UNARY = (tirx.exp, tirx.abs, lambda v: v + v, lambda v: v * tirx.FloatImm("float32", 0.5))


def stage(source, other, shape, choice: int, name: str):
    """Return one stage over ``source``: elementwise, with ``other``, or a sum over rows."""
    if choice < len(UNARY):
        return te.compute(shape, lambda i, j: UNARY[choice](source[i, j]), name=name)
    if choice == len(UNARY):
        return te.compute(shape, lambda i, j: source[i, j] + other[i, j], name=name)
    axis = te.reduce_axis((0, shape[1]), name=f"k_{name}")
    return te.compute(shape, lambda i, j: te.sum(source[i, axis], axis=axis), name=name)


@st.composite
def grown(draw) -> tirx.PrimFunc:
    """Draw a chain of elementwise stages and reductions over one or two inputs."""
    shape = (draw(SIZES), draw(SIZES))
    inputs = [tensor(f"x{i}", *shape) for i in range(draw(st.integers(1, 2)))]
    value = inputs[0]
    for step in range(draw(st.integers(1, 3))):
        value = stage(
            value, inputs[-1], shape, draw(st.integers(0, len(UNARY) + 1)), f"s{step}_{draw(SIZES)}"
        )
    return plain_kernel(te.create_prim_func([*inputs, value]))


@settings(max_examples=60, deadline=None)
@given(grown(), grown())
def test_text_and_structural_equality_agree_on_grown_kernels(one, other):
    assert (canonical_text(one) == canonical_text(other)) == tvm_ffi.structural_equal(one, other)
    assert canonical_text(renamed(other)) == canonical_text(other)


def test_how_parts_are_shared_says_nothing():
    x = tensor("x", 4)
    one, two = tirx.FloatImm("float32", 2.0), tirx.FloatImm("float32", 2.0)
    shared = function(x, te.compute((4,), lambda i: (x[i] * one) + (x[i] * one), name="y"))
    apart = function(x, te.compute((4,), lambda i: (x[i] * one) + (x[i] * two), name="y"))
    assert canonical_text(shared) == canonical_text(apart)


def test_variables_are_told_apart():
    x, y = tensor("x", 4), tensor("y", 4)
    same = function(x, y, te.compute((4,), lambda i: x[i] + x[i], name="z"))
    both = function(x, y, te.compute((4,), lambda i: x[i] + y[i], name="z"))
    swapped = function(x, y, te.compute((4,), lambda i: y[i] + x[i], name="z"))
    assert len({canonical_text(f) for f in (same, both, swapped)}) == 3


def test_constants_count_to_the_last_bit():
    constants = (0.1, math.nextafter(0.1, 1.0), 0.0, -0.0, math.nan, math.inf, -math.inf)
    assert len({canonical_text(chain(c, "float64")) for c in constants}) == len(constants)
    assert canonical_text(chain(math.nan)) == canonical_text(chain(math.nan))


def test_dtype_and_size_count():
    keys = {canonical_text(chain(1.0, dtype, size)) for dtype in ("float32", "float16") for size in (8, 9)}
    assert len(keys) == 4


def test_the_order_of_attributes_says_nothing():
    func = plain_kernel(chain(1.0)).without_attr("tirx.noalias").without_attr("s_tir")
    one = func.with_attr("s_tir", True).with_attr("tirx.noalias", True)
    other = func.with_attr("tirx.noalias", True).with_attr("s_tir", True)
    assert canonical_text(one) == canonical_text(other) != canonical_text(func)


def test_open_extents_are_told_apart():
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")

    def over(rows, columns):
        x = tensor("x", rows, columns)
        return function(x, te.compute((rows, columns), lambda i, j: x[i, j] + x[i, j], name="y"))

    assert canonical_text(over(n, m)) == canonical_text(over(m, n))
    assert canonical_text(over(n, n)) != canonical_text(over(n, m))


def test_what_the_key_depends_on(monkeypatch):
    func = chain(1.0)
    base = kernel_key(func, CLASS, OPTIONS)
    assert len(base) == 64 and int(base, 16) >= 0
    others = {
        kernel_key(func, "x86-64-v3-t2", OPTIONS),
        kernel_key(func, "x86-64-v4-t1", OPTIONS),
        kernel_key(func, CLASS, Options(threads=1, fast_math=True)),
        kernel_key(func, CLASS, Options(threads=1, unroll="off")),
        kernel_key(func, CLASS, Options(threads=1, tile="off")),
    }
    same = Options(threads=1, seed=3, tuning_logs="off", verify="numeric", fusion="never", price_budget=1)
    assert kernel_key(func, CLASS, same) == base
    monkeypatch.setattr(module.tvm, "__version__", "0.0")
    others.add(kernel_key(func, CLASS, OPTIONS))
    assert len(others | {base}) == 7


def test_every_option_was_looked_at():
    """A new option has to be sorted: does it change what one kernel is compiled to?"""
    known = {
        *("level", "disabled", "required", "fusion", "min_speedup", "layout", "quantize", "cost_model"),
        *("tuning_logs", "verify", "price_budget", "threads", "seed"),
    }
    assert {f for f in vars(Options(threads=1))} == known | set(module._CODE_OPTIONS)


def test_record_keys():
    assert len({record_key("k", "a", 1), record_key("k", "a", 2), record_key("k", "b", 1)}) == 3
    assert record_key("ab", "c", 1) != record_key("a", "bc", 1)


PRINT_KEYS = """
from tests.compile.test_kernel_key import CLASS, KERNELS, OPTIONS, kernel_key
print(" ".join(kernel_key(case[0](), CLASS, OPTIONS) for case in list(KERNELS.values())[::4]))
"""


def test_keys_hold_in_every_process():
    found = set()
    for seed in ("0", "12345"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", PRINT_KEYS], env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    here = " ".join(kernel_key(case[0](), CLASS, OPTIONS) for case in list(KERNELS.values())[::4])
    assert {text.strip() for text in found} == {here}


def _fields(info) -> list:
    found = []
    while info is not None:
        found += info.fields
        info = info.parent_type_info
    return found


NODES = (
    *("ir.Var", "ir.IntImm", "ir.FloatImm", "ir.Range", "ir.Call", "ir.TensorLoad", "ir.TensorRegion"),
    *("ir.PrimType", "tirx.BufferType", "tirx.IterVar", "tirx.PrimFunc", "tirx.For", "tirx.SeqStmt"),
    *("tirx.IfThenElse", "tirx.While", "tirx.Bind", "tirx.AllocBuffer", "tirx.BufferStore", "tirx.Evaluate"),
    *("tirx.AttrStmt", "s_tir.SBlock", "s_tir.SBlockRealize", "s_tir.MatchBufferRegion", "prim.Let"),
    *("prim.Add", "prim.Select", "prim.Cast", "prim.Ramp", "prim.Broadcast", "prim.Shuffle"),
)


@pytest.mark.parametrize("name", NODES)
def test_fields_left_out_are_those_that_tvm_ignores(name):
    """What TVM's own equality ignores is left out, and what JSON gives as a number is read as one."""
    info = ffi_core._lookup_or_register_type_info_from_type_key(name)
    ignored = {field.name for field in _fields(info) if field.c_structural_eq == "ignore"}
    left_out = set(module._NAMES.get(name, ("span",)))
    assert left_out - ignored <= {"ty", "span"} and ignored <= left_out
    plain_int = 1
    numbers = {field.name for field in _fields(info) if field.field_static_type_index == plain_int}
    assert numbers <= module._NUMBERS


@pytest.mark.slow
def test_pricing_tuning_and_building_know_a_group_by_one_key(monkeypatch):
    """Every group of the example model is priced, tuned and built under the same key."""
    target = parse_target("llvm", 1)
    options = Options(threads=1, tuning_logs="off")
    job = Job(target, options, catalogue.rules(), Ledger())
    priced: set[str] = set()
    plain = Scheduler.schedule

    def schedule(self, func):
        priced.add(kernel_key(func, CLASS, options))
        return plain(self, func)

    monkeypatch.setattr(Scheduler, "schedule", schedule)
    mod = tvmpass.load(MODEL, shapes={"x": (1, 3, 48, 192)})
    stage = job.stage

    def stop_listening(name, mod, body):
        if name == "schedule":
            monkeypatch.setattr(Scheduler, "schedule", plain)
        return stage(name, mod, body)

    job.stage = stop_listening
    with usual_tvm_passes():
        run_pipeline(mod, job)
    groups = {n: f for n, f in job.unscheduled.items() if f.attrs and GROUP_ATTR in f.attrs}
    assert len(groups) > 10
    missing = [name for name, func in groups.items() if kernel_key(func, CLASS, options) not in priced]
    assert missing == []
    tasks, _ = plan_tasks(mod, target, options, CLASS)
    built = {kernel_key(func, CLASS, options) for func in job.unscheduled.values()}
    assert {task.key for task in tasks} == built
