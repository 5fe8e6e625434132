"""Recipes for products on CUDA: what is listed, what steps refuse, what the emitted text holds."""

from __future__ import annotations

import pytest
from tvm import s_tir

import tir_passes
from schedules.cuda import frame
from tests.tir_passes.cases import KERNELS, SYMBOLIC, matmul
from tests.tir_passes.products import conv, depthwise, product, transposed_after
from tests.tir_passes.test_steps import refusal
from tir_passes.cuda_contractions import contraction_steps
from tir_passes.recipes import Recipe, apply_recipe, parse_recipe
from tvmpass.compile.cuda_source import emit_cuda
from tvmpass.compile.target import parse_target
from tvmpass.core.decision import Refusal
from tvmpass.core.kernels import classify
from tvmpass.core.options import Options

TARGET = parse_target("cuda:sm_80,sm_90", 1)
OPTIONS = Options(threads=1)
CONTRACTIONS = ("matmul", "conv", "depthwise")
NAMES = [name for name, (_, kind) in {**KERNELS, **SYMBOLIC}.items() if kind in CONTRACTIONS]


def listed(func, options=OPTIONS, target=TARGET) -> list[Recipe]:
    return [Recipe(steps) for steps in contraction_steps(classify(func), target, options)]


def emitted(func, recipe=None, target=TARGET):
    made = apply_recipe(listed(func, target=target)[0] if recipe is None else recipe, func, target)
    assert not isinstance(made, Refusal), made.text()
    return emit_cuda(made, target, "kernel")


@pytest.mark.parametrize("name", NAMES)
def test_few_distinct_and_the_same_each_time(name):
    func = {**KERNELS, **SYMBOLIC}[name][0]()
    found = listed(func)
    assert 1 <= len(found) <= 32 and len(set(found)) == len(found)
    assert found == listed(func)
    assert all(parse_recipe(str(recipe)) == recipe for recipe in found)


@pytest.mark.parametrize("name", NAMES)
def test_the_first_recipe_is_one_launch_within_the_limits(name):
    source = emitted({**KERNELS, **SYMBOLIC}[name][0]())
    kernel = source.kernels[0]
    assert len(source.kernels) == 1 and 32 <= kernel.threads <= 1024
    assert kernel.dynamic_shared_bytes + kernel.static_shared_bytes <= 163 * 1024


def test_half_precision_goes_to_tensor_cores_in_a_pipeline():
    func = product(128, 3072, 768)
    assert str(listed(func)[0]) == (
        "inline-epilogue tile-warps stage-shared vectorize-loads pipeline-loads{stages=3} tensorize-wmma "
        "unroll-registers"
    )
    source = emitted(func)
    body = source.source[source.source.rindex('extern "C" __global__') :]
    assert len(source.kernels) == 1 and "wmma::mma_sync(" in body
    assert "cp_async_legacy_cg_16_2_2(" in body and "wait_group_2();" in body
    assert "halved_ptr" in body and "c_ptr" not in body, "the epilogue is part of the kernel"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, False), (True, False), (False, True), (True, True)])
def test_operands_are_loaded_in_the_order_they_have(dtype, trans_a, trans_b):
    text = emitted(product(64, 64, 64, dtype, trans_a=trans_a, trans_b=trans_b)).source
    for side, turned in (("a", trans_a), ("b", trans_b)):
        layout = "col_major" if turned else "row_major"
        assert f"wmma::matrix_{side}, 16, 16, 16" in text
        element = "half" if dtype == "float16" else "nv_bfloat16"
        assert f"wmma::matrix_{side}, 16, 16, 16, {element}, nvcuda::wmma::{layout}>" in text


def test_single_precision_is_staged_in_vectors():
    text = emitted(matmul(256, 256, 64)).source
    assert "mma_sync" not in text and "cp_async_legacy_cg_16_4_4(" in text
    assert "*(float4*)(relu_ptr" in text and "#pragma unroll" in text


def test_odd_extents_are_guarded_not_padded_in_memory():
    text = emitted(product(37, 53, 19)).source
    assert "< 37" in text and "< 53" in text and "cp_async_legacy_cg" not in text


@pytest.mark.parametrize(("columns", "together"), [(130, False), (132, True)])
def test_a_vector_is_stored_where_its_guard_holds_for_all_of_it(columns, together):
    recipe = next(r for r in listed(product(1, columns, 64, "float32")) if "tile-blocks" in str(r))
    stored = "*(float4*)(halved_ptr" in emitted(product(1, columns, 64, "float32"), recipe).source
    assert stored is together


def test_windows_of_aligned_channels_are_copied_asynchronously():
    text = emitted(conv(16, 16, 32, 64, 3, pad=1)).source
    assert "mma_sync(" in text and "cp_async_legacy_pred_cg_16_2_2(" in text


def test_a_reader_in_another_order_gets_a_launch_of_its_own():
    assert len(emitted(transposed_after(20, 36, 16)).kernels) == 2


def test_few_results_of_a_deep_reduction_are_split():
    func = product(16, 256, 4096)
    recipe = listed(func)[0]
    assert "split-k{parts=8} tile-warps" in str(recipe)
    source = emitted(func, recipe)
    assert [kernel.grid[2] for kernel in source.kernels] == [8, 1]
    assert "split-k" not in str(listed(product(1024, 1024, 512))[0])


def test_switches():
    func = product(128, 256, 256)
    texts = {name: list(map(str, listed(func, Options(threads=1, **{name: "off"})))) for name in
             ("tile", "pipeline", "unroll", "tensorize")}  # fmt: skip
    assert texts["tile"] == []
    assert texts["pipeline"] and not any("pipeline" in text for text in texts["pipeline"])
    assert texts["unroll"] and not any("unroll" in text for text in texts["unroll"])
    assert texts["tensorize"] and not any("wmma" in text for text in texts["tensorize"])


def test_before_sm_80_copies_are_not_asynchronous():
    func, target = product(128, 256, 256), parse_target("cuda:sm_75", 1)
    assert "pipeline-loads{asynchronous=false}" in str(listed(func, target=target)[0])
    assert "cp_async" not in emitted(func, target=target).source


def test_before_sm_80_tensor_cores_know_no_bfloat16():
    target = parse_target("cuda:sm_75", 1)
    assert "wmma" in str(listed(product(64, 64, 64, "float16"), target=target)[0])
    assert not any("wmma" in str(r) for r in listed(product(64, 64, 64, "bfloat16"), target=target))


def test_more_batches_than_the_grid_has_along_z_are_walked_along_x(monkeypatch):
    monkeypatch.setattr(frame, "MAX_GRID_YZ", 2)
    recipe = listed(KERNELS["batched"][0]())[0]
    assert emitted(KERNELS["batched"][0](), recipe).kernels[0].grid[1:] == (1, 1)


def test_depthwise_is_computed_where_it_lies_and_vectors_are_summed_by_several_threads():
    first = str(listed(depthwise(8, 8, 32))[0])
    assert first.startswith("widen-sums inline-producers tile-results{threads=128,lanes=8}")
    assert "tile-row-threads" in str(listed(product(1, 256, 512))[0])
    assert "across=true" not in str(listed(product(1, 256, 512, trans_b=True))[0])


TILED = (tir_passes.InlineEpilogue(), tir_passes.TileBlocks(m=32, n=32, k=8, tm=2, tn=4))
WARPS = (tir_passes.InlineEpilogue(), tir_passes.TileWarps(m=32, n=32, k=16))


@pytest.mark.parametrize(
    ("step", "before", "func", "code", "evidence"),
    [
        (tir_passes.TileBlocks(), (), "softmax", "wrong-kernel-kind", ("kind", "norm-softmax")),
        (tir_passes.TileWarps(), (), "softmax", "wrong-kernel-kind", ("kind", "norm-softmax")),
        (tir_passes.TileBlocks(m=30), (), "matmul", "bad-option", ("option", "m")),
        (tir_passes.TileBlocks(tn=6), (), "matmul", "bad-option", ("option", "tn")),
        (tir_passes.TileBlocks(m=256, n=256, tm=2, tn=4), (), "matmul", "bad-option", ("option", "m")),
        (tir_passes.TileBlocks(), TILED, "matmul", "block-missing", ("block", "c")),
        (tir_passes.TileWarps(), (), "matmul", "not-half-precision", ("dtypes", "float32 and float32")),
        (tir_passes.TileWarps(n=48), (), "matmul-half", "bad-option", ("option", "n")),
        (tir_passes.TileWarps(m=512, n=512, wm=8, wn=8), (), "matmul-half", "bad-option", ("option", "wm")),
        (tir_passes.StageShared(), (), "matmul", "block-missing", ("block", "c_lhs")),
        (tir_passes.StageShared(pad=4), TILED, "matmul", "bad-option", ("option", "pad")),
        (tir_passes.VectorizeLoads(), TILED, "matmul", "not-staged", ("block", "c")),
        (tir_passes.VectorizeLoads(bytes=3), TILED, "matmul", "bad-option", ("option", "bytes")),
        (tir_passes.PipelineLoads(), (), "matmul", "block-missing", ("block", "c_lhs")),
        (tir_passes.PipelineLoads(), TILED, "matmul", "not-staged", ("block", "c")),
        (tir_passes.PipelineLoads(stages=1), TILED, "matmul", "bad-option", ("option", "stages")),
        (tir_passes.TensorizeWmma(), TILED, "matmul", "block-missing", ("block", "c_lhs_fragment")),
        (tir_passes.TensorizeWmma(), WARPS, "matmul-half", "not-staged", ("block", "c")),
        (tir_passes.SplitK(parts=3), (), "matmul", "bad-option", ("option", "parts")),
        (tir_passes.SplitK(parts=32), (), "matmul", "bad-option", ("value", 32)),
        (tir_passes.SplitK(), TILED, "matmul", "block-missing", ("block", "c")),
        (tir_passes.WidenSums(), (), "matmul", "not-half-precision", ("dtypes", "float32")),
        (tir_passes.WidenSums(), (), "softmax", "wrong-kernel-kind", ("kind", "norm-softmax")),
    ],
)
def test_refusals(step, before, func, code, evidence):
    found = refusal(step, KERNELS[func][0](), before)
    assert found.code == code and found.evidence[evidence[0]] == evidence[1]


def test_steps_are_tvm_passes():
    func = matmul(32, 64, 32)
    schedule = s_tir.Schedule(func)
    for step in (*TILED, tir_passes.StageShared(), tir_passes.VectorizeLoads()):
        schedule = step.apply(schedule, classify(func))
        assert not isinstance(schedule, Refusal)
    script = schedule.mod.script()
    assert 'scope="shared.dyn"' in script and "T.vectorized(4)" in script
