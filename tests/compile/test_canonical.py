"""The canonical form: what it removes, and what it must leave."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, tirx, topi
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from tests.frontends.models import run
from tvmpass.compile.canonical import canonicalize, check_canonical
from tvmpass.core.site import op_name
from tvmpass.core.source import origin, with_origin

op = relax.op


def _module(body, *shapes, dtype: str = "float32") -> tvm.IRModule:
    """Return a module whose main is ``body(bb, *parameters)`` in one dataflow block."""
    bb = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(list(s), dtype)) for i, s in enumerate(shapes)]
    with bb.function("main", params):
        with bb.dataflow():
            result = bb.emit_output(body(bb, *params))
        bb.emit_func_output(result)
    return bb.get()


def _values(mod):
    return [b.value for block in mod["main"].body.blocks for b in block.bindings]


def _operators(mod):
    return [name for value in _values(mod) if (name := op_name(value))]


def _canonical(mod):
    made = canonicalize(mod)
    assert relax.analysis.check_well_formed(made)
    assert check_canonical(made) == []
    assert tvm_ffi.structural_equal(canonicalize(made), made)
    return made


def test_clip_becomes_maximum_and_minimum():
    mod = _module(lambda bb, x: op.clip(x, 0, 6), (4,))
    assert any("clip" in text for text in check_canonical(mod))
    made = _canonical(mod)
    assert _operators(made) == ["relax.maximum", "relax.minimum"]
    x = np.array([-1, 3, 9, np.nan], "float32")
    assert np.array_equal(run(made, x)[0], np.clip(x, 0, 6), equal_nan=True)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-np.inf, 6, ["relax.minimum"]),
        (0, np.inf, ["relax.maximum"]),
        (-np.inf, np.inf, []),
    ],
)
def test_clip_with_one_bound(low, high, expected):
    assert _operators(_canonical(_module(lambda bb, x: op.clip(x, low, high), (4,)))) == expected


def test_clip_of_integers_stays_in_their_range():
    made = _canonical(_module(lambda bb, x: op.clip(x, -1000, 6), (3,), dtype="int8"))
    x = np.array([-128, 3, 100], "int8")
    (y,) = run(made, x)
    assert y.dtype == np.int8 and y.tolist() == [-128, 3, 6]


@pytest.mark.parametrize(
    ("function", "name"), [(topi.maximum, "relax.maximum"), (topi.minimum, "relax.minimum")]
)
@pytest.mark.parametrize("bound", [2.0, "constant", "tensor"])
def test_call_tir_of_an_extreme_is_lifted(function, name, bound):
    def body(bb, x, y):
        other = {"constant": relax.const(2.0, "float32"), "tensor": y}.get(bound, bound)
        return bb.emit_te(function, x, other)

    mod = _module(body, (2, 3), (1, 3))
    assert any("call_tir" in text for text in check_canonical(mod))
    made = _canonical(mod)
    assert _operators(made) == [name]
    assert [gv.name_hint for gv in made.functions] == ["main"]


def test_other_call_tir_stays():
    made = canonicalize(_module(lambda bb, x: bb.emit_te(topi.exp, x), (3,)))
    assert _operators(made) == ["relax.call_tir"]


def test_one_element_constants_become_rank_zero():
    made = _canonical(_module(lambda bb, x: op.add(x, relax.const(np.ones((1, 1), "float32"))), (2, 3)))
    assert _values(made)[0].args[1].ty.ndim == 0


def test_a_constant_that_adds_a_dim_stays():
    one = relax.const(np.ones((1, 1, 1), "float32"))
    made = _canonical(_module(lambda bb, x: op.add(x, one), (2, 3)))
    assert _values(made)[0].args[1].ty.ndim == 3
    assert [int(d) for d in made["main"].ret_ty.shape] == [1, 2, 3]


def test_constants_fold_through():
    def body(bb, x):
        bound = bb.emit(
            op.where(op.isnan(relax.const([1.0, 2.0])), relax.const(0.0), relax.const([1.0, 2.0]))
        )
        pair = bb.emit(relax.Tuple([bound, bound]))
        return op.add(x, op.concat(pair, axis=0))

    made = _canonical(_module(body, (4,)))
    assert _operators(made) == ["relax.add"]
    assert _values(made)[0].args[1].value.numpy().tolist() == [1.0, 2.0, 1.0, 2.0]


def test_a_constant_result_stays_bound():
    made = _canonical(_module(lambda bb, x: op.add(relax.const(1.0), relax.const(2.0)), (4,)))
    assert run(made, np.zeros(4, "float32"))[0] == 3.0


def test_dead_code_goes():
    def body(bb, x):
        bb.emit(op.exp(x))
        return op.negative(x)

    assert _operators(_canonical(_module(body, (4,)))) == ["relax.negative"]


def test_origins_stay():
    def body(bb, x):
        y = bb.emit(with_origin(op.exp(x), ["first"]))
        return with_origin(op.clip(y, 0, 6), ["second", "third"])

    made = _canonical(_module(body, (4,)))
    assert [origin(value) for value in _values(made)] == [("first",)] + [("second", "third")] * 2


def test_symbolic_shapes_and_match_cast_stay():
    @I.ir_module
    class Module:
        @R.function
        def main(
            z: R.Tensor((1, 4), "float32"),
            y: R.Tensor(dtype="float32", ndim=2),
            q: R.Tensor((1, 4), "float32"),
        ) -> R.Tensor(dtype="float32", ndim=2):
            k = T.int64()
            with R.dataflow():
                a = R.clip(z, 0, 6)
                sh = R.shape_of(y)
                _bound = R.match_cast(sh, R.Shape([k, 4]))
                b = R.broadcast_to(q, R.shape([k, 4]))
                c = R.add(b, a)
                R.output(c)
            return c

    made = _canonical(Module)
    assert any(isinstance(b, relax.MatchCast) for block in made["main"].body.blocks for b in block.bindings)
    z, y, q = np.full((1, 4), 9, "float32"), np.zeros((3, 4), "float32"), np.ones((1, 4), "float32")
    assert np.array_equal(run(made, z, y, q)[0], np.full((3, 4), 7, "float32"))


def test_a_shape_that_goes_through_a_tensor_is_followed():
    m = tirx.Var("m", "int64")

    def body(bb, x):
        shape = bb.emit(op.shape_to_tensor(bb.emit(op.shape_of(x))))
        return op.reshape(bb.emit(op.negative(x)), bb.emit(op.tensor_to_shape(shape)))

    made = _canonical(_module(body, (m, 3)))
    x = np.arange(6, dtype="float32").reshape(2, 3)
    assert np.array_equal(run(made, x)[0], -x)
    assert "relax.shape_to_tensor" not in _operators(made)


def test_nested_tuples():
    def body(bb, x, y):
        inner = bb.emit(relax.Tuple([x, y]))
        outer = bb.emit(relax.Tuple([inner, relax.Tuple([y, x])]))
        return relax.TupleGetItem(bb.emit(relax.TupleGetItem(outer, 0)), 1)

    made = _canonical(_module(body, (4,), (4,)))
    y = np.full(4, 7, "float32")
    assert np.array_equal(run(made, np.zeros(4, "float32"), y)[0], y)


def test_branches_are_canonical_too():
    @I.ir_module
    class Module:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            if c:
                a = R.clip(x, 0, 1)
                r = R.add(a, R.const(1, "float32"))
            else:
                r = R.negative(x)
            return r

    made = canonicalize(Module)
    assert relax.analysis.check_well_formed(made)
    assert "R.clip" not in made.script()
    x = np.array([-2, 3], "float32")
    assert run(made, np.array(True), x)[0].tolist() == [1.0, 2.0]
    assert run(made, np.array(False), x)[0].tolist() == [2.0, -3.0]


def test_primitive_functions_are_left_alone():
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([2], "float32"))
    with bb.function("group", [x], attrs={"Primitive": True}, private=True):
        with bb.dataflow():
            y = bb.emit_output(op.clip(x, 0, 6))
        bb.emit_func_output(y)
    group = bb.get().get_global_var("group")
    z = relax.Var("z", relax.TensorType([2], "float32"))
    with bb.function("main", [z]):
        with bb.dataflow():
            r = bb.emit_output(relax.Call(group, [z]))
        bb.emit_func_output(r)
    made = canonicalize(bb.get())
    assert "clip" in made["group"].script()


def test_constants_without_elements_are_computed():
    empty = relax.const(np.zeros((0, 3), "float32"))
    made = _canonical(_module(lambda bb, x: op.concat([x, empty], axis=0), (2, 3)))
    x = np.ones((2, 3), "float32")
    assert np.array_equal(run(made, x)[0], x)


def test_a_value_computed_from_an_empty_constant_has_a_type():
    weight, bias = (relax.const(np.ones(shape, "float32")) for shape in ((0, 3), (3,)))
    made = _canonical(_module(lambda bb, x: op.add(bb.emit(op.matmul(x, weight)), bias), (2, 0)))
    assert np.array_equal(run(made, np.zeros((2, 0), "float32"))[0], np.ones((2, 3), "float32"))
