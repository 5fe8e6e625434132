"""Find ``numerator / sqrt(mean of squares + epsilon)`` and the scale and shift after it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from relay_passes.operands import array_of, axes_of, call_of, constant, either_order, number_of, with_number
from tvmpass.core.site import FunctionView, same_shape, shape_of


@dataclass
class Ratio:
    """``result = numerator / sqrt(mean(squared ** 2, axes) + epsilon)``."""

    result: relax.Var
    numerator: relax.Var
    squared: relax.Var
    axes: tuple[int, ...]
    epsilon: float
    mean: relax.Var
    taken: set


@dataclass
class Affine:
    """What follows a normalisation: the last variable, scale, shift, what was taken."""

    root: relax.Var
    scale: object | None
    shift: object | None
    taken: set


def ratio_of(view: FunctionView, var) -> Ratio | None:
    """Read ``var`` as a ratio; division, rsqrt and one over sqrt are alike."""
    for numerator, root, taken in _divided(view, var):
        added = with_number(view, root, "relax.add")
        mean = call_of(view, added[0], "relax.mean") if added else None
        if mean is None or not mean.attrs.keepdims:
            continue
        squared = _square_of(view, mean.args[0])
        if squared is None or not isinstance(numerator, relax.Var):
            continue
        axes = axes_of(mean.attrs.axis, mean.args[0].ty.ndim)
        taken = taken | {var, root, added[0], mean.args[0]}
        return Ratio(var, numerator, squared, axes, added[1], added[0], taken)
    return None


def _divided(view, var):
    """Yield ``(numerator, what the square root is taken of, taken)``."""
    divide = call_of(view, var, "relax.divide")
    if divide is not None:
        sqrt = call_of(view, divide.args[1], "relax.sqrt")
        if sqrt is not None:
            yield divide.args[0], sqrt.args[0], {divide.args[1]}
    multiply = call_of(view, var, "relax.multiply")
    if multiply is None:
        return
    for numerator, other in either_order(multiply):
        rsqrt = call_of(view, other, "relax.rsqrt")
        if rsqrt is not None:
            yield numerator, rsqrt.args[0], {other}
        inverse = call_of(view, other, "relax.divide")
        sqrt = call_of(view, inverse.args[1], "relax.sqrt") if inverse is not None else None
        if sqrt is not None and number_of(view, inverse.args[0]) == 1.0:
            yield numerator, sqrt.args[0], {other, inverse.args[1]}


def _square_of(view, expr):
    """Return what ``expr`` is the square of, else None."""
    power = call_of(view, expr, "relax.power")
    if power is not None and number_of(view, power.args[1]) == 2.0:
        return power.args[0]
    square = call_of(view, expr, "relax.square")
    if square is not None:
        return square.args[0]
    multiply = call_of(view, expr, "relax.multiply")
    if multiply is not None and multiply.args[0].same_as(multiply.args[1]):
        return multiply.args[0]
    return None


def affine_after(view: FunctionView, var, axes: tuple[int, ...], shift: bool = True) -> Affine:
    """Follow a scale and a shift over the normalised axes, as far as nothing else reads between."""
    found = Affine(var, None, None, set())
    for operator, name in (("relax.multiply", "scale"), ("relax.add", "shift"))[: 2 if shift else 1]:
        users = view.users.get(found.root, ())
        if len(users) != 1 or found.root in view.outputs:
            break
        call = call_of(view, users[0], operator)
        if call is None or not same_shape(shape_of(users[0]), shape_of(var)):
            continue
        for operand, parameter in either_order(call):
            if operand.same_as(found.root) and _is_parameter(view, parameter, var, axes):
                setattr(found, name, parameter)
                found.taken.add(users[0])
                found.root = users[0]
                break
    return found


def _is_parameter(view, expr, var, axes) -> bool:
    """A constant that varies over the axes only, or a vector of just their shape."""
    dims = shape_of(var)
    array = array_of(view, expr)
    if array is None:
        return same_shape(shape_of(expr), tuple(dims[a] for a in axes))
    padded = (1,) * (len(dims) - array.ndim) + array.shape
    return all(extent == 1 for i, extent in enumerate(padded) if i not in axes)


def parameter(view, expr, default: float, dims: tuple[int, ...], dtype: str):
    """Return a scale or shift of shape ``dims``: ``expr``, its broadcast, or all ``default``."""
    if expr is None:
        return constant(np.full(dims, default, "float64"), dtype)
    value = view.value(expr)
    if not isinstance(value, tvm.ir.GenericConst) or same_shape(shape_of(value), dims):
        return expr
    array = value.value.numpy()
    kept = array.reshape(array.shape[-len(dims) :]) if array.ndim > len(dims) else array
    return constant(np.broadcast_to(kept, dims))
