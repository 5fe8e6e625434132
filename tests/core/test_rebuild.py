"""Installing values: variables, source nodes and unrelated bindings stay."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvmpass.core.rebuild import map_values, normalize, replace_values
from tvmpass.core.site import REMOVED, FunctionView
from tvmpass.core.source import origin, with_origin
from tvmpass.testing.graphs import graph, named, operators

R = relax.op


def test_a_nested_tree_becomes_bindings_with_types_and_sources():
    x = relax.Var("x", relax.TensorType((3,), "float32"))
    shared = named("own", R.exp(x))
    bindings, value = normalize(None, R.add(shared, R.tanh(shared)), ("given",))
    assert [b.value.op.name for b in bindings] == ["relax.exp", "relax.tanh"]
    assert [origin(b.value) for b in bindings] == [("own",), ("given",)]
    assert origin(value) == ("given",)
    assert all(b.var.ty.shape is not None for b in bindings)
    assert value.args[0].same_as(bindings[0].var)


def test_leaves_are_returned_as_they_are():
    x = relax.Var("x", relax.TensorType((3,), "float32"))
    constant = relax.const(np.ones(3, "float32"))
    assert normalize(None, x) == ([], x)
    assert normalize(None, constant)[1].same_as(constant)


def test_tuples_and_items_keep_their_structure():
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    bindings, value = normalize(None, R.concat([R.exp(x), R.split(x, 2)[0]], axis=0))
    assert len(bindings) == 3
    assert len(value.args[0].fields) == 2


def test_replacing_keeps_the_variable_and_everything_else():
    mod = graph(lambda x: R.sin(R.tanh(R.exp(x))), ((3,),))
    view = FunctionView(mod, "main")
    exp, tanh, sin = view.bindings
    function = replace_values(view, {tanh: normalize(mod, R.negative(R.abs(exp)))})
    kept = [b.var for b in function.body.blocks[0].bindings]
    assert [kept[0], kept[2], kept[3]] == [exp, tanh, sin]
    assert function.body.body.same_as(view.function.body.body)


def test_orphans_go_when_nothing_reads_them():
    mod = graph(lambda x: R.tanh(R.exp(R.sin(x))), ((3,),))
    view = FunctionView(mod, "main")
    sin, exp, tanh = view.bindings
    x = view.function.params[0]
    function = replace_values(view, {tanh: ([], R.abs(x))}, [sin, exp])
    assert [b.var for b in function.body.blocks[0].bindings] == [tanh]
    function = replace_values(view, {tanh: ([], R.abs(exp))}, [sin, exp])
    assert len(function.body.blocks[0].bindings) == 3


def test_removed_takes_the_binding_out():
    mod = graph(lambda x: (R.exp(x), R.sin(x)), ((3,),))
    view = FunctionView(mod, "main")
    first = next(iter(view.bindings))
    function = replace_values(view, {first: ([], REMOVED)})
    assert len(function.body.blocks[0].bindings) == 1


def test_map_values_leaves_untouched_bindings_alone():
    mod = graph(lambda x: R.tanh(R.exp(x)), ((3,),))
    function = mod["main"]
    same = map_values(function, lambda value: value)
    pairs = zip(same.body.blocks[0].bindings, function.body.blocks[0].bindings, strict=True)
    assert all(a.same_as(b) for a, b in pairs)


def test_source_names_are_kept_once_in_order():
    x = relax.Var("x", relax.TensorType((3,), "float32"))
    call = with_origin(R.exp(x), ["b", "a", "b", ""])
    assert origin(call) == ("b", "a")
    assert origin(R.exp(x)) == ()
    assert with_origin(x, ["a"]).same_as(x)
    mod = graph(lambda x: named("a", R.exp(x)), ((3,),))
    assert operators(mod) == ["exp"]
    assert origin(mod["main"].body.blocks[0].bindings[0].value) == ("a",)
