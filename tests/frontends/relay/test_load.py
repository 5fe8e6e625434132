"""Relay programs through `tvmpass.load`, and which format a file is."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
import tvm
from running import run_module
from saved import Saved, params_bytes

import tvmpass
from tvmpass.frontends.formats import is_text, model_format
from tvmpass.frontends.relay.load import load_relay

TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(2, 3), float32], %w: Tensor[(4, 3), float32], %b: Tensor[(4), float32]) {
  %0 = nn.dense(%x, %w, units=None);
  %1 = nn.bias_add(%0, %b);
  (%1, nn.relu(%1))
}
"""
X = np.arange(6, dtype="float32").reshape(2, 3) - 3
W = np.arange(12, dtype="float32").reshape(4, 3) / 8
B = np.array([1, -1, 0, 2], "float32")
RESULT = X @ W.T + B


def saved_program() -> str:
    """Return the JSON of the same program with one output."""
    saved = Saved()
    x, w = saved.var("x", saved.tensor((2, 3))), saved.var("w", saved.tensor((4, 3)))
    attrs = saved.add("relay.attrs.DenseAttrs", {"units": 0, "out_dtype": ""})
    return saved.text(saved.module(main=saved.function([x, w], saved.call("nn.dense", x, w, attrs=attrs))))


def names(mod, which: str) -> list[str]:
    return json.loads(mod["main"].attrs[f"tvmpass.{which}"])


def test_text_from_a_file_with_all_parameters_as_inputs(tmp_path):
    path = tmp_path / "net.relay"
    path.write_text(TEXT)
    mod = tvmpass.load(path)
    assert names(mod, "inputs") == ["x", "w", "b"]
    assert names(mod, "outputs") == ["output0", "output1"]
    assert mod["main"].attrs["tvmpass.model"] == "net.relay"
    first, second = run_module(mod, X, W, B)
    np.testing.assert_allclose(first, RESULT, rtol=1e-6, atol=0)
    np.testing.assert_allclose(second, np.maximum(RESULT, 0), rtol=1e-6, atol=0)


def test_the_artifact_has_the_names():
    built = tvmpass.build(tvmpass.load(TEXT, params={"w": W, "b": B}))
    assert [entry.name for entry in built.input_info] == ["x"]
    assert list(built.output_names) == ["output0", "output1"]
    np.testing.assert_allclose(built.run(x=X)[0], RESULT, rtol=1e-6, atol=0)


@pytest.mark.parametrize("kind", ["params", "npz", "bytes", "dict", "tensors"])
def test_parameters_become_constants(tmp_path, kind):
    arrays = {"w": W, "b": B}
    if kind == "params":
        given = tmp_path / "net.params"
        given.write_bytes(params_bytes(arrays))
    elif kind == "bytes":
        given = params_bytes(arrays)
    elif kind == "npz":
        given = tmp_path / "net.npz"
        np.savez(given, **arrays)
    else:
        given = arrays if kind == "dict" else {n: tvm.runtime.tensor(a) for n, a in arrays.items()}
    mod = tvmpass.load(TEXT, params=given)
    assert names(mod, "inputs") == ["x"]
    np.testing.assert_allclose(run_module(mod, X)[0], RESULT, rtol=1e-6, atol=0)


def test_parameters_that_do_not_fit():
    with pytest.raises(tvmpass.UsageError, match=r"'w' is declared .*\(4, 3\)"):
        tvmpass.load(TEXT, params={"w": W.T})
    with pytest.raises(tvmpass.UsageError, match="'w'"):
        tvmpass.load(TEXT, params={"w": W.astype("float64")})
    with pytest.raises(tvmpass.UsageError, match=r"none of the given parameters \('weight'\)"):
        tvmpass.load(TEXT, params={"weight": W})
    with pytest.raises(tvmpass.UsageError, match=r"none of the given parameters \('weight', \.\.\.\)"):
        tvmpass.load(TEXT, params={"weight": W, "bias": W})
    with pytest.raises(tvmpass.UsageError, match="arrays by name"):
        tvmpass.load(TEXT, params=[W])


def test_json_is_told_by_its_content(tmp_path):
    for name in ("net.json", "net.relay", "net.txt"):
        path = tmp_path / name
        path.write_text("\n " + saved_program())
        mod = tvmpass.load(path, params={"w": W})
        np.testing.assert_allclose(run_module(mod, X)[0], X @ W.T, rtol=1e-6, atol=0)
    assert names(load_relay(saved_program() + "\n"), "inputs") == ["x", "w"]


def test_shapes_of_open_dims():
    text = TEXT.replace("(2, 3)", "(?, 3)")
    mod = tvmpass.load(text, shapes={"x": (5, 3)}, params={"w": W, "b": B})
    assert [int(dim) for dim in mod["main"].params[0].ty.shape] == [5, 3]
    built = tvmpass.build(tvmpass.load(text, shapes={"x": ("n", 3)}, params={"w": W, "b": B}))
    for count in (1, 4):
        array = np.ones((count, 3), "float32")
        np.testing.assert_allclose(built.run(x=array)[0], array @ W.T + B, rtol=1e-6, atol=0)
    with pytest.raises(tvmpass.UsageError, match="unknown input 'y'"):
        tvmpass.load(text, shapes={"y": (5, 3)})


def test_a_value_that_no_memory_holds():
    text = '#[version = "0.0.5"]\ndef @main() { zeros(shape=[16777216, 16777216, 8], dtype="float32") }\n'
    with pytest.raises(tvmpass.TvmpassError, match="any memory holds"):
        tvmpass.load(text)


def test_onnx_keeps_its_own_parameters(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx.ModelProto().SerializeToString())
    with pytest.raises(tvmpass.UsageError, match="ONNX holds its own"):
        tvmpass.load(path, params={"w": W})


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "is empty"), (b"#[version = \xff", "no UTF-8 text"), (b"{", "not JSON")],
)
def test_files_that_are_no_program(tmp_path, content, said):
    path = tmp_path / "net.relay"
    path.write_bytes(content)
    with pytest.raises(tvmpass.TvmpassError, match=said):
        tvmpass.load(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(tvmpass.UsageError, match="model file not found"):
        tvmpass.load(tmp_path / "none.relay")


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.onnx", '#[version = "0.0.5"]', "onnx"),
        ("a.relay", "anything", "relay"),
        ("a.relay", '{"root": 1}', "relay-json"),
        ("a.json", '{"root": 1, "nodes": []}', "relay-json"),
        ("a.json", '{"root_index": 1, "nodes": []}', "relax-json"),
        ("a.txt", '// said\n/* more */ #[version = "0.0.5"]', "relay"),
        ("a.txt", "v0.0.4\ndef @main() {}", "relay"),
        ("a.txt", "\ufeffdef @main() {}", "relay"),
        ("a", "fn (%x) {%x}", "relay"),
        ("a.pb", "\x08\x07", "onnx"),
        ("a.pt2", "PK", "torch"),
    ],
)
def test_formats(tmp_path, name, content, kind):
    path = tmp_path / name
    path.write_text(content)
    assert model_format(path) == kind and model_format(str(path)) == kind


def test_texts_are_told_from_paths():
    assert is_text(TEXT) and is_text("def @main() { 1f }") and is_text("a\nb")
    assert not is_text("models/net.relay") and not is_text("definitely.relay")
    assert model_format(TEXT) == "relay"
