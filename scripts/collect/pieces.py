"""The pieces of random graphs: sizes, activations and what follows a contraction."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

op = relax.op

_CHANNELS = (3, 8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 120, 128, 144, 160, 192, 240, 256, 288)
_WIDE = (320, 384, 480, 512, 576, 768, 960, 1024)


REUSE = 0.7
"""How often a shape of an earlier graph of the palette is taken again."""


class Graph:
    """Builds one Relax function operator by operator; sizes come from ``rng``.

    ``palette`` holds shapes drawn before, for graphs that are measured together:
    their single operators are then the same kernels and are measured once.
    ``scale`` multiplies how large tensors and products may be.
    """

    def __init__(self, rng: np.random.Generator, palette: dict[str, list], scale: float = 1.0):
        self.rng = rng
        self.palette = palette
        self.scale = scale
        self.params: list[relax.Var] = []

    def input(self, shape, dtype: str = "float32") -> relax.Var:
        var = relax.Var(f"p{len(self.params)}", relax.TensorType([int(d) for d in shape], dtype))
        self.params.append(var)
        return var

    def log_uniform(self, low: float, high: float) -> int:
        return round(math.exp(self.rng.uniform(math.log(low), math.log(high))))

    def again(self, what: str, fits: Callable = lambda value: True):
        """Return an earlier value of the palette that fits, often, else None."""
        known = [value for value in self.palette.setdefault(what, []) if fits(value)]
        return known[int(self.rng.integers(len(known)))] if known and self.chance(REUSE) else None

    def channels(self, wide: float = 0.2) -> int:
        found = self.again("channels")
        if found is None:
            if self.chance(0.1):
                found = self.log_uniform(2, 200)  # odd ones too
            else:
                found = int(self.rng.choice(_WIDE if self.chance(wide) else _CHANNELS))
            self.palette["channels"].append(found)
        return found

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def pick(self, *choices):
        return choices[int(self.rng.integers(len(choices)))]


Emit = Callable[[relax.Expr], relax.Var]


def shape(expr) -> tuple[int, ...]:
    return tuple(int(d) for d in expr.ty.shape)


def scalar(value: float, dtype: str = "float32"):
    return relax.const(np.array(value, dtype))


def _hard_swish(g, emit, x):
    t = emit(op.add(x, scalar(3.0)))
    t = emit(op.minimum(emit(op.maximum(t, scalar(0.0))), scalar(6.0)))
    return emit(op.multiply(emit(op.multiply(x, t)), scalar(1 / 6)))


def hard_sigmoid(g, emit, x):
    t = emit(op.add(emit(op.multiply(x, scalar(0.2))), scalar(0.5)))
    return emit(op.minimum(emit(op.maximum(t, scalar(0.0))), scalar(1.0)))


def _silu(g, emit, x):
    return emit(op.multiply(x, emit(op.sigmoid(x))))


def _leaky(g, emit, x):
    return emit(op.maximum(x, emit(op.multiply(x, scalar(0.1)))))


def _relu6(g, emit, x):
    return emit(op.minimum(emit(op.maximum(x, scalar(0.0))), scalar(6.0)))


def _unary(function):
    return lambda g, emit, x: emit(function(x))


_ACTIVATIONS = (
    _unary(op.nn.relu),
    _unary(op.nn.relu),
    _unary(op.sigmoid),
    _unary(op.tanh),
    _unary(op.nn.gelu),
    _unary(op.nn.silu),
    _hard_swish,
    hard_sigmoid,
    _silu,
    _leaky,
    _relu6,
)
_CURVES = (op.exp, op.tanh, op.sigmoid, op.erf, op.sqrt, op.log, op.rsqrt)


def activation(g: Graph, emit: Emit, x):
    return _ACTIVATIONS[int(g.rng.integers(len(_ACTIVATIONS)))](g, emit, x)


def curve(g: Graph, emit: Emit, x):
    return emit(_CURVES[int(g.rng.integers(len(_CURVES)))](x))


def binary(g: Graph, emit: Emit, x, y):
    function = g.pick(
        op.add,
        op.add,
        op.multiply,
        op.multiply,
        op.subtract,
        op.maximum,
        op.minimum,
        op.divide,
    )
    return emit(function(x, y) if g.chance(0.8) or y is x else function(y, x))


def step(g: Graph, emit: Emit, x):
    """One elementwise step: bias, residual, scale, activation, curve."""
    dims = shape(x)
    kind = g.pick(
        "bias",
        "bias",
        "residual",
        "scale",
        "activation",
        "activation",
        "curve",
        "constant",
    )
    if kind == "bias":
        return binary(g, emit, x, g.input(dims[-1:]))
    if kind == "residual":
        return binary(g, emit, x, g.input(dims))
    if kind == "scale":
        broadcast = [1] * len(dims)
        keep = int(g.rng.integers(len(dims)))
        broadcast[keep] = dims[keep]
        return binary(g, emit, x, g.input(broadcast))
    if kind == "activation":
        return activation(g, emit, x)
    if kind == "curve":
        return curve(g, emit, x)
    return binary(g, emit, x, scalar(float(np.round(g.rng.uniform(0.1, 2.0), 3))))


def epilogue(g: Graph, emit: Emit, x, most: int = 5):
    """What usually follows a contraction: bias, then activation, residual and more."""
    if g.chance(0.75):
        x = emit(op.add(x, g.input(shape(x)[-1:])))
    if g.chance(0.75):
        x = activation(g, emit, x)
    if g.chance(0.3):
        x = emit(op.add(x, g.input(shape(x))))
    for _ in range(int(g.rng.integers(0, most)) if g.chance(0.4) else 0):
        x = step(g, emit, x)
    return x
