"""Groups become kernels: closed over their operands, shared, lowered, labelled."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from tvmpass.compile.build import compile_vm
from tvmpass.compile.grouping import GROUP_ATTR, Group, emit_groups, group_function, lower
from tvmpass.compile.pricing import cut_out
from tvmpass.compile.schedule import structural_key
from tvmpass.compile.target import parse_target
from tvmpass.compile.verify_numeric import finish_all
from tvmpass.core.options import Options
from tvmpass.core.site import FunctionView, op_name
from tvmpass.core.source import origin
from tvmpass.testing.graphs import graph, named

R = relax.op
OPTIONS = Options(threads=1)
IDENTITY = {"rule": "test", "epilogue": []}


@pytest.fixture(scope="module")
def target():
    return parse_target("llvm", 1)


def emit(mod, *ranges, names=None):
    """Group bindings ``first..last`` of main; return the module and the view before."""
    view = FunctionView(mod, "main")
    order = list(view.bindings)
    names = names or {}
    groups = [
        Group(tuple(order[i] for i in members), names.get(k, "fused"), dict(IDENTITY))
        for k, members in enumerate(ranges)
    ]
    return emit_groups(mod, "main", groups), view


def kernels(mod) -> list[str]:
    return sorted(gv.name_hint for gv, f in mod.functions_items() if isinstance(f, tirx.PrimFunc))


def run(mod, target, *arrays):
    executable = compile_vm(finish_all(mod, target, OPTIONS), target)
    result = relax.VirtualMachine(executable, tvm.cpu())["main"](*[tvm.runtime.tensor(a) for a in arrays])
    return [t.numpy() for t in ([result] if hasattr(result, "numpy") else result)]


def same(mod, target, groups, *arrays, rtol=1e-5):
    """Assert that grouping changes no result; return the lowered module."""
    grouped, _ = emit(mod, *groups)
    relax.analysis.well_formed(grouped)
    lowered = lower(grouped, target, OPTIONS)
    plain = lower(mod, target, OPTIONS)
    for want, have in zip(run(plain, target, *arrays), run(lowered, target, *arrays), strict=True):
        np.testing.assert_allclose(have, want, rtol=rtol, atol=1e-6)
    return lowered


def test_a_group_is_one_kernel_with_its_identity_and_sources(target):
    mod = graph(lambda x, y: named("b", R.exp(named("a", R.add(x, y)))), ((4,),), ((4,),))
    grouped, _ = emit(mod, (0, 1), names={0: "fused_add_exp"})
    (call,) = [b.value for b in grouped["main"].body.blocks[0].bindings]
    assert origin(call) == ("a", "b")
    lowered = lower(grouped, target, OPTIONS)
    assert kernels(lowered) == ["fused_add_exp"]
    identity = json.loads(lowered["fused_add_exp"].attrs[GROUP_ATTR])
    assert identity == IDENTITY


def test_commuted_operands_keep_their_places(target):
    x, y = np.float32([1, 2, 3, 4]), np.float32([4, 3, 2, 1])
    mod = graph(lambda x, y: R.subtract(y, R.multiply(y, x)), ((4,),), ((4,),))
    same(mod, target, [(0, 1)], x, y)


def test_equal_groups_share_one_kernel(target):
    mod = graph(lambda x, y: (R.exp(R.add(x, y)), R.exp(R.add(y, x))), ((4,),), ((4,),))
    lowered = same(mod, target, [(0, 1), (2, 3)], np.float32([1, 2, 3, 4]), np.float32([4, 3, 2, 1]))
    assert kernels(lowered) == ["fused"]


def test_a_group_that_no_kernel_reads_is_left_out(target):
    # A lowered zeros_like does not read its operand.
    mod = graph(lambda x: R.zeros_like(R.exp(R.abs(x))), ((4,),))
    lowered = same(mod, target, [(0, 1)], np.float32([1, 2, 3, 4]))
    assert "fused" not in kernels(lowered)


def test_groups_that_differ_in_a_scalar_constant_do_not_share(target):
    two, three = relax.const(np.float32(2)), relax.const(np.float32(3))
    mod = graph(lambda x: (R.exp(R.multiply(x, two)), R.exp(R.multiply(x, three))), ((4,),))
    lowered = same(mod, target, [(0, 1), (2, 3)], np.float32([0.1, 0.2, 0.3, 0.4]))
    assert len(kernels(lowered)) == 2


@pytest.mark.parametrize(
    "combine",
    [R.multiply, R.add, lambda x, zero: R.multiply(zero, x), lambda x, zero: R.divide(zero, x)],
    ids=["times", "plus", "zero-times", "zero-over"],
)
def test_the_number_zero_is_an_operand_where_arithmetic_keeps_nan(target, combine):
    zero = relax.const(np.float32(0))
    mod = graph(lambda x: combine(R.sqrt(x), zero), ((4,),))
    x = np.float32([4, np.nan, np.inf, 1])
    lowered = same(mod, target, [(0, 1)], x)
    assert kernels(lowered) == ["fused"]


def test_weights_are_parameters_so_that_layers_share(target):
    rng = np.random.default_rng(0)
    a, b = (relax.const(rng.standard_normal((4, 4)).astype("float32")) for _ in range(2))
    mod = graph(lambda x: R.nn.relu(R.matmul(R.nn.relu(R.matmul(x, a)), b)), ((2, 4),))
    lowered = same(mod, target, [(0, 1), (2, 3)], rng.standard_normal((2, 4)).astype("float32"))
    assert len(kernels(lowered)) == 1


def test_the_same_operators_with_other_attributes_do_not_share(target):
    mod = graph(lambda x: (R.exp(R.sum(x, axis=0)), R.exp(R.sum(x, axis=1))), ((4, 4),))
    lowered = same(mod, target, [(0, 1), (2, 3)], np.eye(4, dtype="float32"))
    assert len(kernels(lowered)) == 2


def test_a_tuple_operand_and_a_tuple_result(target):
    x = np.arange(12, dtype="float32").reshape(2, 6)
    mod = graph(lambda x: R.concat([R.exp(x), x], axis=1), ((2, 6),))
    same(mod, target, [(0, 1)], x)

    def body(x):
        parts = R.split(R.negative(x), 2, axis=1)
        return R.add(R.exp(parts[0]), parts[1])

    mod = graph(body, ((2, 6),))
    order = [op_name(v) or type(v).__name__ for v in FunctionView(mod, "main").bindings.values()]
    split = order.index("relax.split")
    same(mod, target, [(0, split)], x)
    same(mod, target, [tuple(range(len(order)))], x)


def test_symbolic_dims_stay_symbolic(target):
    mod = graph(lambda x: R.exp(R.negative(x)), (("n", 4),))
    lowered = same(mod, target, [(0, 1)], np.ones((3, 4), "float32"))
    assert run(lowered, target, np.ones((5, 4), "float32"))[0].shape == (5, 4)


def test_a_symbol_that_no_operand_defines_is_passed_along(target):
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 4), "float32"))
    y = relax.Var("y", relax.TensorType((1, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            wide = builder.emit(R.broadcast_to(y, relax.ShapeExpr([n, 4])))
            out = builder.emit_output(R.exp(wide))
        builder.emit_func_output(out)
    mod = builder.get()
    grouped, view = emit(mod, (0, 1))
    made = group_function(view, Group(tuple(view.bindings), "fused", {}))
    assert made.function.params[-1].name == "tir_vars"
    lowered = same(mod, target, [(0, 1)], np.ones((3, 4), "float32"), np.ones((1, 4), "float32"))
    assert len(kernels(lowered)) == 1
    assert grouped["main"].params[0].name == "x"


def test_a_dim_computed_from_a_symbol(target):
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            flat = builder.emit(R.reshape(x, relax.ShapeExpr([n * 2, 2])))
            out = builder.emit_output(R.exp(flat))
        builder.emit_func_output(out)
    same(builder.get(), target, [(0, 1)], np.ones((3, 4), "float32"))


def test_two_groups_with_free_symbols_do_not_mix_them(target):
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    x = relax.Var("x", relax.TensorType((n, m), "float32"))
    y = relax.Var("y", relax.TensorType((1, 1), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            a = builder.emit(R.exp(builder.emit(R.broadcast_to(y, relax.ShapeExpr([n, m])))))
            b = builder.emit(R.exp(builder.emit(R.broadcast_to(y, relax.ShapeExpr([m, n])))))
            out = builder.emit_output(R.matmul(a, b))
        builder.emit_func_output(out)
    same(builder.get(), target, [(0, 1), (2, 3)], np.ones((2, 3), "float32"), np.ones((1, 1), "float32"))


@pytest.mark.parametrize("taken", ["main", "exp"])
def test_a_name_that_is_taken_gets_a_number(target, taken):
    mod = graph(lambda x: R.exp(R.negative(x)), ((4,),))
    grouped, _ = emit(mod, (0, 1), names={0: taken})
    lowered = lower(grouped, target, OPTIONS)
    (name,) = kernels(lowered)
    assert (name == "main_1") if taken == "main" else (name == "exp")
    assert GROUP_ATTR in lowered[name].attrs


def test_every_group_keeps_its_own_attributes(target):
    def body(x):
        return R.tanh(R.sum(R.exp(R.negative(x)), axis=1))

    mod = graph(body, ((2, 4),))
    view = FunctionView(mod, "main")
    order = list(view.bindings)
    first = Group(tuple(order[:2]), "first", {"rule": "a"})
    groups = [first, Group(tuple(order[2:]), "second", {"rule": "b"})]
    lowered = lower(emit_groups(mod, "main", groups), target, OPTIONS)
    found = {name: json.loads(lowered[name].attrs[GROUP_ATTR])["rule"] for name in kernels(lowered)}
    assert found == {"first": "a", "second": "b"}


def test_groups_must_not_overlap():
    mod = graph(lambda x: R.tanh(R.exp(R.negative(x))), ((4,),))
    with pytest.raises(AssertionError, match="overlap"):
        emit(mod, (0, 1), (1, 2))


def test_a_replacement_stands_in_for_the_bindings(target):
    mod = graph(lambda x: R.nn.relu(R.negative(R.negative(x))), ((4,),))
    view = FunctionView(mod, "main")
    order = list(view.bindings)
    x = view.function.params[0]
    group = Group(tuple(order), "relu_only", {"rule": "test"}, replacement=R.nn.relu(x))
    replaced = emit_groups(mod, "main", [group])
    assert len(replaced["main"].body.blocks[0].bindings) == 1
    lowered = lower(replaced, target, OPTIONS)
    x = np.float32([-1, 0, 1, 2])
    np.testing.assert_array_equal(run(lowered, target, x)[0], np.maximum(x, 0))


def test_a_group_that_nothing_reads_does_not_break_lowering(target):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            builder.emit(R.exp(builder.emit(R.negative(x))))
            out = builder.emit_output(R.tanh(x))
        builder.emit_func_output(out)
    grouped, _ = emit(builder.get(), (0, 1))
    lowered = lower(grouped, target, OPTIONS)
    assert kernels(lowered) == ["tir_tanh"]


def test_pricing_and_build_see_the_same_kernel(target):
    """For each group of a small net, cut out alone and lowered in place give one key."""
    rng = np.random.default_rng(0)
    w1 = relax.const(rng.standard_normal((3, 3, 3, 8)).astype("float32"))
    w2 = relax.const(rng.standard_normal((1, 1, 8, 8)).astype("float32"))
    bias = relax.const(rng.standard_normal((8,)).astype("float32"))
    layout = {"data_layout": "NHWC", "kernel_layout": "HWIO"}

    def body(x):
        a = R.nn.relu(R.add(R.nn.conv2d(x, w1, padding=(1, 1), **layout), bias))
        b = R.nn.relu(R.add(R.add(R.nn.conv2d(a, w2, **layout), bias), a))
        return R.tanh(R.mean(b, [1, 2]))

    mod = graph(body, (("n", 6, 6, 3),))
    ranges = [(0, 1, 2), (3, 4, 5, 6), (7, 8)]
    grouped, view = emit(mod, *ranges)
    order = list(view.bindings)
    built = lower(grouped, target, OPTIONS)
    in_build = sorted(structural_key(built[name]) for name in kernels(built))
    made = [group_function(view, Group(tuple(order[i] for i in r), "fused", IDENTITY)) for r in ranges]
    cut, names = cut_out({m.key: m for m in made})
    alone = lower(cut, target, OPTIONS)
    assert sorted(structural_key(alone[name]) for name in names.values()) == in_build
    assert len(set(in_build)) == 3
