"""Traces: applied as they were made, on any equal kernel; from strangers, read first."""

from __future__ import annotations

import copy
import json

import pytest
import tvm
import tvm_ffi
from tvm import s_tir

from tests.compile.test_kernel_key import renamed as other_names
from tests.tir_passes.cases import KERNELS
from tvmpass.compile.kernel_key import canonical_text, plain_kernel
from tvmpass.compile.record_files import BadLine, dump_trace
from tvmpass.compile.trace import MAX_INSTRUCTIONS, apply_trace, read_trace, renamed, trace_text
from tvmpass.core.decision import Refusal


def tiled(function) -> s_tir.Schedule:
    """Schedule a product as a search would: sampled tiles, annotations, a vector loop."""
    schedule = s_tir.Schedule(tvm.IRModule({"main": function}), seed=7)
    product, last = schedule.get_sblock("b0"), schedule.get_sblock("b2")
    schedule.compute_inline(schedule.get_sblock("b1"))
    rows, columns, _ = schedule.get_loops(product)
    outer, inner = schedule.split(columns, schedule.sample_perfect_tile(columns, 2, 16, decision=[6, 7]))
    schedule.reorder(outer, rows, inner)
    steps = schedule.sample_categorical([0, 16, 64], [0.25, 0.25, 0.5], decision=1)
    schedule.annotate(product, "meta_schedule.tiling_structure", "SSR")
    schedule.enter_postproc()
    schedule.annotate(outer, "pragma_auto_unroll_max_step", steps)
    schedule.annotate(outer, "pragma_unroll_explicit", 1)
    schedule.parallel(schedule.get_loops(last)[0])
    schedule.vectorize(inner)
    return schedule


@pytest.fixture(scope="module")
def product():
    return KERNELS["matmul"][0]()


@pytest.fixture(scope="module")
def text(product):
    return trace_text(tiled(renamed(product)))


def test_a_trace_gives_the_schedule_again(product, text):
    made = apply_trace(product, text)
    wanted = plain_kernel(tiled(renamed(product)).mod["main"])
    assert tvm_ffi.structural_equal(plain_kernel(made), wanted)
    assert dict(made.attrs) == dict(product.attrs)


def test_a_trace_fits_an_equal_kernel_of_other_names(product, text):
    other = other_names(product)
    root = json.loads(tvm.ir.save_json(other))
    names = [node for node in root["nodes"] if node["type"] == "s_tir.SBlock"]
    nodes = root["nodes"]
    nodes.append({"type": "ffi.String", "data": "root"})
    names[-1]["data"]["name_hint"] = len(nodes) - 1  # blocks are told from loops by this name
    other = tvm.ir.load_json(json.dumps(root))
    assert canonical_text(other) == canonical_text(product)
    made = apply_trace(other, text)
    assert not isinstance(made, Refusal)
    assert tvm_ffi.structural_equal(plain_kernel(made), plain_kernel(apply_trace(product, text)))


def test_a_trace_by_the_names_of_its_own_kernel(product):
    schedule = s_tir.Schedule(tvm.IRModule({"main": plain_kernel(product)}))
    schedule.compute_inline(schedule.get_sblock("added"))
    made = apply_trace(product, trace_text(schedule))
    assert tvm_ffi.structural_equal(plain_kernel(made), plain_kernel(schedule.mod["main"]))


def test_copies_of_arrays_are_part_of_traces(product):
    schedule = s_tir.Schedule(tvm.IRModule({"main": renamed(product)}))
    schedule.cache_write(schedule.get_sblock("b0"), 0, "global")
    schedule.cache_read(schedule.get_sblock("b1"), 0, "global")
    made = apply_trace(product, trace_text(schedule))
    assert not isinstance(made, Refusal), made
    assert tvm_ffi.structural_equal(plain_kernel(made), plain_kernel(schedule.mod["main"]))


def test_text_is_stable_json(text):
    value = json.loads(text)
    assert dump_trace(value) == text
    assert read_trace(text) == value


def test_renaming_changes_names_only(product):
    made = renamed(product)
    assert canonical_text(made) == canonical_text(product)
    assert canonical_text(renamed(made)) == canonical_text(product)
    script = made.script()
    assert 'T.sblock("b0")' in script and 'T.sblock("b2")' in script and "t0: T.Buffer" in script


def changed(text, change) -> str:
    value = copy.deepcopy(json.loads(text))
    change(value)
    return json.dumps(value)


def first(value, name):
    return next(i for i in value[0] if i[0] == name)


def annotate(key, given):
    def change(value):
        found = first(value, "Annotate")
        found[1][1], found[2] = given, [key]

    return change


BAD = {
    "code in an annotation": annotate("pragma_import_llvm", '"int f() { return 1; }"'),
    "C in an annotation": annotate("pragma_import_c", '"x"'),
    "an unknown annotation": annotate("meta_schedule.anything", 1),
    "an annotation that unrolls all": annotate("pragma_auto_unroll_max_step", 10**9),
    "a word where a step is wanted": annotate("pragma_auto_unroll_max_step", '"16"'),
    "an unknown instruction": lambda v: v[0].append(["Tensorize", ["b0"], ["evil", True], []]),
    "an index map": lambda v: v[0].append(["TransformLayout", ["b0", "lambda i: i"], [0, 0, True], []]),
    "too many instructions": lambda v: v[0].extend([["EnterPostproc", [], [], []]] * MAX_INSTRUCTIONS),
    "no instructions": lambda v: v[0].clear(),
    "a loop where a block is wanted": lambda v: v[0].append(["ComputeInline", ["l4"], [], []]),
    "an undefined variable": lambda v: v[0].append(["ComputeInline", ["b999"], [], []]),
    "a variable defined twice": lambda v: v[0].append(copy.deepcopy(v[0][0])),
    "another function": lambda v: v[0][0][2].__setitem__(1, "other"),
    "a name with spaces": lambda v: v[0][0][2].__setitem__(0, "b0 b1"),
    "no decision": lambda v: v[1].clear(),
    "two decisions": lambda v: v[1].append(v[1][0]),
    "a decision for nothing": lambda v: v[1].append([0, 1]),
    "a decision of another form": lambda v: v[1][0].__setitem__(1, 3),
    "a decision below one": lambda v: v[1][0].__setitem__(1, [0, 42]),
    "a decision out of range": lambda v: v[1][1].__setitem__(1, 3),
    "a huge choice": lambda v: first(v, "SampleCategorical")[2][0].__setitem__(0, 10**9),
    "inputs that are no list": lambda v: v[0][0].__setitem__(1, "b0"),
    "an instruction that is no list": lambda v: v[0].append({"kind": "Parallel"}),
    "an instruction that is too short": lambda v: v[0].append(["Parallel", ["l1"]]),
    "a truth value for a variable": lambda v: v[0].append(["Parallel", [True], [], []]),
    "a nested input": lambda v: v[0].append(["Parallel", [["l1"]], [], []]),
    "nothing for a variable": lambda v: v[0].append(["Parallel", [None], [], []]),
    "too many inputs": lambda v: v[0].append(["Parallel", ["l4", "l4"], [], []]),
    "an unknown scope": lambda v: v[0].append(["SetScope", ["b0"], [0, "evil"], []]),
    "a split that leaves the array": lambda v: first(v, "Split")[2].__setitem__(1, 1),
    "a huge alignment": lambda v: v[0].append(["StorageAlign", ["b0"], [0, 0, 1 << 30, 0], []]),
    "a huge offset": lambda v: v[0].append(["StorageAlign", ["b0"], [0, 0, 32, 1 << 30], []]),
    "an unknown thread": lambda v: v[0].append(["Bind", ["l4"], ["threadIdx.q"], []]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_traces_are_refused_before_tvm_sees_them(case, product, text):
    bad = changed(text, BAD[case])
    with pytest.raises(BadLine):
        read_trace(bad)
    refusal = apply_trace(product, bad)
    assert isinstance(refusal, Refusal) and refusal.code == "trace-unreadable"
    assert "\n" not in refusal.text()


@pytest.mark.parametrize("bad", ["", "[", "[[],[]]", "{}", "1", "null", "[" * 100_000, '[["a"],1]', "NaN"])
def test_texts_that_are_no_trace(bad, product):
    refusal = apply_trace(product, bad)
    assert isinstance(refusal, Refusal) and refusal.code == "trace-unreadable"


def no_place(value):
    value[0].append(["SampleComputeLocation", ["b0"], [], ["l800"]])
    value[1].append([len(value[0]) - 1, -2])
    value[0].append(["AddUnitLoop", ["l800"], [], ["l801"]])


BAD["a mark that stands for no loop"] = no_place  # ends the process in TVM

NOT_LEGAL = {
    "a block that is not there": lambda v: v[0][0][2].__setitem__(0, "b77"),
    "a tile of another extent": lambda v: v[1][0].__setitem__(1, [5, 5]),
    "an inner loop in parallel": lambda v: v[0].append(["Fuse", ["l4", "l4"], [1], ["l900"]]),
    "more loops than there are": lambda v: first(v, "GetLoops")[3].extend(["l901", "l902", "l903"]),
    "a negative axis": lambda v: v[0].append(["CacheRead", ["b0", []], [99, "global"], ["b903"]]),
}


@pytest.mark.parametrize("case", NOT_LEGAL)
def test_what_tvm_refuses_is_a_refusal(case, product, text):
    made = apply_trace(product, changed(text, NOT_LEGAL[case]))
    if isinstance(made, Refusal):
        assert made.code == "trace-refused"
    else:  # tiles that do not divide are legal: TVM adds a condition
        assert case == "a tile of another extent"


def test_a_trace_of_another_kernel_is_refused(text):
    made = apply_trace(KERNELS["softmax"][0](), text)
    assert isinstance(made, Refusal) and made.code == "trace-refused"
