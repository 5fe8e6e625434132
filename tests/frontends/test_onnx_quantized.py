"""Integer convolution and matrix product against ONNX's reference."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tests.frontends.models import model, node, run
from tvmpass.frontends.onnx import load_onnx

RNG = np.random.default_rng(0)
TYPES = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}


def _check(one, x: np.ndarray, constants: dict, most: int = 0):
    """Compare with the reference; results may be ``most`` steps apart."""
    given = helper.make_tensor_value_info("x", TYPES[str(x.dtype)], list(x.shape))
    made = model([one], [given], ["y"], constants)
    (expected,) = ReferenceEvaluator(made).run(None, {"x": x})
    (got,) = run(load_onnx(made), x)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    assert np.abs(got.astype(np.int64) - expected.astype(np.int64)).max() <= most


def _image(dtype: str) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, (1, 3, 5, 5), endpoint=True).astype(dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("attributes", [{}, {"pads": [1, 1, 1, 1], "strides": [2, 2]}])
def test_conv_integer(dtype, attributes):
    weight = RNG.integers(-128, 127, (4, 3, 3, 3)).astype(dtype)
    constants = {"w": weight, "xz": np.array(7, dtype), "wz": np.array(3, dtype)}
    _check(node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], **attributes), _image(dtype), constants)


@pytest.mark.parametrize("bias", [False, True])
def test_qlinear_conv(bias):
    constants = {
        "xs": np.array(0.02, "float32"), "xz": np.array(120, "uint8"),
        "w": RNG.integers(-128, 127, (4, 3, 3, 3)).astype("int8"),
        "ws": np.array([0.01, 0.02, 0.005, 0.03], "float32"), "wz": np.zeros(4, "int8"),
        "ys": np.array(0.2, "float32"), "yz": np.array(100, "uint8"),
    }  # fmt: skip
    names = list(constants)
    if bias:
        constants["b"] = np.array([100, -200, 300, 0], "int32")
    one = node("QLinearConv", ["x", *names, *(["b"] if bias else [])], ["y"], pads=[1, 1, 1, 1])
    x = _image("uint8")
    given = helper.make_tensor_value_info("x", TYPES["uint8"], list(x.shape))
    (got,) = run(load_onnx(model([one], [given], ["y"], constants)), x)
    # The reference spreads a scale per channel over the wrong axis; numpy says it directly.
    wide = np.pad(x.astype(np.int64) - 120, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(2, 3))
    total = np.einsum("nchwij,ocij->nohw", windows, constants["w"].astype(np.int64))
    if bias:
        total = total + constants["b"].reshape(-1, 1, 1)
    scaled = total * (0.02 * constants["ws"].astype(np.float64)).reshape(-1, 1, 1) / 0.2
    expected = np.clip(np.rint(scaled) + 100, 0, 255)
    assert got.dtype == np.uint8
    # float32 and float64 may fall on two sides of a half.
    assert np.abs(got.astype(np.int64) - expected).max() <= 1


def test_qlinear_matmul():
    constants = {
        "xs": np.array(0.03, "float32"), "xz": np.array(110, "uint8"),
        "w": RNG.integers(0, 255, (4, 6)).astype("uint8"),
        "ws": np.array(0.02, "float32"), "wz": np.array(128, "uint8"),
        "ys": np.array(0.1, "float32"), "yz": np.array(90, "uint8"),
    }  # fmt: skip
    x = RNG.integers(0, 255, (5, 4)).astype("uint8")
    _check(node("QLinearMatMul", ["x", *constants], ["y"]), x, constants, most=1)
