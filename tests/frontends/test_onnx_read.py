"""Damaged and hostile ONNX files give one clear line each."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.frontends.models import model, node, run, value
from tvmpass.core.constants import constant_array
from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.frontends.onnx import load_onnx


def _weighted() -> onnx.ModelProto:
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    return model([node("MatMul", ["x", "w"], ["y"])], [value("x", [2, 3])], ["y"], {"w": weight})


def _fails(path, kind=TvmpassError) -> str:
    with pytest.raises(kind) as caught:
        load_onnx(path)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_missing_file(tmp_path):
    assert "not found" in _fails(tmp_path / "no.onnx", UsageError)


def test_folder(tmp_path):
    assert "folder" in _fails(tmp_path, UsageError)


def test_text_file(tmp_path):
    path = tmp_path / "text.onnx"
    path.write_text("this is no model\n" * 20)
    assert "not an ONNX model" in _fails(path)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.7, 0.98])
def test_truncated_file(tmp_path, part):
    data = _weighted().SerializeToString()
    path = tmp_path / "cut.onnx"
    path.write_bytes(data[: int(len(data) * part)])
    text = _fails(path)
    assert str(path) in text


def test_tensor_with_too_little_data():
    made = _weighted()
    made.graph.initializer[0].raw_data = made.graph.initializer[0].raw_data[:-4]
    assert "'w' of shape [3, 4] needs 48 bytes but holds 44" in _fails(made)


def test_huge_shape_is_refused_before_memory_is_taken():
    made = _weighted()
    made.graph.initializer[0].dims[:] = [1 << 40, 1 << 20]
    assert "needs" in _fails(made)


def test_the_given_proto_is_not_changed():
    made = model([node("Relu", ["x"], ["y"])], [value("x", ["n", 3])], ["y"])
    before = made.SerializeToString()
    load_onnx(made)
    assert made.SerializeToString() == before


def _external(folder, location: str, data: bytes | None = None, **entries) -> onnx.ModelProto:
    made = _weighted()
    tensor = made.graph.initializer[0]
    if data is None:
        data = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, entry in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(entry))
    (folder / "model.onnx").write_bytes(made.SerializeToString())
    return data


def test_external_data_inside_the_folder(tmp_path):
    data = _external(tmp_path, "sub/w.bin", offset=8, length=48)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(b"\0" * 8 + data)
    mod = load_onnx(tmp_path / "model.onnx")
    constant = constant_array(mod["main"].body.blocks[0].bindings[0].value.args[1])
    assert np.array_equal(constant, np.arange(12, dtype=np.float32).reshape(3, 4))


def test_external_data_missing(tmp_path):
    _external(tmp_path, "w.bin")
    assert "'w.bin' of tensor 'w' is missing" in _fails(tmp_path / "model.onnx")


@pytest.mark.parametrize("location", ["../w.bin", "sub/../../w.bin", "/etc/hostname", ""])
def test_external_data_outside(tmp_path, location):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(_external(folder, location))
    assert "outside the model's folder" in _fails(folder / "model.onnx")


@pytest.mark.parametrize("link_folder", [False, True])
def test_external_data_through_a_link_outside(tmp_path, link_folder):
    folder, outside = tmp_path / "model", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    data = _external(folder, "link/w.bin" if link_folder else "w.bin")
    (outside / "w.bin").write_bytes(data)
    if link_folder:
        (folder / "link").symlink_to(outside)
    else:
        (folder / "w.bin").symlink_to(outside / "w.bin")
    assert "outside the model's folder" in _fails(folder / "model.onnx")


@pytest.mark.parametrize("entries", [{"length": 40}, {"offset": 8}, {"offset": -8}, {"length": "many"}])
def test_external_data_of_wrong_size(tmp_path, entries):
    (tmp_path / "w.bin").write_bytes(_external(tmp_path, "w.bin", **entries))
    assert "tensor 'w'" in _fails(tmp_path / "model.onnx")


def test_a_short_file_of_external_data_says_what_it_has(tmp_path):
    (tmp_path / "w.bin").write_bytes(_external(tmp_path, "w.bin")[:10])
    assert "bytes at offset 0 of w.bin, which has 10 (truncated?)" in _fails(tmp_path / "model.onnx")


def test_external_data_needs_a_path(tmp_path):
    (tmp_path / "w.bin").write_bytes(_external(tmp_path, "w.bin"))
    made = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    assert "pass the model's path" in _fails(made, UsageError)


def test_unsupported_operators_are_all_listed():
    nodes = [
        node("Relu", ["x"], ["a"], "fine"),
        node("NoSuchThing", ["a"], ["b"], "first"),
        node("NoSuchThing", ["b"], ["c"], "second"),
        node("Other", ["c"], ["y"], "third", domain="com.example"),
    ]
    text = _fails(model(nodes, [value("x", [2])], ["y"]))
    assert "NoSuchThing (first, second)" in text
    assert "com.example.Other (third)" in text
    assert "fine" not in text


def test_invalid_model():
    text = _fails(model([node("Add", ["x", "nowhere"], ["y"])], [value("x", [2])], ["y"]))
    assert "not a valid ONNX model" in text


def test_a_node_that_cannot_be_imported_is_named():
    nodes = [node("CumSum", ["x", "axis"], ["y"], "sum along what")]
    text = _fails(model(nodes, [value("x", [2, 3]), value("axis", [], "int64")], ["y"]))
    assert "node 'sum along what' (CumSum)" in text


@pytest.mark.parametrize("opset", [0, 9999])
def test_an_unknown_opset(opset):
    made = _weighted()
    made.opset_import[0].version = opset
    assert f"uses ONNX opset {opset}, which is unknown here" in _fails(made)


def test_an_element_type_without_a_name():
    made = _weighted()
    made.graph.initializer[0].data_type = 99
    assert "type 99 (w)" in _fails(made)


def test_a_value_that_fits_no_memory():
    made = model([node("Relu", ["x"], ["y"])], [value("x", [1 << 62, 5])], ["y"])
    assert "value 'x' has 4611686018427387904x5 elements" in _fails(made)


def test_sparse_weights_are_refused():
    made = model([node("MatMul", ["x", "w"], ["y"])], [value("x", [2, 3])], ["y"])
    values = numpy_helper.from_array(np.ones(1, "float32"), "w")
    indices = numpy_helper.from_array(np.zeros(1, "int64"), "places")
    made.graph.sparse_initializer.add(values=values, indices=indices, dims=[3, 4])
    assert "sparse tensor (w)" in _fails(made)


def test_both_branches_of_an_if():
    made = _branching()
    for chosen, expected in ((True, [2.0, 4.0]), (False, [-1.0, -2.0])):
        got = run(load_onnx(made), np.array(chosen), np.array([1, 2], np.float32))
        assert got[0].tolist() == expected


def test_the_branch_of_a_constant_if_takes_its_place():
    made = _branching(constant=True)
    mod = load_onnx(made)
    assert "if " not in mod.script()
    assert run(mod, np.array([1, 2], np.float32))[0].tolist() == [2.0, 4.0]


def _branching(constant: bool = False) -> onnx.ModelProto:
    branches = {
        "then_branch": helper.make_graph([node("Add", ["x", "x"], ["t"])], "then", [], [value("t", [2])]),
        "else_branch": helper.make_graph([node("Neg", ["x"], ["e"])], "else", [], [value("e", [2])]),
    }
    nodes = [node("If", ["c"], ["y"], "choice", **branches)]
    inputs = [value("x", [2])] if constant else [value("c", [], "bool"), value("x", [2])]
    return model(nodes, inputs, ["y"], {"c": np.array(True)} if constant else None)
