"""Convolutions of padded images: without rows of padding, and without a padded copy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tvm import s_tir, te, tirx

import tir_passes
from tests.tir_passes.cases import (
    OPTIONS,
    SYMBOLIC,
    TARGET,
    arguments,
    close,
    compile_all,
    conv,
    depthwise,
    finite,
    function,
    matmul,
    padded,
    run,
    tensor,
)
from tests.tir_passes.test_steps import refusal
from tir_passes.recipes import apply_recipe, finish, recipes
from tvmpass.core.decision import Refusal
from tvmpass.core.kernels import classify


def few_rows(func):
    return listed(func, "skip-padding")


def uncopied(func):
    return listed(func, "inline-padding")


def listed(func, step: str):
    return [r for r in recipes(classify(func), TARGET, OPTIONS) if step in str(r)]


def half_depthwise():
    x, weight = tensor("x", 1, 2, 6, 16, dtype="float16"), tensor("w", 3, 3, 1, 16, dtype="float16")
    image = te.compute(
        (1, 4, 8, 16),
        lambda b, i, j, c: tirx.if_then_else(
            tirx.all(i >= 1, i < 3, j >= 1, j < 7), x[b, i - 1, j - 1, c], tirx.const(0, "float16")
        ),
        name="pad_temp",
    )
    ry, rx = te.reduce_axis((0, 3), "ry"), te.reduce_axis((0, 3), "rx")
    out = te.compute(
        (1, 2, 6, 16),
        lambda b, i, j, c: te.sum(image[b, i + ry, j + rx, c] * weight[ry, rx, 0, c], axis=[ry, rx]),
        name="out",
    )
    return function(x, weight, out)


@pytest.mark.parametrize(
    "shape",
    [
        dict(h=2, w=14, c=24, k=5, pad=2),
        dict(h=5, w=7, c=20, k=5, pad=2, stride=2),
        dict(h=6, w=8, c=8, k=3, pad=2, dilation=2),
        dict(h=3, w=30, c=40, k=7, pad=3),
    ],
)
def test_numbers_are_those_of_the_unscheduled_kernel(shape):
    func = finite(depthwise(2, shape["h"], shape["w"], shape["c"], shape["k"], **{
        name: value for name, value in shape.items() if name in ("pad", "stride", "dilation")
    }))  # fmt: skip
    found = few_rows(func) + uncopied(func)
    assert few_rows(func) and any("unroll-rows" in str(r) for r in uncopied(func))
    made = {f"recipe{i}": finish(apply_recipe(r, func, TARGET), TARGET, OPTIONS) for i, r in enumerate(found)}
    module = compile_all({"plain": finish(func, TARGET, OPTIONS), **made})
    arrays = arguments(func)
    expected = run(module, "plain", arrays)
    for name in made:
        assert close(run(module, name, arrays), expected), name


def test_data_that_is_not_finite_is_kept():
    func = finite(depthwise(1, 2, 14, 24, 5, pad=2))
    made = finish(apply_recipe(few_rows(func)[0], func, TARGET), TARGET, OPTIONS)
    module = compile_all({"plain": finish(func, TARGET, OPTIONS), "made": made})
    arrays = arguments(func)
    arrays[0][0, 1, 3, 5], arrays[0][0, 0, 0, 7], arrays[0][0, 1, 13, 20] = np.nan, np.inf, -np.inf
    expected, got = run(module, "plain", arrays), run(module, "made", arrays)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(expected))
    assert np.isnan(got).any()


def test_weights_that_may_not_be_finite_count():
    """Zero padding times infinity is NaN: recipes that leave such products out are refused."""
    func = depthwise(1, 2, 14, 24, 5, pad=2)
    every = recipes(classify(func), TARGET, OPTIONS)
    made = {str(r): apply_recipe(r, func, TARGET) for r in every}
    refused = {text: m for text, m in made.items() if isinstance(m, Refusal)}
    assert set(refused) == {str(r) for r in few_rows(func) + uncopied(func)}
    assert refused and len(refused) < len(made)
    for found in refused.values():
        assert found.code == "padding-counts" and found.evidence == {"factors": ["w"]}
    kept = {f"recipe{i}": m for i, m in enumerate(made.values()) if not isinstance(m, Refusal)}
    finished = {name: finish(m, TARGET, OPTIONS) for name, m in kept.items()}
    module = compile_all({"plain": finish(func, TARGET, OPTIONS), **finished})
    arrays = arguments(func)
    arrays[1][0, 0, 0, 3], arrays[1][4, 2, 0, 9] = np.inf, np.nan
    expected = np.isnan(run(module, "plain", arrays))
    assert expected.any() and not expected.all()
    for name in kept:
        np.testing.assert_array_equal(np.isnan(run(module, name, arrays)), expected, err_msg=name)


@pytest.mark.parametrize(
    "func",
    [
        depthwise(1, 40, 7, 24, 3, pad=1),
        depthwise(2, 9, 9, 8, 3, pad=2, dilation=2),
        depthwise(1, 31, 3, 18, 5, pad=2, stride=2),
        conv(1, 7, 9, 3, 16, 3, pad=1),
        conv(2, 8, 6, 8, 24, 3, stride=2, pad=1),
        conv(1, 6, 6, 8, 16, 3, pad=1, groups=2),
    ],
)
def test_numbers_without_a_padded_copy(func):
    func = finite(func)
    found = uncopied(func)
    assert found
    made = {f"recipe{i}": finish(apply_recipe(r, func, TARGET), TARGET, OPTIONS) for i, r in enumerate(found)}
    assert not any("pad_temp" in m.script() for m in made.values())
    module = compile_all({"plain": finish(func, TARGET, OPTIONS), **made})
    arrays = arguments(func)
    expected = run(module, "plain", arrays)
    for name in made:
        assert close(run(module, name, arrays), expected), name


def test_what_cannot_do_without_a_copy():
    assert refusal(tir_passes.InlinePadding(), matmul(8, 32, 8)).code == "wrong-kernel-kind"
    found = refusal(tir_passes.InlinePadding(), conv(1, 6, 6, 4, 8, 3))
    assert found.code == "block-missing" and found.evidence["block"] == "padding"
    assert refusal(tir_passes.InlinePadding(), finite(half_depthwise())).code == "not-single-precision"


def test_rows_of_padding_are_neither_kept_nor_multiplied_with():
    func = finite(depthwise(1, 2, 14, 32, 5, pad=2))
    kernel = classify(func)
    schedule = s_tir.Schedule(func)
    for step in few_rows(func)[0].steps:
        schedule = step.apply(schedule, kernel)
    padding = next(b for b in schedule.mod["main"].body.block.alloc_buffers if b.name == "pad_temp")
    assert [int(d) for d in padding.shape] == [1, 2, 18, 32]
    script = schedule.mod.script()
    assert script.count("T.unroll(2)") >= 1 and script.count("T.unroll(5)") >= 1


def test_the_first_recipe_is_as_before():
    func = depthwise(1, 2, 14, 24, 5, pad=2)
    every = [str(r) for r in recipes(classify(func), TARGET, OPTIONS)]
    assert every[0].startswith("inline-neighbours tile-window") and len(every) <= 32
    assert any("skip-padding" in text for text in every)


@pytest.mark.parametrize(
    "func",
    [
        depthwise(1, 6, 6, 8, 3),
        depthwise(1, 40, 6, 8, 3, pad=1),
    ],
)
def test_nothing_to_leave_out(func):
    func = finite(func)
    assert not few_rows(func)
    found = refusal(tir_passes.SkipPadding(), func)
    assert found.code == "no-padded-rows" and found.evidence == {"block": "out"}


def test_other_kernels_and_other_types():
    assert refusal(tir_passes.SkipPadding(), matmul(8, 32, 8)).code == "wrong-kernel-kind"
    found = refusal(tir_passes.SkipPadding(), finite(half_depthwise()))
    assert found.code == "not-single-precision" and found.evidence["dtype"] == "float16"
    assert not [
        r
        for r in few_rows(half_depthwise())
        if not isinstance(apply_recipe(r, half_depthwise(), TARGET), Refusal)
    ]


def test_too_many_copies_are_refused():
    func = finite(depthwise(1, 2, 14, 24, 5, pad=2))
    before = (tir_passes.SkipPadding(), tir_passes.TileWindow(m=4, rows=2))
    found = refusal(tir_passes.UnrollRows(limit=9), func, before)
    assert found.code == "bad-option" and "10 copies" in found.text()
    found = refusal(tir_passes.UnrollRows(), SYMBOLIC["mean-reduced"][0]())
    assert found.code == "extent-not-constant" and found.evidence["block"]
    gone = dataclasses.replace(classify(func), anchor="gone")
    assert tir_passes.UnrollRows().check(s_tir.Schedule(func), gone).code == "block-missing"


def test_padding_is_recognised_by_what_it_does():
    x, weight = tensor("x", 1, 2, 6, 16), tensor("w", 3, 3, 1, 16)
    image = padded(x, 1)
    ry, rx = te.reduce_axis((0, 3), "ry"), te.reduce_axis((0, 3), "rx")
    out = te.compute(
        (1, 2, 6, 16),
        lambda b, i, j, c: te.sum(image[b, i + ry, j + rx, c] * weight[ry, rx, 0, c], axis=[ry, rx]),
        name="any_name",
    )
    assert few_rows(function(x, weight, out))
