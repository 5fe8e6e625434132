"""Node-graph JSON: what is read, and what is refused before memory is taken."""

from __future__ import annotations

import base64
import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from saved import Saved, tensor_bytes

from tvmpass.core.errors import TvmpassError
from tvmpass.frontends.relay import ast
from tvmpass.frontends.relay.errors import RelayError
from tvmpass.frontends.relay.nodes import AttrsNode, NodeGraph

DTYPES = [np.dtype(kind) for kind in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "?")]
DTYPES.append(np.dtype(ml_dtypes.bfloat16))


def metadata(saved: Saved, **lists) -> dict:
    """Return what a metadata section with these lists of nodes decodes to."""
    keys = [key.replace("__", ".") for key in lists]
    arrays = [saved.array(*items) for items in lists.values()]
    return NodeGraph(saved.text(saved.add("Map", keys=keys, data=arrays)), "m").metadata()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 1, 3)], ids=str)
def test_constants_are_exact_in_every_dtype(dtype, shape):
    array = (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2).astype(dtype)
    saved = Saved()
    (found,) = metadata(saved, relay__Constant=[saved.constant(array)])["relay.Constant"]
    assert isinstance(found, ast.Constant)
    assert found.value.dtype == dtype and found.value.shape == shape
    assert np.array_equal(found.value, array)


def test_floats_keep_their_bits():
    array = np.array([0.1, -0.0, np.nan, np.inf, 1e-45], "float32")
    saved = Saved()
    (found,) = metadata(saved, relay__Constant=[saved.constant(array)])["relay.Constant"]
    assert found.value.tobytes() == array.tobytes()
    found.value[0] = 1  # a copy of its own, that can be written


def test_boxed_numbers_strings_and_nothing():
    saved = Saved()
    box = {
        "runtime__BoxInt": [saved.add("runtime.BoxInt", text="-3")],
        "runtime__BoxFloat": [saved.add("runtime.BoxFloat", text="inf")],
        "runtime__BoxBool": [saved.add("runtime.BoxBool", text=t) for t in ("true", "false")],
        "IntImm": [saved.number(7), saved.number(1, "bool")],
        "runtime__String": [saved.string("a"), saved.add("runtime.String")],
        "Any": [saved.add("tir.Any"), 0],
    }
    found = metadata(saved, **box)
    assert found["runtime.BoxInt"] == [-3]
    assert found["runtime.BoxFloat"] == [np.inf]
    assert found["runtime.BoxBool"] == [True, False]
    assert found["IntImm"] == [7, True] and found["IntImm"][1] is True
    assert found["runtime.String"] == ["a", ""]
    assert found["Any"] == [None, None]


def test_text_that_does_not_print_is_stored_as_base64():
    saved = Saved()
    data = "a\nß".encode()
    blob = base64.b64encode(len(data).to_bytes(8, "little") + data).decode()
    index = saved.add("runtime.String")
    saved.nodes[index]["repr_b64"] = blob
    assert metadata(saved, s=[index])["s"] == ["a\nß"]


def test_attributes_are_decoded_by_their_declared_types():
    saved = Saved()
    conv = saved.add(
        "relay.attrs.Conv2DAttrs",
        {
            "channels": 0,
            "data_layout": saved.string("NHWC"),
            "groups": 2,
            "kernel_size": saved.array(saved.number(3), saved.number(5)),
            "out_dtype": "",
            "padding": saved.array(saved.number(1)),
        },
    )
    scan = saved.add(
        "relay.attrs.ScanopAttrs",
        {"axis": saved.number(2), "dtype": "int64", "exclusive": saved.number(1, "bool")},
    )
    norm = saved.add("relay.attrs.LRNAttrs", {"alpha": "0.0001", "axis": "1", "bias": "inf"})
    scatter = saved.add("relay.attrs.ScatterNDAttrs", {"mode": saved.string("add")})
    found = metadata(saved, a=[conv, scan, norm, scatter])["a"]
    assert found[0] == AttrsNode(
        "relay.attrs.Conv2DAttrs",
        {
            "channels": None,
            "data_layout": "NHWC",
            "groups": 2,
            "kernel_size": [3, 5],
            "out_dtype": "",
            "padding": [1],
        },
    )
    assert found[1].fields == {"axis": 2, "dtype": "int64", "exclusive": True}
    assert found[2].fields == {"alpha": 0.0001, "axis": 1, "bias": np.inf}
    assert found[3].fields == {"mode": "add"}


def test_attributes_of_older_releases():
    saved = Saved("0.7.0")
    conv = saved.add("relay.attrs.Conv2DAttrs", {"data_layout": "NHWC", "out_layout": "", "out_dtype": ""})
    pad = saved.add("relay.attrs.PadAttrs", {"pad_value": "1.5", "pad_mode": "edge"})
    counts = saved.add("relay.attrs.GetValidCountsAttrs", {"score_threshold": "0", "id_index": "1"})
    found = metadata(saved, a=[conv, pad, counts])["a"]
    assert found[0].fields == {"data_layout": "NHWC", "out_layout": "", "out_dtype": ""}
    assert found[1].fields == {"pad_value": 1.5, "pad_mode": "edge"}
    assert found[2].fields == {"score_threshold": 0.0, "id_index": 1}
    oldest = Saved("0.6.1")
    top = oldest.add("relay.attrs.TopkAttrs", {"k": "5", "axis": "-1", "dtype": "int32"})
    assert metadata(oldest, a=[top])["a"][0].fields["k"] == 5


def test_an_unknown_attribute_is_an_error():
    saved = Saved()
    odd = saved.add("relay.attrs.SoftmaxAttrs", {"axis": "1", "temperature": "2"})
    with pytest.raises(RelayError, match=r"m: node \d+ \(relay.attrs.SoftmaxAttrs\): attribute temperature"):
        metadata(saved, a=[odd])


def test_types():
    saved = Saved()
    tensor = saved.tensor((2, None), "bool")
    pair = saved.add("TupleType", {"fields": saved.array(tensor, saved.add("IncompleteType"))})
    function = saved.add("FuncType", {"arg_types": saved.array(tensor), "ret_type": pair})
    reference = saved.add("relay.RefType", {"value": tensor})
    found = metadata(saved, t=[tensor, pair, function, reference])["t"]
    plain = ast.TensorType((2, None), "bool")
    assert found[:2] == [plain, ast.TupleType((plain, None))]
    assert found[2] == ast.FunctionType((plain,), ast.TupleType((plain, None)))
    assert found[3] == ast.NamedType("ref", (plain,))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"magic": 1}, "does not begin as a tensor"),
        ({"rank": 65}, "claims 65 dims"),
        ({"rank": -1}, "claims -1 dims"),
        ({"shape": (-3,)}, "negative dim"),
        ({"shape": (1 << 60,), "bytes": 1 << 62}, "left (truncated?)"),
        ({"bytes": 8}, "needs 12 bytes but states 8"),
        ({"code": 3, "bits": 64}, "dtype handle64"),
        ({"code": 0, "bits": 4}, "dtype int4"),
        ({"lanes": 4}, "dtype float32x4"),
    ],
)
def test_damaged_tensors_are_refused(changed, said):
    saved = Saved()
    index = saved.constant(np.zeros(3, "float32"))
    saved.tensors[0] = base64.b64encode(tensor_bytes(np.zeros(3, "float32"), **changed)).decode()
    with pytest.raises(RelayError) as caught:
        metadata(saved, relay__Constant=[index])
    assert said in str(caught.value) and str(caught.value).startswith("m: ")


@pytest.mark.parametrize("cut", [1, 8, 20, 30, 40])
def test_tensors_that_are_cut_off_are_refused(cut):
    saved = Saved()
    index = saved.constant(np.zeros(3, "float32"))
    saved.tensors[0] = base64.b64encode(tensor_bytes(np.zeros(3, "float32"))[:-cut]).decode()
    with pytest.raises(RelayError, match="truncated"):
        metadata(saved, relay__Constant=[index])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "not a node graph"),
        ('{"nodes": [], "arg_nodes": [], "heads": [], "attrs": {}}', "the graph of a built library"),
        ('{"nodes": 3}', "not a node graph"),
        ('{"nodes": [{"type_key": ""}]}', "root is 'None'"),
        ('{"root": 9, "nodes": [{"type_key": ""}]}', "refers to node 9, but there are 1 nodes"),
        ('{"root": -1, "nodes": [{"type_key": ""}]}', "refers to node -1"),
        ('{"root": 0, "nodes": [7]}', "is no object"),
        ('{"root": 0, "nodes": [{"type_key": "Map", "data": [0]}]}', "a key without a value"),
        ('{"root": 0, "nodes": [{"type_key": "Map", "keys": ["a"], "data": []}]}', "1 keys for 0 values"),
        ('{"root": 0, "nodes": [{"type_key": "Map", "data": ["x", 0]}]}', "not the number of a node"),
        ('{"root": 0, "nodes": [{"type_key": "Map", "keys": ["a"], "data": [0]}]}', "an Array is needed"),
        ("[" * 100_000, "not JSON|nested too deep"),
        ('{"root": ' + "9" * 5000 + ', "nodes": []}', "not JSON|not the number|refers to node"),
    ],
)
def test_damaged_graphs_are_refused(text, said):
    with pytest.raises(RelayError, match=said):
        NodeGraph(text, "m").metadata()


def test_a_node_that_contains_itself_is_refused():
    saved = Saved()
    index = saved.array()
    saved.nodes[index]["data"] = [index]
    with pytest.raises(RelayError, match="contains itself"):
        metadata(saved, a=[index])


def test_deep_nesting_is_refused_before_python_gives_up():
    saved = Saved()
    index = saved.array()
    for _ in range(5000):
        index = saved.array(index)
    with pytest.raises(RelayError, match="nested more than"):
        metadata(saved, a=[index])


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damage_anywhere_gives_a_clean_error_or_a_value(data):
    saved = Saved()
    constant = saved.constant(np.arange(6, dtype="int16").reshape(2, 3))
    scan = saved.add(
        "relay.attrs.ScanopAttrs", {"axis": saved.number(2), "dtype": "", "exclusive": saved.number(0)}
    )
    text = saved.text(saved.add("Map", keys=["a"], data=[saved.array(constant, scan)]))
    at = data.draw(st.integers(0, len(text) - 1))
    length = data.draw(st.integers(0, 4))
    damaged = text[:at] + data.draw(st.text('0123456789"[]{},:-aZ ', max_size=4)) + text[at + length :]
    try:
        NodeGraph(damaged, "m").metadata()
    except TvmpassError as error:
        assert str(error).startswith("m: ")


def test_the_json_is_not_evaluated_twice():
    saved = Saved()
    shared = saved.constant(np.zeros(2, "float32"))
    found = metadata(saved, a=[shared, shared])["a"]
    assert found[0] is found[1]
    assert json.loads(saved.text(0))["b64ndarrays"] == saved.tensors
