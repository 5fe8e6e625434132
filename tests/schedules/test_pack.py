"""Packed weights: the layout, the function that reads it, and its recipes."""

from __future__ import annotations

import numpy as np
import pytest

import schedules.cpu.pack as pack
from tests.tir_passes.cases import (
    KERNELS,
    OPTIONS,
    TARGET,
    arguments,
    close,
    compile_all,
    conv,
    matmul,
    run,
    scheduled,
)
from tir_passes.recipes import finish
from tvmpass.core.kernels import classify


@pytest.fixture
def always(monkeypatch):
    """Let small weights count as worth packing."""
    for name in ("MIN_ROW_BYTES", "MIN_DEPTH", "MIN_BYTES"):
        monkeypatch.setattr(pack, name, 0)


@pytest.mark.parametrize(
    "name", ["matmul", "matmul-wide", "conv-1x1", "conv-3x3", "conv-stride", "matmul-plain"]
)
def test_packed_kernel_gives_the_same_values(always, name):
    func = KERNELS[name][0]()
    packing = pack.packing(classify(func), TARGET)
    packed = packing.pack_function(func)
    assert classify(packed).kind == classify(func).kind
    arrays = arguments(func)
    relaid = list(arrays)
    relaid[packing.parameter] = packing.pack_array(arrays[packing.parameter])
    assert relaid[packing.parameter].shape == tuple(int(d) for d in packed.params[packing.parameter].shape)
    made = {f"recipe{i}": s for i, (_, s) in enumerate(scheduled(packed))}
    module = compile_all(
        {"plain": finish(func, TARGET, OPTIONS), "packed": finish(packed, TARGET, OPTIONS), **made}
    )
    expected = run(module, "plain", arrays)
    for key in ("packed", *made):
        assert close(run(module, key, relaid), expected), key


def test_last_vector_repeats_channels():
    packing = pack.Packing(parameter=1, block="c", size=42, lanes=16)
    weight = np.arange(3 * 42).reshape(3, 42)
    packed = packing.pack_array(weight)
    assert packed.shape == (3, 3, 16) and packed.flags.c_contiguous
    np.testing.assert_array_equal(packed[0], weight[:, :16])
    np.testing.assert_array_equal(packed[2], weight[:, 26:])


def test_small_weights_are_left_alone():
    assert pack.packing(classify(matmul(8, 512, 512)), TARGET) is None
    assert pack.packing(classify(conv(1, 8, 8, 64, 64, 3)), TARGET) is None


def test_large_weights_are_packed():
    packing = pack.packing(classify(matmul(8, 3072, 768)), TARGET)
    assert (packing.parameter, packing.size) == (1, 3072)


@pytest.mark.parametrize("name", ["batched-transposed", "depthwise", "softmax", "conv-nchw"])
def test_other_operands_are_not_weights(always, name):
    assert pack.packing(classify(KERNELS[name][0]()), TARGET) is None
