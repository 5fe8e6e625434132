"""The JSON writer makes nodes as TVM 0.19 did, and shares what a program shares."""

from __future__ import annotations

import json

import numpy as np

from tvmpass.frontends.relay.ast import (
    Call,
    Constant,
    Function,
    Let,
    Module,
    Operator,
    TensorType,
    Tuple,
    Var,
)
from tvmpass.testing.relay.json_writer import write_json

T = TensorType((2, 3), "float32")


def nodes_of(params, body, types=None):
    document = json.loads(write_json(Module({"main": Function(params, body, T)}), types))
    nodes = document["nodes"]
    assert nodes[document["root"]]["type_key"] == "IRModule"
    return nodes, document


def of_kind(nodes, key):
    return [node for node in nodes if node["type_key"] == key]


def test_a_shared_value_is_one_node():
    x = Var("x", T)
    value = x
    for _ in range(50):
        value = Call(Operator("add"), [value, value])
    nodes, _ = nodes_of([x], Tuple([value, value]))
    assert len(of_kind(nodes, "relay.Call")) == 50
    assert len(of_kind(nodes, "relay.Var")) == len(of_kind(nodes, "Op")) == 1


def test_attributes_are_complete_and_spelled_by_their_types():
    x = Var("x", T)
    call = Call(Operator("nn.batch_norm"), [x] * 5, {"epsilon": 2e-05})
    nodes, _ = nodes_of([x], call)
    (attrs,) = of_kind(nodes, "relay.attrs.BatchNormAttrs")
    assert attrs["attrs"] == {
        "axis": "1",
        "center": "1",
        "epsilon": "2.0000000000000002e-05",
        "scale": "1",
    }
    parts = Call(Operator("split"), [x], {"indices_or_sections": [1, 2], "axis": 1})
    nodes, _ = nodes_of([x], parts)
    assert [node["repr_str"] for node in of_kind(nodes, "runtime.BoxInt")] == ["1", "2"]


def test_lets_constants_and_types():
    x, a = Var("x", T), Var("a", T)
    constant = Constant(np.arange(6, dtype="float32").reshape(2, 3))
    body = Let([(a, Call(Operator("add"), [x, constant]))], a)
    nodes, document = nodes_of([x], body, {constant: T, x: T})
    (let,) = of_kind(nodes, "relay.Let")
    variables = of_kind(nodes, "relay.Var")
    assert nodes[int(let["attrs"]["var"])] == nodes[int(let["attrs"]["body"])] == variables[1]
    assert (
        nodes[int(of_kind(nodes, "relay.Constant")[0]["attrs"]["_checked_type_"])]["attrs"]["dtype"]
        == "float32"
    )
    assert len(document["b64ndarrays"]) == 1


def test_long_chains_of_lets_need_no_recursion():
    x = Var("x", T)
    bindings = [(Var(f"a{place}", T), x) for place in range(5_000)]
    nodes, _ = nodes_of([x], Let(bindings, bindings[-1][0]))
    assert len(of_kind(nodes, "relay.Let")) == 5_000
