"""Random numbers, drawn as Relay draws them from its threefry generator."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax, te, tirx

from ..table import CannotConvert, Table
from .facts import as_shape, product, rank_of, static_shape
from .shapes import reshaped
from .threefry import generator_of

TABLE = Table()


def _draw(emit, key, shape: Sequence[int]):
    """Return the next generator and random words of a shape."""
    generator, count = generator_of(emit, key), product(shape)
    if count == 0:
        return generator.value(emit), emit(relax.op.zeros(as_shape(shape), "uint64"))
    following, words = generator.draw(emit, count)
    return following.value(emit), reshaped(emit, words, shape)


@TABLE.operator("random.threefry_generate")
def threefry_generate(emit, attrs, key):
    """Return the next generator and random words."""
    return _draw(emit, key, attrs.ints("out_shape") or [])


@TABLE.operator("random.threefry_split")
def threefry_split(emit, attrs, key):
    """Return two generators that do not repeat each other's numbers."""
    return tuple(side.value(emit) for side in generator_of(emit, key).split(emit))


def _unit_interval(emit, words, dtype: str):
    """Return numbers from 0 to below 1: the leading bits of each word as the fraction of a float."""
    bits, fraction = {"float32": (32, 23), "float64": (64, 52)}[dtype]
    unsigned = f"uint{bits}"
    one = int(np.ones((), dtype).view(unsigned))

    def kernel(x):
        def scalar(*index):
            lead = tirx.Cast(unsigned, x(*index)) >> tirx.const(bits - fraction, unsigned)
            return tirx.reinterpret(dtype, lead | tirx.const(one, unsigned)) - tirx.const(1, dtype)

        return te.compute(x.shape, scalar, name="unit_interval")

    return emit.te(kernel, words, name="unit_interval")


def _float_dtype(attrs) -> str:
    dtype = attrs.word("out_dtype") or "float32"
    if dtype not in ("float32", "float64"):
        raise CannotConvert(f"it draws float32 and float64 only, not {dtype}")
    return dtype


@TABLE.operator("random.uniform")
def uniform(emit, attrs, key, low, high):
    """Return the next generator and numbers from ``low`` to below ``high``."""
    following, words = _draw(emit, key, attrs.ints("out_shape") or [])
    numbers = _unit_interval(emit, words, _float_dtype(attrs))
    width = emit(relax.op.subtract(high, low))
    return following, emit(relax.op.add(emit(relax.op.multiply(numbers, width)), low))


@TABLE.operator("random.normal")
def normal(emit, attrs, key, mean, scale):
    """Return the next generator and normally distributed numbers, by Box and Muller."""
    dtype, shape = _float_dtype(attrs), attrs.ints("out_shape") or []
    following, words = _draw(emit, key, [2, *shape])
    numbers = _unit_interval(emit, words, dtype)
    first, second = (
        reshaped(emit, emit(relax.op.strided_slice(numbers, [0], [i], [i + 1])), shape) for i in range(2)
    )
    logarithm = emit(relax.op.log(emit(relax.op.subtract(emit.const(1, dtype), first))))
    radius = emit(relax.op.sqrt(emit(relax.op.multiply(emit.const(-2, dtype), logarithm))))
    sine = emit(relax.op.sin(emit(relax.op.multiply(emit.const(2 * math.pi, dtype), second))))
    spread = emit(relax.op.multiply(emit(relax.op.multiply(radius, sine)), scale))
    return following, emit(relax.op.add(spread, mean))


@TABLE.operator("random.multinomial")
def multinomial(emit, attrs, key, weights):
    """Return the next generator and indices drawn along the last axis in proportion to weights."""
    shape = static_shape(weights)
    if not shape:
        raise CannotConvert("the sizes of its weights are not known")
    samples = int(attrs.num_samples)
    positive = emit(relax.op.maximum(emit(relax.op.astype(weights, "float32")), emit.const(0, "float32")))
    total = emit(relax.op.sum(positive, [-1], keepdims=True))
    steps = emit(relax.op.cumsum(emit(relax.op.divide(positive, total)), axis=rank_of(weights) - 1))
    following, words = _draw(emit, key, [*shape[:-1], samples])
    numbers = _unit_interval(emit, words, "float32")
    above = emit(
        relax.op.subtract(emit(relax.op.expand_dims(steps, -1)), emit(relax.op.expand_dims(numbers, -2)))
    )
    # The index wanted is that of the smallest difference above 0.
    ahead = emit(relax.op.greater(above, emit.const(0, "float32")))
    nearest = emit(relax.op.where(ahead, above, emit.const(1, "float32")))
    return following, emit(relax.op.astype(emit(relax.op.argmin(nearest, -2)), "int32"))
