"""Elementwise operators with the meaning tvmpass fixes: NaN, and integer division.

A maximum with a known number is one compare and select, ``c > x ? c : x``, which
LLVM turns into a single instruction and which keeps NaN; where both sides are
unknown a second test for NaN is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax, te, tirx

from tvmpass.core.constants import constant_array
from tvmpass.core.site import op_name

Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]


def is_float(dtype) -> bool:
    """Return True for floating point dtypes, bfloat16 and float8 among them."""
    return str(dtype).startswith(("float", "bfloat"))


def immediate(expr):
    """Return a rank-0 constant as an immediate of its dtype, other expressions as they are."""
    array = constant_array(expr)
    if array is None or array.ndim:
        return expr
    return tirx.const(array.item(), str(expr.ty.dtype))


def is_nan(value):
    """Return the test for NaN; written as ``value != value`` the simplifier would drop it."""
    return tirx.isnan(value)


def keep_nan(value, otherwise):
    """Return ``value`` where it is NaN, else ``otherwise``.

    ``isnan`` is a call that TVM's vectoriser does not take: it would turn the
    loop into a scalar one.  No number but NaN fails to be at most infinity.
    """
    return tirx.Select(tirx.LE(value, tirx.const(math.inf, str(value.ty.dtype))), otherwise, value)


def broadcast(function, *operands, name: str) -> te.Tensor:
    """Apply a scalar function to tensors and immediates under numpy broadcasting."""
    shapes = [list(x.shape) if isinstance(x, te.Tensor) else [] for x in operands]
    rank = max(len(shape) for shape in shapes)
    shape: list = [1] * rank
    for dims in shapes:
        for axis, dim in enumerate(dims, rank - len(dims)):
            if _is_one(shape[axis]):
                shape[axis] = dim

    def element(operand, dims, index):
        if not isinstance(operand, te.Tensor):
            return operand
        own = index[rank - len(dims) :]
        return operand(
            *[
                0 if _is_one(d) and not _is_one(s) else i
                for d, s, i in zip(dims, shape[rank - len(dims) :], own)
            ]
        )

    return te.compute(
        shape, lambda *index: function(*[element(x, d, index) for x, d in zip(operands, shapes)]), name=name
    )


def _is_one(dim) -> bool:
    return int(dim) == 1 if isinstance(dim, (int, tirx.IntImm)) else False


def _fill(value: float, dtype: str):
    return tirx.const(value, dtype)


def greater_of(a, b):
    """Return the larger scalar, NaN where one is NaN."""
    return _extreme(a, b, tirx.Max)


def smaller_of(a, b):
    """Return the smaller scalar, NaN where one is NaN."""
    return _extreme(a, b, tirx.Min)


def _extreme(a, b, extreme):
    if isinstance(a, tirx.FloatImm):
        a, b = b, a
    if isinstance(b, tirx.FloatImm):
        if math.isnan(b.value):
            return b
        # Code generation makes this ``b wins over a ? b : a``: false for NaN, which then passes
        # through.  Unlike a Select it reads ``a`` once, so that chains do not grow exponentially.
        return extreme(b, a)
    return keep_nan(a, extreme(a, b))  # ``a wins over b ? a : b``: b where either is NaN


def _extreme_operator(scalar, name: str, stock: Legalize) -> Legalize:
    def legalize(bb, call):
        if not is_float(call.ty.dtype):
            return stock(bb, call)
        args = [immediate(arg) for arg in call.args]
        if all(isinstance(arg, tirx.FloatImm) for arg in args):
            args[0] = call.args[0]

        def compute(a, b):
            return broadcast(scalar, a, b, name=f"T_{name}")

        return bb.call_te(compute, *args, primfunc_name_hint=name)

    return legalize


def _relu(bb, call):
    dtype = str(call.ty.dtype)

    def relu(x):
        return broadcast(lambda v: tirx.Max(_fill(0, dtype), v), x, name="T_relu")

    return bb.call_te(relu, call.args[0], primfunc_name_hint="relu")


def _sign(bb, call):
    dtype = str(call.ty.dtype)

    def scalar(v):
        # Zero and NaN are what is left, and stay.
        below = tirx.Select(tirx.LT(v, _fill(0, dtype)), _fill(-1, dtype), v)
        return tirx.Select(tirx.GT(v, _fill(0, dtype)), _fill(1, dtype), below)

    def unsigned(v):
        return tirx.Select(tirx.GT(v, _fill(0, dtype)), _fill(1, dtype), _fill(0, dtype))

    def sign(x):
        return broadcast(unsigned if dtype.startswith("uint") else scalar, x, name="T_sign")

    return bb.call_te(sign, call.args[0], primfunc_name_hint="tir_sign")


def _clip(bb, call):
    dtype = str(call.ty.dtype)
    low, high = (arg.value for arg in call.args[1:3])
    if not is_float(dtype):
        limits = np.iinfo(dtype)
        low, high = (int(min(max(bound, limits.min), limits.max)) for bound in (low, high))

    def scalar(v):
        return tirx.Min(_fill(high, dtype), tirx.Max(_fill(low, dtype), v))

    return bb.call_te(lambda x: broadcast(scalar, x, name="T_clip"), call.args[0], primfunc_name_hint="clip")


def _comparison(name: str, stock: Legalize, nan: bool) -> Legalize:
    """Compare truth values as bytes, and call NaN unequal to everything.

    TVM's own not_equal is False where one side is NaN, and its code for truth
    values does not pass LLVM's verifier.
    """

    def scalar(a, b):
        if str(a.ty.dtype) == "bool":
            a, b = a.astype("uint8"), b.astype("uint8")
        if name == "equal":
            return tirx.EQ(a, b)
        differs = tirx.NE(a, b)
        return tirx.Or(differs, tirx.Or(is_nan(a), is_nan(b))) if is_float(a.ty.dtype) else differs

    def legalize(bb, call):
        dtype = str(call.args[0].ty.dtype)
        if dtype != "bool" and not (nan and name == "not_equal" and is_float(dtype)):
            return stock(bb, call)
        args = [immediate(arg) for arg in call.args]
        if not any(isinstance(getattr(arg, "ty", None), relax.TensorType) for arg in args):
            args[0] = call.args[0]
        return bb.call_te(
            lambda a, b: broadcast(scalar, a, b, name=f"T_{name}"), *args, primfunc_name_hint=name
        )

    return legalize


def comparisons(stock: Callable[[str], Legalize], nan: bool) -> dict[str, Legalize]:
    """Return equal and not_equal; without ``nan`` a NaN may compare as equal."""
    names = ("equal", "not_equal")
    return {f"relax.{name}": _comparison(name, stock(f"relax.{name}"), nan) for name in names}


def nan_operators(stock: Callable[[str], Legalize]) -> dict[str, Legalize]:
    """Return the elementwise operators that propagate NaN; ``stock`` gives TVM's own."""
    return {
        "relax.maximum": _extreme_operator(greater_of, "maximum", stock("relax.maximum")),
        "relax.minimum": _extreme_operator(smaller_of, "minimum", stock("relax.minimum")),
        "relax.nn.relu": _relu,
        "relax.sign": _sign,
        "relax.clip": _clip,
    }


def _guarded(divide, name: str, stock: Legalize) -> Legalize:
    """Divide integers without a trap: x / 0 is 0, and the smallest value / -1 wraps.

    A divisor that is a constant without 0 and -1 needs no guard.
    """

    def legalize(bb, call):
        dtype = str(call.ty.dtype)
        divisor = constant_array(call.args[1])
        if is_float(dtype):
            if name == "divide" and divisor is not None and divisor.ndim == 0 and divisor.item() == 0:
                return _over_zero(bb, call, float(divisor.item()))
            return stock(bb, call)
        if divisor is not None and divisor.ndim == 0 and divisor.item() not in (0, -1):
            return stock(bb, call)
        signed = dtype.startswith("int")
        is_quotient = name in ("divide", "floor_divide")

        def scalar(a, b):
            zero, one = _fill(0, dtype), _fill(1, dtype)
            by_zero = tirx.EQ(b, zero)
            if not signed:
                return tirx.Select(by_zero, zero, divide(a, tirx.Select(by_zero, one, b)))
            by_minus = tirx.EQ(b, _fill(-1, dtype))
            safe = tirx.Select(tirx.Or(by_zero, by_minus), one, b)
            # The smallest value has no negative: it wraps to itself.
            smallest = _fill(int(np.iinfo(dtype).min), dtype)
            negated = tirx.Select(tirx.EQ(a, smallest), smallest, zero - a) if is_quotient else zero
            return tirx.Select(by_zero, zero, tirx.Select(by_minus, negated, divide(a, safe)))

        def compute(a, b):
            return broadcast(scalar, a, b, name=f"T_{name}")

        args = [immediate(arg) for arg in call.args]
        if not any(isinstance(arg, relax.Expr) and isinstance(arg.ty, relax.TensorType) for arg in args):
            args[0] = call.args[0]
        return bb.call_te(compute, *args, primfunc_name_hint=name)

    return legalize


def _over_zero(bb, call, zero: float):
    """Divide floats by the number 0.0 or -0.0 as a product with an infinity.

    It is the same for every dividend, and TVM refuses to divide by a known 0.
    """
    infinity = _fill(math.copysign(math.inf, zero), str(call.ty.dtype))
    return bb.call_te(
        lambda a: broadcast(lambda v: v * infinity, a, name="T_divide"),
        call.args[0],
        primfunc_name_hint="divide",
    )


def zero_is_tensor(call) -> bool:
    """Return True where a number 0 among the operands must stay a tensor.

    TVM would fold sums, products and quotients with an immediate 0 as if NaN,
    infinities and -0.0 were not.
    """
    name = op_name(call)
    if name not in ("relax.add", "relax.multiply", "relax.divide") or not is_float(call.ty.dtype):
        return False
    zeros = [x is not None and x.ndim == 0 and x.item() == 0 for x in map(constant_array, call.args)]
    return zeros[0] if name == "relax.divide" else any(zeros)


def _with_zero(name: str, stock: Legalize) -> Legalize:
    combine = {"add": tirx.Add, "multiply": tirx.Mul, "divide": tirx.Div}[name]

    def legalize(bb, call):
        if not zero_is_tensor(call):
            return stock(bb, call)
        return bb.call_te(
            lambda a, b: broadcast(combine, a, b, name=f"T_{name}"), *call.args, primfunc_name_hint=name
        )

    return legalize


def _half_remainder(stock: Legalize) -> Legalize:
    """Take remainders of 16-bit floats in float32, where they are exact: CUDA has no others."""

    def legalize(bb, call):
        dtype = str(call.ty.dtype)
        if dtype not in ("float16", "bfloat16"):
            return stock(bb, call)

        def scalar(a, b):
            remainder = tirx.truncmod(tirx.Cast("float32", a), tirx.Cast("float32", b))
            return tirx.Cast(dtype, remainder)

        return bb.call_te(
            lambda a, b: broadcast(scalar, a, b, name="T_mod"), *call.args, primfunc_name_hint="mod"
        )

    return legalize


def _shift(shift, name: str) -> Legalize:
    """Shift by the width or more gives 0 (the sign, to the right), never a wild value."""

    def legalize(bb, call):
        dtype = str(call.ty.dtype)
        bits = int("".join(c for c in dtype if c.isdigit()))

        def scalar(a, b):
            # The simplifier cannot take a difference of unsigned constants below zero.
            signed = f"int{max(bits, 32)}"
            amount = tirx.Cast(signed, b)
            inside = tirx.And(tirx.GE(amount, _fill(0, signed)), tirx.LT(amount, _fill(bits, signed)))
            beyond = shift(a, _fill(bits - 1, dtype)) if name == "right_shift" else _fill(0, dtype)
            return tirx.Select(inside, shift(a, tirx.Select(inside, b, _fill(0, dtype))), beyond)

        return bb.call_te(
            lambda a, b: broadcast(scalar, a, b, name=f"T_{name}"), *call.args, primfunc_name_hint=name
        )

    return legalize


def safe_operators(stock: Callable[[str], Legalize]) -> dict[str, Legalize]:
    """Return integer operators that are defined for every operand."""
    return {
        "relax.add": _with_zero("add", stock("relax.add")),
        "relax.multiply": _with_zero("multiply", stock("relax.multiply")),
        "relax.divide": _with_zero("divide", _guarded(tirx.truncdiv, "divide", stock("relax.divide"))),
        "relax.floor_divide": _guarded(tirx.floordiv, "floor_divide", stock("relax.floor_divide")),
        "relax.mod": _guarded(tirx.truncmod, "mod", _half_remainder(stock("relax.mod"))),
        "relax.floor_mod": _guarded(tirx.floormod, "floor_mod", stock("relax.floor_mod")),
        "relax.left_shift": _shift(lambda a, b: a << b, "left_shift"),
        "relax.right_shift": _shift(lambda a, b: a >> b, "right_shift"),
    }


def _logistic(v, dtype: str):
    return _fill(1, dtype) / (_fill(1, dtype) + tirx.exp(-v))


def _sigmoid(bb, call):
    dtype = str(call.ty.dtype)
    return bb.call_te(
        lambda x: broadcast(lambda v: _logistic(v, dtype), x, name="T_sigmoid"),
        call.args[0],
        primfunc_name_hint="tir_sigmoid",
    )


def _silu(bb, call):
    dtype = str(call.ty.dtype)

    def scalar(v):
        return v / (_fill(1, dtype) + tirx.exp(-v))

    return bb.call_te(lambda x: broadcast(scalar, x, name="T_silu"), call.args[0], primfunc_name_hint="silu")


def activations() -> dict[str, Legalize]:
    """Return activations written out, so that they fuse and vectorise as one expression."""
    return {"relax.sigmoid": _sigmoid, "relax.nn.silu": _silu}
