"""CUDA recipes of everything but products: form, order, refusals; nothing is run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tvm_ffi
from tvm import s_tir, te, tirx

import tir_passes
from schedules.cuda.launch import launches_itself
from tests.tir_passes.cases import KERNELS, SYMBOLIC, function, tensor
from tests.tir_passes.operators import OPERATORS, OPTIONS, TARGET
from tir_passes.recipes import apply_recipe, finish, parse_recipe, recipes
from tvmpass.compile.cuda_source import emit_cuda
from tvmpass.core.decision import Refusal
from tvmpass.core.kernels import classify
from tvmpass.core.nest import walk_blocks

OURS = ("elementwise", "movement", "reduce", "norm-softmax", "pool")
OTHERS = {name: make for name, (make, kind) in {**KERNELS, **SYMBOLIC}.items() if kind in OURS}


def made_by(recipe, func) -> tirx.PrimFunc:
    made = apply_recipe(recipe, func, TARGET)
    assert not isinstance(made, Refusal), f"{recipe}: {made.text()}"
    return finish(made, TARGET, OPTIONS)


def text_of(func, number: int = 0) -> str:
    """Return the CUDA text of a kernel's recipe, without what TVM puts before it."""
    source = emit_cuda(
        made_by(recipes(classify(func), TARGET, OPTIONS)[number], func), TARGET, "kernel"
    ).source
    return source[source.rindex('extern "C" __global__') :]


@pytest.mark.parametrize("name", OPERATORS)
def test_kinds_and_first_recipes(name):
    case = OPERATORS[name]
    func = case.function()
    kernel = classify(func)
    assert kernel.kind == case.kind
    listed = recipes(kernel, TARGET, OPTIONS)
    assert 1 <= len(listed) <= 32 and len(set(listed)) == len(listed)
    assert listed == recipes(kernel, TARGET, OPTIONS)
    assert all(parse_recipe(str(recipe)) == recipe for recipe in listed)
    assert launches_itself(made_by(listed[0], func))


@pytest.mark.parametrize("name", OTHERS)
def test_no_recipe_is_refused(name):
    func = OTHERS[name]()
    listed = recipes(classify(func), TARGET, OPTIONS)
    assert listed
    for recipe in listed:
        assert launches_itself(made_by(recipe, func))


def test_neighbours_are_loaded_as_vectors():
    text = text_of(OPERATORS["add"].function())
    assert text.count("*(float4*)(x0_ptr") == 1 and text.count("*(float4*)(T_add_ptr") == 1
    assert "*(uint4*)(x0_ptr" in text_of(OPERATORS["add-half"].function())
    assert "float4" not in text_of(OPERATORS["add-odd"].function()), "35 elements are no vectors"


def test_what_vectors_leave_of_a_tensor_is_computed_one_by_one():
    text = text_of(OPERATORS["add-rest"].function())
    assert text.count("*(float4*)(x0_ptr") == 1 and "< 1073)" in text and "4292" in text
    assert "*(uint4*)(x0_ptr" in text_of(OPERATORS["add-rest-half"].function())


def test_truth_values_are_no_vectors():
    """TVM prints a vector of them with 16 bits each."""
    text = text_of(OPERATORS["where"].function())
    assert "ushort" not in text and "*(float4*)(x1_ptr" in text


def test_a_choice_between_operands_is_one_load_where_vectors_do_not_straddle_it():
    text = text_of(OPERATORS["concat"].function())
    assert "*(float4*)(x0_ptr" in text and "*(float4*)(x1_ptr" in text
    text = text_of(KERNELS["concat"][0]())
    assert "*(float2*)(x0_ptr" not in text, "5 and 18 columns leave a vector across the border"


def test_short_rows_meet_in_shuffles_and_long_ones_in_shared_memory():
    text = text_of(OPERATORS["sum-row"].function())
    assert text.count("__shfl_xor_sync") == 5 and "__shared__" not in text and "__syncthreads" not in text
    text = text_of(OPERATORS["softmax-wide"].function())
    assert text.count("__shfl_xor_sync") == 10 and text.count("__shared__") == 2


def test_all_stages_of_a_norm_are_one_launch_that_reads_its_input_once():
    func = OPERATORS["layer-norm"].function()
    made = emit_cuda(made_by(recipes(classify(func), TARGET, OPTIONS)[0], func), TARGET, "kernel")
    assert len(made.kernels) == 1
    body = made.source[made.source.rindex('extern "C" __global__') :]
    assert body.count("x0_ptr +") == 1


def test_a_norm_over_groups_takes_a_second_launch_for_its_results():
    func = OPERATORS["group-norm"].function()
    made = emit_cuda(made_by(recipes(classify(func), TARGET, OPTIONS)[0], func), TARGET, "kernel")
    assert len(made.kernels) == 2


def test_sums_along_outer_axes_read_along_the_inner_one():
    func = OPERATORS["sum-columns"].function()
    first = recipes(classify(func), TARGET, OPTIONS)[0]
    assert "across=true" in str(first)
    assert "*(float4*)(x0_ptr" in text_of(func)


@pytest.mark.parametrize("name", ["sum-long", "mean-large-image", "argmax-long"])
def test_few_long_rows_are_split_among_blocks(name):
    func = OPERATORS[name].function()
    recipe = recipes(classify(func), TARGET, OPTIONS)[0]
    assert "splits=" in str(recipe)
    parts, join = emit_cuda(made_by(recipe, func), TARGET, "kernel").kernels
    assert parts.grid[0] >= 16 and join.grid[0] <= 2
    short = recipes(classify(OPERATORS["sum-row"].function()), TARGET, OPTIONS)
    assert not any("splits" in str(other) for other in short)


def test_transposes_go_through_a_padded_tile():
    func = OPERATORS["transpose"].function()
    recipe = recipes(classify(func), TARGET, OPTIONS)[0]
    assert "tile-transpose" in str(recipe)
    made = emit_cuda(made_by(recipe, func), TARGET, "kernel")
    assert made.kernels[0].static_shared_bytes == (31 * 33 + 32) * 4
    assert made.source.count("__syncthreads") == 1
    assert "tile-transpose" not in str(recipes(classify(KERNELS["transpose"][0]()), TARGET, OPTIONS)[0])


def test_an_empty_grid_is_guarded():
    """TVM's runtime launches one block where there are no rows: it has to find nothing to do."""
    func = SYMBOLIC["softmax-rows"][0]()
    made = made_by(recipes(classify(func), TARGET, OPTIONS)[0], func)
    grids: list = []

    def note(loop) -> None:
        if loop.thread_binding is not None and str(loop.thread_binding.thread_tag) == "blockIdx.x":
            grids.append(loop.extent)

    tvm_ffi.structural_walk(made.body, [(tirx.For, note)])
    assert [str(grid).startswith("T.max(") for grid in grids] == [True]
    assert "< n" in text_of(func)


def test_switches():
    kernel = classify(OPERATORS["softmax"].function())
    assert recipes(kernel, TARGET, replace(OPTIONS, tile="off")) == []
    plain = recipes(kernel, TARGET, replace(OPTIONS, unroll="off"))
    assert plain and not any("unroll" in str(recipe) for recipe in plain)


def refusal(step, func) -> Refusal:
    schedule = s_tir.Schedule(func)
    before = schedule.mod.script()
    found = step.apply(schedule, classify(func))
    assert isinstance(found, Refusal) and schedule.mod.script() == before
    return found


@pytest.mark.parametrize(
    ("step", "option"),
    [
        (tir_passes.TileResults(threads=100), "threads"),
        (tir_passes.TileResults(lanes=32), "lanes"),
        (tir_passes.TileRowThreads(threads=2048), "threads"),
        (tir_passes.TileRowThreads(threads=32, rows=64), "rows"),
        (tir_passes.TileRowThreads(threads=64, rows=2), "rows"),
        (tir_passes.TileTranspose(threads=48), "threads"),
    ],
)
def test_impossible_options(step, option):
    found = refusal(step, OPERATORS["softmax"].function())
    assert found.code == "bad-option" and found.evidence["option"] == option


@pytest.mark.parametrize("step", [tir_passes.TileResults(), tir_passes.TileRowThreads()])
def test_plain_loops_are_no_rows(step):
    func = te.create_prim_func([x := tensor("x", 8), te.compute((8,), lambda i: x[i] + 1.0, name="y")])
    schedule = s_tir.Schedule(func)
    schedule.split(schedule.get_loops("y")[0], [None, 4])
    assert refusal(step, schedule.mod["main"]).code == "no-row-launches"


def test_what_is_read_in_order_is_not_transposed():
    assert refusal(tir_passes.TileTranspose(), OPERATORS["add"].function()).code == "no-transpose"


@pytest.mark.parametrize("step", [tir_passes.VectorizeLanes(), tir_passes.UnrollLanes()])
def test_annotations_need_launches(step):
    found = refusal(step, OPERATORS["add"].function())
    assert found.code == "not-tiled" and found.evidence["step"] == step.name


def blocks_after_inlining(func) -> list[str]:
    schedule = tir_passes.InlineProducers().apply(s_tir.Schedule(func), classify(func))
    return [block.name_hint for block in walk_blocks(schedule.mod["main"])]


def test_a_function_of_a_broadcast_operand_is_no_launch_of_its_own():
    x = tensor("x", 64)
    scaled = te.compute((64,), lambda i: x[i] * 2.0, name="scaled")
    costly = te.compute((64,), lambda i: tirx.exp(scaled[i]), name="costly")
    wide = te.compute((32, 64), lambda i, j: costly[j] + tirx.Cast("float32", i), name="wide")
    assert blocks_after_inlining(function(x, wide)) == ["wide"]


def test_what_several_blocks_of_its_size_read_is_evaluated_once():
    x = tensor("x", 64)
    costly = te.compute((64,), lambda i: tirx.exp(x[i]), name="costly")
    more = te.compute((64,), lambda i: tirx.tanh(costly[i]), name="more")
    both = te.compute((64,), lambda i: costly[i] * more[i], name="both")
    func = function(x, both)
    assert "costly" in blocks_after_inlining(func)
    assert text_of(func).count("expf(") == 4, "once per lane"


def test_functions_are_not_evaluated_for_every_place_in_a_window():
    x = tensor("x", 40)
    costly = te.compute((40,), lambda i: tirx.exp(x[i]), name="costly")
    k = te.reduce_axis((0, 30), "k")
    window = te.compute((11,), lambda i: te.sum(costly[i + k], axis=k), name="window")
    assert blocks_after_inlining(function(x, window)) == ["window"], "8 evaluations each"
    k = te.reduce_axis((0, 20), "k")
    window = te.compute((21, 40), lambda i, j: te.sum(costly[i + k] * x[j], axis=k), name="window")
    assert blocks_after_inlining(function(x, window)) == ["costly", "window"]


@pytest.mark.parametrize("name", OPERATORS)
def test_no_listed_recipe_of_an_operator_is_refused(name):
    func = OPERATORS[name].function()
    for recipe in recipes(classify(func), TARGET, OPTIONS):
        made_by(recipe, func)
