"""Relax modules as JSON: written by `tvm.ir.save_json`, checked before TVM reads them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import tvmpass


def module(first: int | None = None) -> tvm.IRModule:
    """Return ``x @ w`` for x of (n, 3), or of a fixed first dim."""
    dim = tirx.Var("n", "int64") if first is None else first
    x = relax.Var("x", relax.TensorType((dim, 3), "float32"))
    w = relax.Var("w", relax.TensorType((3, 2), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(relax.op.matmul(x, w)))
        builder.emit_func_output(out)
    return builder.get()


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "net.json"
    found.write_text(tvm.ir.save_json(module()))
    return found


def test_a_module_comes_back(path):
    mod = tvmpass.load(path)
    tvm.ir.assert_structural_equal(mod["main"].without_attr("tvmpass.model"), module()["main"])


def test_parameters_and_sizes(path, tmp_path):
    w = np.arange(6, dtype="float32").reshape(3, 2)
    np.savez(tmp_path / "w.npz", w=w)
    mod = tvmpass.load(path, shapes={"x": (4, 3)}, params=tmp_path / "w.npz")
    assert [param.name for param in mod["main"].params] == ["x"]
    assert [int(dim) for dim in mod["main"].params[0].ty.shape] == [4, 3]
    x = np.ones((4, 3), "float32")
    np.testing.assert_allclose(tvmpass.build(mod).run(x=x)[0], x @ w, rtol=1e-6, atol=0)
    assert not isinstance(
        tvmpass.load(path, shapes={"x": ("n", 3)})["main"].params[0].ty.shape[0], tirx.IntImm
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"shapes": {"y": (1, 3)}}, "unknown input 'y'"),
        ({"shapes": {"x": (1, 4)}}, "dim 1 fixed at 3"),
        ({"shapes": {"x": (1,)}}, "was given"),
        ({"params": {"v": np.zeros(1)}}, "unknown parameter 'v'"),
    ],
)
def test_wrong_arguments(path, arguments, said):
    with pytest.raises(tvmpass.UsageError, match=said):
        tvmpass.load(path, **arguments)


def test_every_node_that_converted_models_hold_is_accepted(path):
    # The check must know literals from references in all of TVM's own nodes.
    from tvmpass.frontends.relax_json import _check_graph

    _check_graph(tvm.ir.save_json(module(4)), "m")


SELF = {"root_index": 1, "nodes": [{"type": "None"}, {"type": "ir.IntImm"}]}
SELF["nodes"][1]["data"] = {"span": 0, "ty": 1, "value": 4}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"root_index": 0, "nodes": [{"type": "ffi.Array", "data": [0]}]}, "refers to what is not before it"),
        (SELF, "refers to what is not before it"),
        ({"root_index": 3, "nodes": []}, "not a module of TVM"),
        ({"root_index": 0, "nodes": [3]}, "has no type"),
        ({"root_index": 0, "nodes": [{"type": "no.Such", "data": {"a": 0}}]}, "no node 'no.Such'"),
        ({"root_index": 0, "nodes": [{"type": "None"}]}, "an IRModule is needed"),
        ({"root_index": 0, "nodes": [{"type": "ffi.Tensor", "data": "AAAA"}]}, "damaged"),
        (
            {"root_index": 0, "nodes": [{"type": "None"}]}
            | {"nodes": [{"type": "None"}] + [{"type": "ffi.Array", "data": [i]} for i in range(5000)]},
            "nested 5001 deep",
        ),
    ],
)
def test_graphs_that_would_end_the_process_are_refused(tmp_path, document, said):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(document))
    with pytest.raises(tvmpass.TvmpassError, match=said):
        tvmpass.load(path)


def test_what_tvm_breaks_down_over_is_an_error(tmp_path):
    document = json.loads(tvm.ir.save_json(module()))
    (op,) = (node for node in document["nodes"] if node["type"] == "ir.Op")
    op["type"] = "ffi.String"
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(document))
    with pytest.raises(tvmpass.TvmpassError, match="bad.json"):
        tvmpass.load(path)


def test_a_tensor_that_claims_more_than_it_holds(tmp_path):
    mod = relax.transform.BindParams("main", {"w": np.zeros((3, 2), "float32")})(module())
    document = json.loads(tvm.ir.save_json(mod))
    import base64

    for node in document["nodes"]:
        if node["type"] == "ffi.Tensor":
            data = bytearray(base64.b64decode(node["data"]))
            data[32:40] = (1 << 40).to_bytes(8, "little")
            node["data"] = base64.b64encode(bytes(data)).decode()
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(document))
    with pytest.raises(tvmpass.TvmpassError, match="holds less"):
        tvmpass.load(path)
