"""Branches of an If become functions: their memory, fusion and schedules."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import tvmpass
from tvmpass.compile.branches import outline_branches


def branch(builder: relax.BlockBuilder, make) -> relax.SeqExpr:
    builder._begin_binding_block()
    result = make()
    part = relax.SeqExpr([builder._end_block()], result)
    relax.expr._update_type(part, result.ty)
    return part


def module(shape, then, otherwise) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    c = relax.Var("c", relax.TensorType((), "bool"))
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [c, x]):
        before = builder.emit(relax.op.exp(x))
        parts = [branch(builder, lambda make=make: make(builder, x, before)) for make in (then, otherwise)]
        result = builder.emit(relax.If(c, *parts))
        builder.emit_func_output(builder.emit(relax.op.add(result, x)))
    return builder.get()


def two(builder, x, before):
    return builder.emit(relax.op.negative(builder.emit(relax.op.add(before, x))))


def three(builder, x, before):
    value = builder.emit(relax.op.multiply(builder.emit(relax.op.multiply(before, x)), x))
    return builder.emit(relax.op.tanh(value))


def nothing(builder, x, before):
    return builder.emit(x)


def choices(function) -> list[relax.If]:
    values = [b.value for block in function.body.blocks for b in block.bindings]
    return [value for value in values if isinstance(value, relax.If)]


def test_a_branch_is_one_call_of_a_private_function():
    mod = outline_branches(module((2, 3), two, three))
    relax.analysis.well_formed(mod)
    (choice,) = choices(mod["main"])
    for part in (choice.true_branch, choice.false_branch):
        (binding,) = [b for block in part.blocks for b in block.bindings]
        function = mod[binding.value.op]
        assert binding.value.op.name_hint.startswith("main_branch")
        assert "global_symbol" not in (function.attrs or {})
        assert function.ret_ty == binding.var.ty


def test_a_branch_that_computes_nothing_stays():
    mod = outline_branches(module((2, 3), nothing, three))
    assert sorted(gv.name_hint for gv in mod.functions) == ["main", "main_branch1"]


def test_a_module_without_branches_is_left():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.exp(x)))
    mod = builder.get()
    assert outline_branches(mod) is mod


def test_twice_is_once():
    once = outline_branches(module((2, 3), two, three))
    assert set(outline_branches(once).functions) == set(once.functions)


def test_open_sizes_go_along():
    n = tirx.Var("n", "int64")
    mod = outline_branches(module((n, 3), two, three))
    relax.analysis.well_formed(mod)
    function = next(f for gv, f in mod.functions_items() if gv.name_hint.startswith("main_branch"))
    assert isinstance(function.params[-1].ty, relax.ShapeType)


@pytest.mark.parametrize("size", [4, "n"])
@pytest.mark.parametrize("level", [0, 3])
def test_both_branches_have_their_memory(size, level):
    shape = (tirx.Var(size, "int64") if isinstance(size, str) else size, 3)
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    with tvmpass.PassContext(opt_level=level):
        built = tvmpass.build(module(shape, two, three), target="llvm")
    for _ in range(2):
        for condition in (False, True):
            (got,) = built.run({"c": np.array(condition), "x": x})
            wanted = (-(np.exp(x) + x) if condition else np.tanh(np.exp(x) * x * x)) + x
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_branches_are_fused_and_scheduled():
    with tvmpass.PassContext(opt_level=3, config={"tvmpass.fusion": "always"}):
        built = tvmpass.build(module((64, 64), two, three), target="llvm")
    kernels = {kernel.name: kernel.schedule for kernel in built.report.kernels}
    fused = [name for name in kernels if name.startswith("fused_")]
    assert len(fused) >= 2
    assert all(schedule != "fallback" for schedule in kernels.values())


def two_functions(used: bool) -> tvm.IRModule:
    """Return two functions with equal chains of operators, one of which may go to a parameter unread."""
    builder = relax.BlockBuilder()
    ty = relax.TensorType((64, 64), "float32")

    def chain(x, y):
        return builder.emit(relax.op.negative(builder.emit(relax.op.abs(builder.emit(relax.op.add(x, y))))))

    p, q = relax.Var("p", ty), relax.Var("q", ty)
    with builder.function("inner", [p, q], private=True):
        with builder.dataflow():
            result = builder.emit_output(chain(p, q if used else p))
        inner = builder.emit_func_output(result)
    x, y = relax.Var("x", ty), relax.Var("y", ty)
    with builder.function("main", [x, y]):
        with builder.dataflow():
            made = builder.emit(relax.Call(inner, [x, chain(x, y)]))
            result = builder.emit_output(made)
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize("used", [True, False])
def test_equal_groups_of_several_functions_are_one_kernel(used):
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    with tvmpass.PassContext(opt_level=3, config={"tvmpass.fusion": "always"}):
        built = tvmpass.build(two_functions(used), target="llvm")
    assert len(built.report.kernels) == 1
    (got,) = built.run({"x": x, "y": y})
    np.testing.assert_allclose(got, -np.abs(x + (-np.abs(x + y) if used else x)), rtol=1e-6)
