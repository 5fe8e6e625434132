"""Single steps: what they refuse, and their use as TVM passes."""

from __future__ import annotations

import pytest
import tvm
from tvm import s_tir, te

import tir_passes
from tests.tir_passes.cases import (
    KERNELS,
    SYMBOLIC,
    TARGET,
    arguments,
    close,
    compile_all,
    function,
    matmul,
    run,
    tensor,
)
from tir_passes.recipes import Recipe, apply_recipe
from tir_passes.step import recall, remember
from tvmpass.core.decision import Refusal
from tvmpass.core.kernels import classify


def refusal(step, func, before=()) -> Refusal:
    """Apply ``step`` after the steps ``before`` and return its refusal, the schedule as it was.

    An error of TVM's own schedule may come half way: `Step.apply` leaves the
    schedule unspecified then, and recipes work on a private one.
    """
    kernel = classify(func)
    schedule = s_tir.Schedule(func)
    for earlier in before:
        schedule = earlier.apply(schedule, kernel)
    script = schedule.mod.script()
    result = step.apply(schedule, kernel)
    assert isinstance(result, Refusal)
    if result.code != "schedule-error":
        assert schedule.mod.script() == script, "a refused step changed the schedule"
    return result


@pytest.mark.parametrize(
    ("step", "name"),
    [
        (tir_passes.TileMatmul(), "conv-3x3"),
        (tir_passes.TileConv(), "matmul"),
        (tir_passes.TileWindow(), "matmul"),
        (tir_passes.TileReduce(), "elementwise"),
        (tir_passes.TileRows(), "matmul"),
        (tir_passes.TileElementwise(), "softmax"),
    ],
)
def test_tile_steps_refuse_other_kinds(step, name):
    found = refusal(step, KERNELS[name][0]())
    assert found.code == "wrong-kernel-kind"
    assert found.evidence["kind"] == KERNELS[name][1] and found.evidence["step"] == step.name
    assert KERNELS[name][1] in found.text()


@pytest.mark.parametrize(
    ("step", "option"),
    [
        (tir_passes.TileMatmul(m=0), "m"),
        (tir_passes.TileMatmul(lanes=12), "lanes"),
        (tir_passes.TileMatmul(m=32, n=64), "m"),
    ],
)
def test_impossible_options(step, option):
    found = refusal(step, matmul(8, 32, 8))
    assert found.code == "bad-option" and found.evidence["option"] == option


def test_tile_twice_is_refused():
    found = refusal(
        tir_passes.TileMatmul(), matmul(8, 32, 8), [tir_passes.InlineNeighbours(), tir_passes.TileMatmul()]
    )
    assert found.code == "block-missing"


def test_padding_is_missing():
    assert refusal(tir_passes.StagePadding(), KERNELS["conv-1x1"][0]()).code == "block-missing"


def test_padding_needs_blocks_of_rows():
    steps = [tir_passes.InlineNeighbours(), tir_passes.TileConv(m=4, n=16)]
    found = refusal(tir_passes.StagePadding(), KERNELS["conv-3x3"][0](), steps)
    assert found.code == "no-row-blocks" and found.evidence["block"] == "out"
    found = refusal(tir_passes.StagePadding(per="pixels"), KERNELS["conv-3x3"][0](), steps)
    assert found.code == "bad-option" and found.evidence["value"] == "pixels"


def test_padding_is_not_moved_into_a_joined_loop():
    """TVM computes too small a region there and says nothing; the step refuses."""
    func = KERNELS["conv-3x3"][0]()
    kernel = classify(func)
    schedule = s_tir.Schedule(func)
    for step in (tir_passes.InlineNeighbours(), tir_passes.TileConv(m=4, n=16, rows=4)):
        schedule = step.apply(schedule, kernel)
    names = [schedule.get(loop).loop_var.name for loop in schedule.get_loops(schedule.get_sblock("out"))]
    loops = schedule.get_loops(schedule.get_sblock("out"))
    schedule.fuse(loops[names.index("s0")], loops[names.index("ht")])
    assert tir_passes.StagePadding().apply(schedule, kernel).code == "no-row-blocks"


def test_unrolling_a_symbolic_reduction_is_refused():
    found = refusal(tir_passes.UnrollInner(k=0), SYMBOLIC["mean-reduced"][0]())
    assert found.code == "extent-not-constant" and found.evidence["extent"] == "n"


def test_schedule_error_keeps_tvms_rendering():
    """Vectorising after the reduction's start was taken out is an error of TVM's schedule."""
    steps = [tir_passes.InlineNeighbours(), tir_passes.TileMatmul(m=2, n=16), tir_passes.DecomposeReduction()]
    found = refusal(tir_passes.VectorizeInner(), matmul(8, 32, 8), steps)
    assert found.code == "schedule-error" and "^^^^" in found.evidence["message"]


def test_apply_recipe_returns_the_first_refusal():
    recipe = Recipe((tir_passes.InlineNeighbours(), tir_passes.TileConv()))
    assert apply_recipe(recipe, matmul(4, 16, 4), TARGET).code == "wrong-kernel-kind"


def test_attributes_survive():
    func = matmul(4, 16, 4).with_attr("tvmpass.group", "{}")
    made = apply_recipe(Recipe((tir_passes.TileMatmul(m=4, n=16),)), func, TARGET)
    assert made.attrs["tvmpass.group"] == "{}"


def test_steps_are_tvm_passes():
    mm, soft = matmul(12, 48, 16), KERNELS["softmax"][0]()
    mod = tvm.IRModule(
        {"mm": mm.with_attr("global_symbol", "mm"), "soft": soft.with_attr("global_symbol", "soft")}
    )
    sequence = tvm.transform.Sequential(
        [
            tir_passes.InlineNeighbours(),
            tir_passes.TileMatmul(m=6, n=32),
            tir_passes.VectorizeInner(),
            tir_passes.UnrollInner(k=4),
            tir_passes.DecomposeReduction(),
        ]
    )
    made = sequence(mod)
    assert "T.vectorized(16)" in made["mm"].script() and "T.unroll(6)" in made["mm"].script()
    module = compile_all({"mm": made["mm"], "plain": mm, "soft": made["soft"], "soft_plain": soft})
    for name, plain, func in (("mm", "plain", mm), ("soft", "soft_plain", soft)):
        arrays = arguments(func)
        assert close(run(module, name, arrays), run(module, plain, arrays))


def test_facts_travel_between_passes():
    func = matmul(4, 16, 4)
    kernel = classify(func)
    back = recall(remember(func, kernel))
    assert (back.kind, back.anchor, back.epilogue, back.iterations) == (
        kernel.kind,
        kernel.anchor,
        kernel.epilogue,
        kernel.iterations,
    )


def test_costly_producer_is_not_evaluated_again_for_each_reader():
    """exp of a row vector, broadcast over many rows, stays a block of its own."""
    x, y = tensor("x", 18), tensor("y", 40, 18)
    e = te.compute((18,), lambda j: te.exp(x[j]), name="e")
    func = function(x, y, te.compute((40, 18), lambda i, j: y[i, j] + e[j], name="out"))
    schedule = tir_passes.InlineNeighbours().apply(s_tir.Schedule(func), classify(func))
    assert [schedule.get(b).name_hint for b in schedule.get_child_blocks(schedule.get_sblock("root"))] == [
        "e",
        "out",
    ]
