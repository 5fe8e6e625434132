"""Elementwise arithmetic, comparisons, logic and bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax, topi

from ..table import CannotConvert, Table
from . import fixed_point
from .facts import (
    dtype_of,
    integer_limits,
    is_float,
    is_integer,
    is_unsigned,
    require_bool,
    require_float,
)

TABLE = Table()

_FLOAT_ONLY = (
    *("exp", "log", "sqrt", "rsqrt", "erf", "sigmoid", "tanh", "sin", "cos", "tan"),
    *("asin", "acos", "atan", "asinh", "acosh", "atanh"),
)
# TVM generates no code for these on 16-bit floats.
_WIDENED = frozenset(("asin", "acos", "atan", "asinh", "acosh"))


def _float_function(name: str) -> None:
    function = getattr(relax.op, name)

    @TABLE.operator(name)
    def convert(emit, attrs, x):
        require_float(x)
        dtype = dtype_of(x)
        if name not in _WIDENED or dtype not in ("float16", "bfloat16"):
            return function(x)
        wide = emit(function(emit(relax.op.astype(x, "float32"))))
        return relax.op.astype(wide, dtype)


for _name in _FLOAT_ONLY:
    _float_function(_name)


def _half_of_exponentials(name: str, combine: Callable) -> None:
    """Register a hyperbolic function as Relay computes it; TVM has no vector code for it."""

    @TABLE.operator(name)
    def convert(emit, attrs, x):
        require_float(x)
        rising, falling = emit(relax.op.exp(x)), emit(relax.op.exp(emit(relax.op.negative(x))))
        return relax.op.multiply(emit(combine(rising, falling)), emit.const(0.5, dtype_of(x)))


_half_of_exponentials("sinh", relax.op.subtract)
_half_of_exponentials("cosh", relax.op.add)


def _kernel(name: str, function: Callable) -> None:
    """Register a function of floats that Relax has no operator for."""

    @TABLE.operator(name)
    def convert(emit, attrs, x):
        require_float(x)
        return emit.te(function, x, name=name)


for _name in ("log2", "log10", "fast_exp", "fast_tanh", "fast_erf"):
    _kernel(_name, getattr(topi, _name))


def _whole_numbers(name: str) -> None:
    """Register a rounding: integers and truth values are what they are."""
    function = getattr(relax.op, name)

    @TABLE.operator(name)
    def convert(emit, attrs, x):
        return function(x) if is_float(dtype_of(x)) else x


for _name in ("floor", "ceil", "trunc"):
    _whole_numbers(_name)


@TABLE.operator("round")
def round_half_away(emit, attrs, x):
    """Round to the nearest whole number, halves away from zero; Relax's round takes the even one."""
    dtype = dtype_of(x)
    if not is_float(dtype):
        return x
    whole = emit(relax.op.trunc(x))
    # The difference is exact, and NaN (for NaN and infinities) is not at least a half.
    rest = emit(relax.op.abs(emit(relax.op.subtract(x, whole))))
    away = emit(relax.op.add(whole, emit(relax.op.sign(x))))
    return relax.op.where(emit(relax.op.greater_equal(rest, emit.const(0.5, dtype))), away, whole)


@TABLE.operator("abs")
def absolute(emit, attrs, x):
    """Take absolute values; unsigned integers and truth values are their own."""
    dtype = dtype_of(x)
    return x if is_unsigned(dtype) or dtype == "bool" else relax.op.abs(x)


@TABLE.operator("negative")
def negative(emit, attrs, x):
    """Negate; unsigned integers wrap."""
    dtype = dtype_of(x)
    if dtype == "bool":
        raise CannotConvert("it is not defined on bool")
    return relax.op.subtract(emit.const(0, dtype), x) if is_unsigned(dtype) else relax.op.negative(x)


@TABLE.operator("sign")
def sign(emit, attrs, x):
    """Return -1, 0 or 1; NaN stays NaN."""
    return x if dtype_of(x) == "bool" else relax.op.sign(x)


def _classify(name: str, of_integers: bool) -> None:
    function = getattr(relax.op, name)

    @TABLE.operator(name)
    def convert(emit, attrs, x):
        if dtype_of(x) == "bfloat16":
            x = emit(relax.op.astype(x, "float32"))
        if is_float(dtype_of(x)):
            return function(x)
        return relax.op.full(
            relax.ShapeExpr(list(x.ty.shape.values)), emit.const(of_integers, "bool"), "bool"
        )


_classify("isnan", False)
_classify("isinf", False)
_classify("isfinite", True)


@TABLE.operator("logical_not")
def logical_not(emit, attrs, x):
    """Negate truth values."""
    require_bool(x)
    return relax.op.logical_not(x)


@TABLE.operator("bitwise_not")
def bitwise_not(emit, attrs, x):
    """Negate bits; of truth values it is the logical negation."""
    dtype = dtype_of(x)
    if dtype == "bool":
        return relax.op.logical_not(x)
    if not is_integer(dtype):
        raise CannotConvert(f"it is not defined on {dtype}")
    return relax.op.bitwise_not(x)


def require_same_dtype(a, b) -> str:
    """Return the dtype of both operands; Relay converts none silently."""
    if dtype_of(a) != dtype_of(b):
        raise CannotConvert(f"its operands have different dtypes, {dtype_of(a)} and {dtype_of(b)}")
    return dtype_of(a)


def _arithmetic(name: str) -> None:
    function = getattr(relax.op, name)

    @TABLE.operator(name)
    def convert(emit, attrs, a, b):
        if require_same_dtype(a, b) == "bool":
            raise CannotConvert("it is not defined on bool")
        return function(a, b)


# Relax divides integers as C does, and mod takes the sign of the dividend on floats too.
for _name in ("add", "subtract", "divide", "mod"):
    _arithmetic(_name)


def _rounded_quotient(emit, a, b, rounding: Callable):
    return emit(rounding(emit(relax.op.divide(a, b))))


def _rounded_division(kind: str, of_integers: tuple[Callable, Callable], rounding: Callable) -> None:
    """Register a division and its remainder; on floats both come from the rounded quotient."""

    @TABLE.operator(f"{kind}_divide")
    def divide(emit, attrs, a, b):
        dtype = require_same_dtype(a, b)
        if dtype == "bool":
            raise CannotConvert("it is not defined on bool")
        return _rounded_quotient(emit, a, b, rounding) if is_float(dtype) else of_integers[0](a, b)

    @TABLE.operator(f"{kind}_mod")
    def modulo(emit, attrs, a, b):
        dtype = require_same_dtype(a, b)
        if dtype == "bool":
            raise CannotConvert("it is not defined on bool")
        if not is_float(dtype):
            return of_integers[1](a, b)
        whole = _rounded_quotient(emit, a, b, rounding)
        return relax.op.subtract(a, emit(relax.op.multiply(whole, b)))


_rounded_division("floor", (relax.op.floor_divide, relax.op.floor_mod), relax.op.floor)
_rounded_division("trunc", (relax.op.divide, relax.op.mod), relax.op.trunc)


def _lattice(name: str, of_truth: Callable) -> None:
    function = getattr(relax.op, name)

    @TABLE.operator(name)
    def convert(emit, attrs, a, b):
        return of_truth(a, b) if require_same_dtype(a, b) == "bool" else function(a, b)


_lattice("multiply", relax.op.logical_and)
_lattice("maximum", relax.op.logical_or)
_lattice("minimum", relax.op.logical_and)


@TABLE.operator("power")
def power(emit, attrs, a, b):
    """Raise to a power; Relay has it on floats only."""
    dtype = require_same_dtype(a, b)
    require_float(a)
    if dtype != "bfloat16":
        return relax.op.power(a, b)
    a, b = (emit(relax.op.astype(x, "float32")) for x in (a, b))
    return relax.op.astype(emit(relax.op.power(a, b)), dtype)


def _comparison(name: str) -> None:
    function = getattr(relax.op, name)

    @TABLE.operator(name)
    def convert(emit, attrs, a, b):
        if require_same_dtype(a, b) == "bool" and name not in ("equal", "not_equal"):
            a, b = (emit(relax.op.astype(x, "uint8")) for x in (a, b))
        return function(a, b)


for _name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
    _comparison(_name)


def _logic(name: str) -> None:
    function = getattr(relax.op, name)

    @TABLE.operator(name)
    def convert(emit, attrs, a, b):
        if name == "logical_xor" and is_integer(require_same_dtype(a, b)):
            # Relay's logical_xor is the operator on bits.
            return relax.op.bitwise_xor(a, b)
        require_bool(a, b)
        return function(a, b)


for _name in ("logical_and", "logical_or", "logical_xor"):
    _logic(_name)


def _bits(name: str) -> None:
    function = getattr(relax.op, f"bitwise_{name}")
    of_truth = getattr(relax.op, f"logical_{name}")

    @TABLE.operator(f"bitwise_{name}")
    def convert(emit, attrs, a, b):
        dtype = require_same_dtype(a, b)
        if dtype == "bool":
            return of_truth(a, b)
        if not is_integer(dtype):
            raise CannotConvert(f"it is not defined on {dtype}")
        return function(a, b)


for _name in ("and", "or", "xor"):
    _bits(_name)


def _shift(name: str) -> None:
    function = getattr(relax.op, name)

    @TABLE.operator(name)
    def convert(emit, attrs, a, b):
        if not is_integer(dtype := require_same_dtype(a, b)):
            raise CannotConvert(f"it is not defined on {dtype}")
        return function(a, b)


_shift("left_shift")
_shift("right_shift")


@TABLE.operator("clip")
def clip(emit, attrs, x):
    """Clip to bounds given as floats; on integers they are cut to whole numbers, towards zero."""
    dtype = dtype_of(x)
    if attrs.a_min is None or attrs.a_max is None:
        raise CannotConvert("it needs both bounds, a_min and a_max")
    low, high = float(attrs.a_min), float(attrs.a_max)
    if np.isnan(low) or np.isnan(high):
        raise CannotConvert("a bound is NaN")
    if is_integer(dtype):
        limits = integer_limits(dtype)
        low, high = (_whole_bound(bound, *limits) for bound in (low, high))
    elif not is_float(dtype):
        raise CannotConvert(f"it is not defined on {dtype}")
    upper, lower = emit.const(high, dtype), emit.const(low, dtype)
    return relax.op.maximum(emit(relax.op.minimum(x, upper)), lower)


def _whole_bound(bound: float, least: int, most: int) -> int:
    # A bound beyond the dtype excludes nothing, and has no value in it.
    if bound <= least:
        return least
    return most if bound >= most else int(bound)


@TABLE.operator("cast")
def cast(emit, attrs, x):
    """Convert to a dtype; floats lose their fraction, and bool is whether a value is not 0."""
    return relax.op.astype(x, attrs.dtype)


@TABLE.operator("cast_like")
def cast_like(emit, attrs, x, like):
    """Convert to the dtype of another tensor."""
    return relax.op.astype(x, dtype_of(like))


@TABLE.operator("reinterpret")
def reinterpret(emit, attrs, x):
    """Read the bits of each element as another dtype of the same width."""
    source, target = dtype_of(x), str(attrs.dtype)
    if source == target:
        return x
    if "bool" in (source, target) or _bits_of(source) != _bits_of(target):
        raise CannotConvert(f"{source} has not the width of {target}")
    return emit.te(lambda t: topi.reinterpret(t, target), x, name="reinterpret")


def _bits_of(dtype: str) -> int:
    return int("".join(c for c in dtype if c.isdigit()))


@TABLE.operator("where")
def where(emit, attrs, condition, x, y):
    """Choose by a condition of any dtype: what is not 0 holds."""
    require_same_dtype(x, y)
    dtype = dtype_of(condition)
    if dtype != "bool":
        condition = emit(relax.op.not_equal(condition, emit.const(0, dtype)))
    return relax.op.where(condition, x, y)


TABLE.update(fixed_point.TABLE)
