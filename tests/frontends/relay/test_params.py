"""Parameter files: the bytes of ``save_param_dict``, and ``.npz``."""

from __future__ import annotations

import struct

import ml_dtypes
import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from saved import PARAMS_MAGIC, params_bytes

from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.frontends.relay.params import parse_params, read_params

ARRAYS = {
    "w": np.arange(6, dtype="float32").reshape(2, 3),
    "größe": np.array(7, "int64"),
    "mask": np.array([True, False]),
    "half": np.array([1.5, -2], ml_dtypes.bfloat16),
    "none": np.zeros((0, 4), "int8"),
}


def same(found: dict, wanted: dict) -> bool:
    return list(found) == list(wanted) and all(
        found[n].dtype == a.dtype and found[n].shape == a.shape and np.array_equal(found[n], a)
        for n, a in wanted.items()
    )


def test_what_relay_saved_is_read(tmp_path):
    path = tmp_path / "net.params"
    path.write_bytes(params_bytes(ARRAYS))
    assert same(read_params(path), ARRAYS)
    path.write_bytes(params_bytes({}))
    assert read_params(path) == {}


def test_what_this_tvm_saves_is_read():
    arrays = {name: array for name, array in ARRAYS.items() if array.dtype != ml_dtypes.bfloat16}
    data = tvm.runtime.save_param_dict({name: tvm.runtime.tensor(a) for name, a in arrays.items()})
    found = parse_params(bytes(data))
    assert same({name: found[name] for name in arrays}, arrays)


def test_npz_is_told_by_its_content(tmp_path):
    path = tmp_path / "net.params"
    arrays = {"w": ARRAYS["w"], "big_endian": np.array([1, 2], ">i4"), "mask": ARRAYS["mask"]}
    with path.open("wb") as stream:
        np.savez(stream, **arrays)
    found = read_params(path)
    assert found["big_endian"].dtype == np.dtype("int32") and found["big_endian"].tolist() == [1, 2]
    assert np.array_equal(found["w"], arrays["w"]) and found["mask"].dtype == np.bool_


@pytest.mark.parametrize("array", [np.array(["text"]), np.array([{}], dtype=object)], ids=["text", "object"])
def test_what_is_no_number_is_refused(tmp_path, array):
    path = tmp_path / "net.npz"
    np.savez(path, w=array)
    with pytest.raises(TvmpassError, match="'w'"):
        read_params(path)


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(UsageError, match="parameter file not found"):
        read_params(tmp_path / "none.params")
    with pytest.raises(UsageError, match="is a folder"):
        read_params(tmp_path)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "it is empty"),
        (b"not parameters at all", "neither the bytes of relay.save_param_dict nor an .npz"),
        (struct.pack("<QQQ", PARAMS_MAGIC, 0, 1 << 60), "claims 1152921504606846976 names"),
        (struct.pack("<QQQQ", PARAMS_MAGIC, 0, 1, 1 << 50), "name 0 needs"),
        (struct.pack("<QQQ", PARAMS_MAGIC, 0, 0) + struct.pack("<Q", 3), "0 names but 3 tensors"),
        (params_bytes({"w": ARRAYS["w"]}) + b"x", "1 bytes more"),
        (params_bytes({"w": ARRAYS["w"]})[:-1], "truncated"),
        (params_bytes({"w": ARRAYS["w"]}).replace(b"w", b"\xff"), "no text"),
        (params_bytes({"w": ARRAYS["w"], "v": ARRAYS["w"]}).replace(b"v", b"w"), "two parameters 'w'"),
    ],
)
def test_damage_is_one_clear_line(data, said):
    with pytest.raises(TvmpassError) as caught:
        parse_params(data, "p")
    assert said in str(caught.value) and str(caught.value).startswith("p: ") and "\n" not in str(caught.value)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damage_anywhere_gives_a_clean_error_or_arrays(data):
    whole = bytearray(params_bytes({"w": ARRAYS["w"], "b": ARRAYS["mask"]}))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    del whole[data.draw(st.integers(len(whole) // 2, len(whole))) :]
    try:
        found = parse_params(bytes(whole), "p")
    except TvmpassError as error:
        assert str(error).startswith("p: ")
    else:
        assert len(found) == 2
