"""Programs in the JSON of ``tvm.ir.save_json``."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import run_module
from saved import Saved

from tvmpass.core.errors import TvmpassError
from tvmpass.frontends.relay import ast
from tvmpass.frontends.relay.convert import convert
from tvmpass.frontends.relay.errors import RelayError
from tvmpass.frontends.relay.json_reader import read_json


def read(saved: Saved, root: int) -> ast.Module:
    return read_json(saved.text(root), "net.json")


def main_of(saved: Saved, params, body: int, **more) -> ast.Function:
    return read(saved, saved.module(main=saved.function(params, body, **more))).functions["main"]


def test_calls_shared_nodes_and_types():
    saved = Saved()
    x = saved.var("x", saved.tensor((2, None)))
    y = saved.call("nn.relu", x)
    both = saved.add("relay.Tuple", {"fields": saved.array(y, y)})
    item = saved.add("relay.TupleGetItem", {"tuple_value": both, "index": 1})
    main = main_of(saved, [x], saved.call("add", item, y), result=saved.tensor((2, None)))
    (param,) = main.params
    assert (param.name, param.type) == ("x", ast.TensorType((2, None), "float32"))
    assert main.result == ast.TensorType((2, None), "float32")
    assert isinstance(main.body, ast.Call) and main.body.function.name == "add"
    first, second = main.body.args
    assert first.index == 1 and first.value.fields[0] is first.value.fields[1] is second
    assert second.args == [param] and second.args[0] is param
    assert main.body.place.name.startswith("add#")


def test_let_chains_stay_one_let_and_name_their_values():
    saved = Saved()
    x, a, b = saved.var("x"), saved.var("a"), saved.var("b")
    inner = saved.let(b, saved.call("exp", a), b)
    main = main_of(saved, [x], saved.let(a, saved.call("nn.relu", x), inner))
    assert isinstance(main.body, ast.Let)
    assert [var.name for var, _ in main.body.bindings] == ["a", "b"]
    assert [value.place.name for _, value in main.body.bindings] == ["%a", "%b"]
    assert main.body.body is main.body.bindings[1][0]


def test_a_let_that_is_used_twice_is_not_taken_apart():
    saved = Saved()
    x, a, b = saved.var("x"), saved.var("a"), saved.var("b")
    inner = saved.let(b, saved.call("exp", x), b)
    outer = saved.let(a, saved.call("nn.relu", x), inner)
    main = main_of(saved, [x], saved.add("relay.Tuple", {"fields": saved.array(outer, inner)}))
    one, other = main.body.fields
    assert one.body is other and len(one.bindings) == len(other.bindings) == 1


@pytest.mark.parametrize("count", [8_000])
def test_long_chains_do_not_recurse(count):
    saved = Saved()
    x = previous = saved.var("x", saved.tensor((1,)))
    relu = saved.add("Op", text="nn.relu")
    lets = []
    for index in range(count):
        value = saved.call(relu, previous)
        previous = saved.var(f"v{index}") if index % 2 else value
        if index % 2:
            lets.append(saved.let(previous, value, 0))
    for here, after in zip(lets, [*lets[1:], previous]):
        saved.nodes[here]["attrs"]["body"] = str(after)
    main = main_of(saved, [x], lets[0])
    assert isinstance(main.body, ast.Let) and len(main.body.bindings) == count // 2


def test_branches_functions_and_recursion():
    saved = Saved()
    n = saved.var("n", saved.tensor((), "int32"))
    again = saved.add("GlobalVar", {"name_hint": saved.string("down")})
    one = saved.constant(np.array(1, "int32"))
    lower = saved.call(again, saved.call("subtract", n, one))
    test = saved.call("less", n, one)
    branch = saved.add("relay.If", {"cond": test, "true_branch": n, "false_branch": lower})
    down = saved.function([n], branch, result=saved.tensor((), "int32"))
    m = saved.var("m", saved.tensor((), "int32"))
    main = saved.function([m], saved.call(again, m))
    module = read(saved, saved.module(main=main, down=down))
    assert list(module.functions) == ["main", "down"]
    body = module.functions["down"].body
    assert isinstance(body, ast.If) and body.otherwise.function.name == "down"
    (result,) = run_module(convert(module), np.array(5, "int32"))
    assert result == 0


def test_attributes_arrive_and_defaults_do_not():
    saved = Saved()
    x, w = saved.var("x", saved.tensor((2, 3))), saved.var("w", saved.tensor((4, 3)))
    attrs = saved.add("relay.attrs.DenseAttrs", {"units": saved.number(4), "out_dtype": ""})
    main = main_of(saved, [x, w], saved.call("nn.dense", x, w, attrs=attrs))
    assert main.body.attrs == {"units": 4, "out_dtype": ""}
    plain = saved.add("DictAttrs", {"__dict__": saved.add("Map", keys=["a"], data=[saved.number(3)])})
    assert main_of(saved, [x], saved.call("nn.relu", x, attrs=plain)).body.attrs == {"a": 3}


def test_attributes_of_function():
    saved = Saved()
    x = saved.var("x", saved.tensor((2,)))
    entries = saved.add("Map", keys=["Primitive", "Composite"], data=[saved.number(1), saved.string("c")])
    main = main_of(saved, [x], x, attrs=saved.add("DictAttrs", {"__dict__": entries}))
    assert main.attrs == {"Primitive": 1, "Composite": "c"}


def test_foreign_attributes_are_refused_not_dropped():
    saved = Saved()
    x = saved.var("x", saved.tensor((2,)))
    odd = saved.add("relay.attrs.QnnConv2DAttrs", {"input_zero_point": "3"})
    with pytest.raises(RelayError, match="nn.softmax has attributes relay.attrs.QnnConv2DAttrs"):
        main_of(saved, [x], saved.call("nn.softmax", x, attrs=odd))


def test_the_oldest_form():
    saved = Saved("0.6.1")
    x = saved.var("x", saved.tensor((1, 2, 3)))
    op = saved.add("relay.Op")
    saved.nodes[op]["global_key"] = "nn.batch_matmul"
    function = saved.function([x], saved.call(op, x, x))
    pairs = [saved.add("relay.GlobalVar", {"name_hint": "main"}), function]
    module = saved.add("relay.Module", {"functions": saved.add("Map", data=pairs)})
    main = read(saved, module).functions["main"]
    # Nothing said so then, but the second operand was read transposed.
    assert main.body.attrs == {"transpose_a": False, "transpose_b": True}
    array = np.arange(6, dtype="float32").reshape(1, 2, 3)
    (result,) = run_module(convert(read(saved, module)), array)
    np.testing.assert_allclose(result, array @ array.transpose(0, 2, 1), rtol=1e-6, atol=0)


def test_functions_of_another_kind_matter_only_where_they_are_called():
    saved = Saved()
    x, kernel = saved.var("x", saved.tensor((2,))), saved.add("tir.PrimFunc")
    module = read(saved, saved.module(main=saved.function([x], x), kernel=kernel))
    assert convert(module)["main"].params[0].name == "x"
    called = saved.call(saved.add("GlobalVar", {"name_hint": saved.string("kernel")}), x)
    with pytest.raises(RelayError, match=r"@kernel, a tir.PrimFunc,"):
        convert(read(saved, saved.module(main=saved.function([x], called), kernel=kernel)))


def test_types_that_are_not_stated_are_those_that_were_inferred():
    saved = Saved()
    x, y = saved.var("x"), saved.var("y")
    saved.nodes[x]["attrs"]["_checked_type_"] = str(saved.tensor((2,)))
    function = saved.function([x, y], saved.call("add", x, y))
    types = saved.array(saved.tensor((2,)), saved.tensor((), "float32"))
    inferred = saved.add("FuncType", {"arg_types": types, "ret_type": saved.tensor((2,))})
    saved.nodes[function]["attrs"]["_checked_type_"] = str(inferred)
    main = read(saved, saved.module(main=function)).functions["main"]
    assert [param.type for param in main.params] == [
        ast.TensorType((2,), "float32"),
        ast.TensorType((), "float32"),
    ]
    assert main.result == ast.TensorType((2,), "float32")


def test_one_function_is_main():
    saved = Saved()
    x = saved.var("x", saved.tensor((2,)))
    assert list(read(saved, saved.function([x], x)).functions) == ["main"]


def test_what_has_no_relax_form_is_kept_with_its_operands():
    saved = Saved()
    x = saved.var("x", saved.tensor((2,)))
    made = saved.add("relay.RefCreate", {"value": saved.call("nn.relu", x)})
    read_back = saved.add("relay.RefRead", {"ref": made})
    main = main_of(saved, [x], read_back)
    assert isinstance(main.body, ast.Unsupported) and "ref" in main.body.what
    assert isinstance(main.body.operands[0].operands[0], ast.Call)
    with pytest.raises(RelayError, match="ref"):
        convert(read(saved, saved.module(main=saved.function([x], read_back))))


def test_a_match_is_named():
    saved = Saved()
    x = saved.var("x", saved.tensor((2,)))
    head = saved.var("head")
    pattern = saved.add("relay.PatternVar", {"var": head})
    cons = saved.add("relay.PatternConstructor", {"constructor": 0, "patterns": saved.array(pattern)})
    clause = saved.add("relay.Clause", {"lhs": cons, "rhs": saved.call("exp", head)})
    match = saved.add("relay.Match", {"data": x, "clauses": saved.array(clause), "complete": 1})
    with pytest.raises(RelayError, match=r"match.*ADT"):
        convert(read(saved, saved.module(main=saved.function([x], match))))


def test_cycles_are_found():
    saved = Saved()
    x = saved.var("x", saved.tensor((2,)))
    call = saved.call("nn.relu", x)
    saved.nodes[int(saved.nodes[call]["attrs"]["args"])]["data"] = [call]
    with pytest.raises(RelayError, match="contains itself"):
        main_of(saved, [x], call)


@pytest.mark.parametrize(
    ("key", "said"),
    [("relax.expr.Function", "no function of Relay"), ("Array", "a Relay module or function")],
)
def test_what_is_not_relay_is_said(key, said):
    saved = Saved()
    other = saved.add(key, {} if "Function" in key else None)
    root = saved.module(main=other) if "Function" in key else other
    with pytest.raises(RelayError, match=said):
        read(saved, root)


def small_program() -> str:
    saved = Saved()
    x, a = saved.var("x", saved.tensor((2,))), saved.var("a")
    one = saved.constant(np.ones(2, "float32"))
    attrs = saved.add("relay.attrs.SoftmaxAttrs", {"axis": "-1"})
    body = saved.let(a, saved.call("add", x, one), saved.call("nn.softmax", a, attrs=attrs))
    return saved.text(saved.module(main=saved.function([x], body, result=saved.tensor((2,)))))


TEXT = small_program()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damage_anywhere_gives_a_clean_error_or_a_program(data):
    document = json.loads(TEXT)
    node = data.draw(st.sampled_from(document["nodes"][1:]))
    kind = data.draw(st.sampled_from(["attr", "key", "data", "drop"]))
    number = str(data.draw(st.integers(-2, len(document["nodes"]) + 1)))
    if kind == "attr" and node.get("attrs"):
        node["attrs"][data.draw(st.sampled_from(sorted(node["attrs"])))] = number
    elif kind == "key":
        node["type_key"] = data.draw(st.sampled_from(sorted({n["type_key"] for n in document["nodes"]})))
    elif kind == "data" and node.get("data"):
        node["data"][0] = int(number)
    elif kind == "drop":
        del node[data.draw(st.sampled_from(sorted(node)))]
    try:
        module = read_json(json.dumps(document), "net.json")
    except TvmpassError as error:
        assert str(error).startswith("net.json: ")
    else:
        assert all(isinstance(function.body, ast.Expression) for function in module.functions.values())
