"""Random calls of elementwise operators, reductions and what creates tensors.

Each maker gets the builder and a tensor that it may use, and returns a value, or
None where it has no use for it.
"""

from __future__ import annotations

import math

import numpy as np

from .building import GRID, Builder
from .values import INEXACT, Range, Value, negated, product, repeated, total

SMOOTH = {"sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0), "erf": (-1.0, 1.0), "atan": (-1.6, 1.6)}
BIT = Range(0, 1)


def smooth(b: Builder, x: Value) -> Value | None:
    if not x.is_float:
        return None
    name = b.pick(["sigmoid", "tanh", "erf", "atan", "exp"])
    if name == "exp":
        return b.call(name, [x], Range(0, math.exp(x.range.high), INEXACT)) if x.range.high < 4 else None
    return b.call(name, [x], Range(*SMOOTH[name], INEXACT))


def positive(b: Builder, x: Value) -> Value | None:
    """Take a root or a logarithm of what is surely positive."""
    if not x.is_float or x.dtype == "float16":
        return None
    size = b.call("abs", [x], Range(0, x.range.size, x.range.bits))
    if size is None:
        return None
    raised = b.call("add", [size, b.scalar(0.5, x.dtype)], total(size.range, Range(0.5, 0.5, 2)))
    if raised is None:
        return None
    name = b.pick(["sqrt", "rsqrt", "log"])
    high = raised.range.high
    span = {"sqrt": (0.7, math.sqrt(high)), "rsqrt": (0, 1.42), "log": (-0.7, math.log(high))}[name]
    return b.call(name, [raised], Range(*span, INEXACT))


def sign_like(b: Builder, x: Value) -> Value | None:
    if not (x.is_float or x.is_integer):
        return None
    name = b.pick(["nn.relu", "negative", "abs", "zeros_like"])
    if name in ("negative", "abs") and x.dtype == "uint8":
        return None
    span = {
        "nn.relu": Range(max(x.range.low, 0), max(x.range.high, 0), x.range.bits),
        "negative": negated(x.range),
        "abs": Range(0, x.range.size, x.range.bits),
        "zeros_like": Range(0, 0),
    }[name]
    return b.call(name, [x], span)


def rounded(b: Builder, x: Value) -> Value | None:
    if not (x.is_float and x.range.exact):
        return None
    name = b.pick(["round", "floor", "ceil", "trunc", "sign"])
    span = Range(-1, 1) if name == "sign" else Range(math.floor(x.range.low), math.ceil(x.range.high))
    return b.call(name, [x], span)


def cast(b: Builder, x: Value) -> Value | None:
    dtype = b.pick(["float32", "int32", "bool", "int8", "int64", "uint8", "float16", "float64"])
    if dtype == "bool":
        return b.call("cast", [x], BIT, {"dtype": dtype}) if x.range.exact else None
    span = x.range
    if dtype.startswith(("int", "uint")):
        if not span.exact:
            return None
        span = Range(math.ceil(span.low), math.floor(span.high)) if x.is_float else span
        if not span.fits(dtype) and not x.is_float:
            info = np.iinfo(dtype)
            span = Range(info.min, info.max)
    return b.call("cast", [x], span, {"dtype": dtype})


def clip(b: Builder, x: Value) -> Value | None:
    if not (x.is_float or x.is_integer):
        return None
    low = b.pick([0, -1, -0.5]) if x.is_float else b.pick([0, 1])
    high = b.pick([6, 1, 1.5]) if x.is_float else b.pick([6, 3])
    bits = max(x.range.bits, 1) if x.range.exact and x.is_float else x.range.bits
    span = Range(min(max(x.range.low, low), high), max(min(x.range.high, high), low), bits)
    return b.call("clip", [x], span, {"a_min": float(low), "a_max": float(high)})


def leaky(b: Builder, x: Value) -> Value | None:
    if not x.is_float:
        return None
    if len(x.shape) >= 2 and b.chance():
        alpha = b.filled([x.shape[1]], x.dtype)
        span = product(x.range, GRID).joined(x.range).joined(Range(0, 0))
        return b.call("nn.prelu", [x, alpha], span)
    slope = b.pick([0.25, 0.1])
    bits = x.range.bits + 2 if x.range.exact and slope == 0.25 else INEXACT
    span = Range(min(x.range.low, 0), max(x.range.high, 0), bits)
    return b.call("nn.leaky_relu", [x], span, {"alpha": slope})


def dropout(b: Builder, x: Value) -> Value | None:
    if not x.is_float:
        return None
    pair = b.call("nn.dropout", [x], [x.range, Range(1, 1)], {"rate": b.pick([0.5, 0.3])})
    return b.item(pair, 0) if pair is not None else None


# -- two operands


def partner(b: Builder, x: Value) -> Value:
    """Choose what may stand beside ``x``: a value that broadcasts with it, or a constant."""

    def suits(y: Value) -> bool:
        return y.is_tensor and y.dtype == x.dtype and broadcasts(x.shape, y.shape)

    found = b.find(suits)
    if found is not None and not b.chance(3):
        return found
    span = GRID if x.is_float else BIT if x.dtype == "bool" else Range(1, 4)
    if b.chance():
        shape = [dim if b.chance() else 1 for dim in x.shape[b.number(0, len(x.shape)) :]]
        return b.filled(shape, x.dtype, span)
    if x.is_float:
        return b.scalar(b.pick([0.5, 2.0, 1.0, -1.5, 0.1, 0.707107, 3.0, -1e-05]), x.dtype)
    return b.scalar(b.pick([1, 2, 3]), x.dtype) if x.is_integer else b.scalar(1, "bool")


def broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Return whether two shapes broadcast together."""
    return all(p == q or 1 in (p, q) for p, q in zip(reversed(a), reversed(b)))


def arithmetic(b: Builder, x: Value) -> Value | None:
    if not (x.is_float or x.is_integer):
        return None
    y = partner(b, x)
    if b.chance():
        x, y = y, x
    name = b.pick(["add", "multiply", "subtract", "maximum", "minimum"])
    if name in ("maximum", "minimum"):
        pick = max if name == "maximum" else min
        bits = x.range.joined(y.range).bits
        span = Range(pick(x.range.low, y.range.low), pick(x.range.high, y.range.high), bits)
    elif name == "multiply":
        span = product(x.range, y.range)
    else:
        span = total(x.range, y.range if name == "add" else negated(y.range))
    return b.call(name, [x, y], span)


def compared(b: Builder, x: Value) -> Value | None:
    if not (x.is_float or x.is_integer) or not x.range.exact:
        return None
    y = partner(b, x)
    if not y.range.exact and not isinstance(y.range.low, float):
        return None
    if not y.range.exact and y.range.low != y.range.high:
        return None
    return b.call(b.pick(["less", "greater"]), [x, y], BIT)


def divided(b: Builder, x: Value) -> Value | None:
    if x.is_integer:
        by = b.scalar(b.pick([2, 3, 1]), x.dtype)
        size = x.range.size
        return b.call("divide", [x, by], Range(-size if x.range.low < 0 else 0, size))
    if not x.is_float or x.dtype == "float16":
        return None
    number = b.pick([2.0, 0.5, 3.0, 0.8])
    return b.call(
        "divide", [x, b.scalar(number, x.dtype)], product(x.range, Range(1 / number, 1 / number)).inexact()
    )


def power(b: Builder, x: Value) -> Value | None:
    if not x.is_float or x.dtype == "float16" or x.range.size > 4:
        return None
    size = b.call("abs", [x], Range(0, x.range.size, x.range.bits))
    if size is None:
        return None
    base = b.call("add", [size, b.scalar(0.5, x.dtype)], total(size.range, Range(0.5, 0.5, 2)))
    if base is None:
        return None
    exponent = b.filled([x.shape[-1]] if x.shape else [], x.dtype, Range(-1, 2, 2))
    return b.call("power", [base, exponent], Range(0, max(base.range.high**2, 2), INEXACT))


# -- reductions


def reduced(b: Builder, x: Value) -> Value | None:
    if x.dtype == "bool":
        name = b.pick(["all", "any"])
    elif x.is_float:
        name = b.pick(["sum", "mean", "max", "min", "prod"])
    else:
        name = b.pick(["sum", "max", "min"])
    attrs, count = axes(b, x)
    if name in ("sum", "mean", "prod") and x.dtype in ("float16", "int8", "uint8"):
        return None
    if name == "sum":
        span = repeated(x.range, count)
    elif name == "mean":
        if not repeated(x.range, count).fits("float64"):
            return None
        span = x.range.inexact()
    elif name == "prod":
        size = max(1.0, x.range.size) ** count
        span = Range(-size, size, INEXACT)
    else:
        span = x.range
    return b.call(name, [x], span, attrs)


def axes(b: Builder, x: Value) -> tuple[dict, int]:
    """Choose what a reduction runs over; return its attributes and the number of elements."""
    rank = len(x.shape)
    attrs: dict = {}
    if rank and b.chance(4) is False:
        chosen = sorted({b.number(0, rank - 1) for _ in range(b.number(1, 2))})
        attrs["axis"] = [axis - rank if b.chance(4) else axis for axis in chosen]
        if b.chance(5) and len(chosen) < rank:
            attrs["exclude"] = True
            chosen = [axis for axis in range(rank) if axis not in chosen]
    else:
        chosen = list(range(rank))
    if b.chance(3):
        attrs["keepdims"] = True
    return attrs, math.prod(x.shape[axis] for axis in chosen)


def variance(b: Builder, x: Value) -> Value | None:
    if not x.is_float or x.dtype == "float16" or not x.shape:
        return None
    axis = [b.number(0, len(x.shape) - 1)]
    mean = b.call("mean", [x], x.range.inexact(), {"axis": axis, "keepdims": True})
    if mean is None or x.range.size > 4:
        return None
    return b.call("variance", [x, mean], Range(0, 4 * x.range.size**2, INEXACT), {"axis": axis})


def best(b: Builder, x: Value) -> Value | None:
    if not x.range.exact or x.dtype == "bool" or not x.shape:
        return None
    attrs: dict = {"axis": [b.number(-1, len(x.shape) - 1)]} if b.chance(4) is False else {}
    if b.chance(3):
        attrs["keepdims"] = True
    if b.chance(3) and "axis" in attrs:
        attrs["select_last_index"] = True
    return b.call(b.pick(["argmax", "argmin"]), [x], Range(0, math.prod(x.shape)), attrs)


# -- creation


def created(b: Builder, x: Value) -> Value | None:
    """Make a tensor that depends on no value, only perhaps on a shape."""
    kind = b.pick(["zeros", "ones", "full", "full_like", "shape_of", "arange"])
    shape = list(x.shape) or [2]
    dtype = b.pick(["float32", "int32"])
    if kind in ("zeros", "ones"):
        number = int(kind == "ones")
        return b.call(kind, [], Range(number, number), {"shape": shape, "dtype": dtype})
    if kind == "full":
        value = b.scalar(b.pick([2.5, 0.5]), "float32")
        return b.call(kind, [value], value.range, {"shape": shape})
    if kind == "full_like":
        if x.dtype not in ("float32", "int32"):
            return None
        value = b.scalar(b.pick([7, 1]), x.dtype)
        return b.call(kind, [x, value], value.range)
    if kind == "shape_of":
        return b.call(kind, [x], Range(0, 600), {"dtype": "int32"}) if x.shape else None
    start, count, step = b.number(0, 3), b.number(1, 5), b.number(1, 3)
    numbers = [b.scalar(n, "int32") for n in (start, start + count * step, step)]
    again = {
        key: b.constant(np.asarray(n.node.value), n.range).node  # type: ignore[attr-defined]
        for key, n in zip(("start", "stop", "step"), numbers)
    }
    for node in again.values():
        del b.types[node]  # Relay gives attributes no types
    return b.call(kind, numbers, Range(0, start + count * step), {**again, "dtype": "int32"})


def one_hot(b: Builder, x: Value) -> Value | None:
    if x.dtype != "int32":
        return None
    dtype = b.pick(["float32", "int32"])
    on, off = (b.scalar(b.pick([1, 2]), dtype), b.scalar(b.pick([0, -1]), dtype))
    attrs: dict = {"depth": b.number(1, 5), "dtype": dtype}
    if b.chance():
        attrs["axis"] = b.number(0, len(x.shape))
    return b.call("one_hot", [x, on, off], Range(-1, 2), attrs)


MAKERS = (
    arithmetic,
    arithmetic,
    smooth,
    sign_like,
    positive,
    rounded,
    cast,
    clip,
    leaky,
    dropout,
    compared,
    divided,
    power,
    reduced,
    reduced,
    variance,
    best,
    created,
    one_hot,
)
