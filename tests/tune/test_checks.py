"""Arguments between guards: what a kernel does to them shows."""

from __future__ import annotations

import ctypes
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tvm

from tvmpass.tune.checks import (
    Arguments,
    Case,
    compare,
    numpy_dtype,
    read_cases,
    write_cases,
    write_inputs,
    write_results,
)
from tvmpass.tune.drawing import INOUT, INPUT, OUTPUT, SCALAR, Argument

DTYPES = ("float32", "float16", "bfloat16", "float64", "int8", "int64", "bool")


def case(folder: Path, *arguments: Argument, scale: float = 1.0) -> Case:
    return Case("timed", arguments, True, False, scale, folder)


def filled(folder: Path, dtype: str = "float32", shape=(3, 5)) -> tuple[Case, np.ndarray]:
    made = case(folder, Argument(INPUT, dtype, shape), Argument(OUTPUT, dtype, shape))
    values = np.arange(np.prod(shape)).reshape(shape).astype(numpy_dtype(dtype))
    write_inputs(made, [values, None])
    return made, values


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 5), (1,), (0, 4), ()])
def test_arguments_hold_what_was_written(tmp_path, dtype, shape, guarded):
    made, values = filled(tmp_path, dtype, shape)
    arguments = Arguments(made, tvm.cpu(), guarded)
    tensor, out = arguments.values
    assert str(tensor.dtype) == dtype and tuple(tensor.shape) == shape
    assert tensor.numpy().tobytes() == values.tobytes()
    assert set(out.numpy().tobytes()) <= {0xFF}
    assert arguments.damage() is None
    (found,) = arguments.outputs()
    assert found.dtype == values.dtype and found.shape == shape


def test_unwritten_floats_are_nan(tmp_path):
    for dtype in ("float32", "float16", "bfloat16", "float64"):
        made, _ = filled(tmp_path, dtype)
        (out,) = Arguments(made, tvm.cpu(), guarded=True).outputs()
        assert np.isnan(out.astype("float64")).all()


@pytest.mark.parametrize(
    ("which", "offset", "text"),
    [
        (1, -1, "wrote before the start of argument 1"),
        (1, -4096, "wrote before the start of argument 1"),
        (1, 60, "wrote beyond the end of argument 1"),
        (0, 60 + 4095, "wrote beyond the end of argument 0"),
        (0, 13, "changed argument 0, which is an input"),
    ],
)
def test_writes_to_the_wrong_place_show(tmp_path, which, offset, text):
    made, _ = filled(tmp_path)
    arguments = Arguments(made, tvm.cpu(), guarded=True)
    # What a kernel would do with the address that it is given.
    address = np.from_dlpack(arguments.values[which]).ctypes.data
    ctypes.c_uint8.from_address(address + offset).value ^= 1
    assert arguments.damage() == text


def test_arrays_are_aligned_alike(tmp_path):
    made, _ = filled(tmp_path)
    for _ in range(5):
        arguments = Arguments(made, tvm.cpu(), guarded=True)
        for tensor in arguments.values:
            assert np.from_dlpack(tensor).ctypes.data % 64 == 0


def test_old_content_and_scalars(tmp_path):
    made = case(tmp_path, Argument(INOUT, "int32", (4,)), Argument(SCALAR, "int64", value=7))
    write_inputs(made, [np.arange(4, dtype="int32"), None])
    arguments = Arguments(made, tvm.cpu(), guarded=True)
    assert arguments.values[1] == 7 and made.outputs == [0]
    assert arguments.outputs()[0].tolist() == [0, 1, 2, 3]


def test_cases_come_back_from_disk(tmp_path):
    made, _ = filled(tmp_path, "bfloat16")
    write_results(made, [np.full((3, 5), 2.5, ml_dtypes.bfloat16)])
    write_cases([made], tmp_path)
    (again,) = read_cases(tmp_path)
    assert again == made
    assert again.results()[0].dtype == ml_dtypes.bfloat16 and (again.results()[0] == 2.5).all()


def test_comparison_is_relative_to_the_scale(tmp_path):
    made = case(tmp_path)
    want = np.array([1e-3, 100.0], "float32")
    assert compare(made, [want], [want + np.float32(1e-3)]) is None
    assert "largest difference 0.01" in str(compare(made, [want], [want + np.float32(1e-2)]))
    assert compare(case(tmp_path, scale=10.0), [want], [want + np.float32(1e-2)]) is None
    gap = compare(made, [want], [np.array([1e-3, np.nan], "float32")])
    assert gap is not None and gap.startswith("timed inputs: output 0: 1 non-finite values differ")
    counts = np.array([1, 2], "int32")
    assert "1 of 2 values differ" in str(compare(made, [counts], [counts + np.array([0, 1], "int32")]))
