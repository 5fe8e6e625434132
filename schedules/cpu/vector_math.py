"""Transcendental functions of float32 as arithmetic that LLVM vectorises.

TVM emits ``exp``, ``tanh`` and ``erf`` as calls of the C library, one element at
a time.  The forms here use only multiply, add, compare-and-select, one division
and bit shifts.  All coefficients are least-squares fits in double precision
with the weights moved to the largest errors until these level out, so that they
approach the minimax fit; the stated errors were measured over dense grids.

Special values are those of the C library: NaN gives NaN, infinities their
limits, -0.0 keeps its sign under ``tanh`` and ``erf``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import tvm
import tvm_ffi
from tvm import tirx

_LOG2_E = 1.4426950408889634
# ln 2 in two parts, the first with so few bits that n * part is exact.
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.4286068203094172e-06
# Adding 1.5 * 2**23 to a small float leaves its nearest integer in the low bits.
_ROUNDER, _ROUNDER_BITS = 12582912.0, 0x4B400000
_EXP_MAX, _EXP_MIN = 89.0, -104.0
# (exp(r) - 1 - r) / r**2 for |r| <= ln(2) / 2, lowest power first.
_EXP = (0.4999999305, 0.1666651479, 0.04166845685, 0.008369419269, 0.001381314257)

# tanh(x) / x and erf(x) / x as ratios of polynomials in x**2 up to the limit.
_TANH_LIMIT = 8.0
_TANH = (
    (0.9999999936, 0.1344451121, 0.003571613613, 2.189491543e-05, 1.523076792e-08),
    (1.0, 0.4677783854, 0.02616450253, 0.0003411317354, 8.522589878e-07),
)
_ERF_LIMIT = 3.8
_ERF = (
    (1.128379154, 0.1862464275, 0.05231033367, 0.003614945039, 0.0002865071756, 2.151074545e-06),
    (1.0, 0.4983895547, 0.1124906716, 0.01466700859, 0.001135071236, 3.921381357e-05),
)


def _f32(value: float):
    return tirx.const(value, "float32")


def _let(value, body: Callable):
    """Bind ``value`` to a name, so that it is computed once."""
    var = tirx.Var("t", str(value.ty.dtype))
    return tirx.Let(var, value, body(var))


def _polynomial(x, coefficients: Sequence[float]):
    result = _f32(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = result * x + _f32(c)
    return result


def _clamp(x, low: float, high: float, body: Callable):
    """Clamp with a compare that lets NaN through, and go on with ``body``.

    No bound value holds a binding of its own: TVM's simplifier copies cheap
    values to where they are used, and then meets the inner binding twice.
    """
    below = tirx.Select(x > _f32(high), _f32(high), x)
    return _let(below, lambda y: _let(tirx.Select(y < _f32(low), _f32(low), y), body))


def exp(x):
    """Return e**x: at most 2 ulp from exact, denormal results included."""

    def scaled(x):
        return _let(x * _f32(_LOG2_E) + _f32(_ROUNDER), lambda shifted: power(x, shifted))

    def power(x, shifted):
        return _let(shifted - _f32(_ROUNDER), lambda n: reduced(x, n, shifted))

    def reduced(x, n, shifted):
        r = x - n * _f32(_LN2_HIGH) - n * _f32(_LN2_LOW)
        return _let(r, lambda r: _let(exponent(shifted), lambda e: combine(r, e)))

    def exponent(shifted):
        return tirx.reinterpret("int32", shifted) - tirx.const(_ROUNDER_BITS, "int32")

    def combine(r, e):
        # 2**e in two factors: e reaches 128 and -150, which no float exponent holds.
        half = e >> tirx.const(1, "int32")
        value = _polynomial(r, _EXP) * r * r + r + _f32(1.0)
        return _let(half, lambda half: value * _power_of_two(half) * _power_of_two(e - half))

    return _let(x, lambda x: _clamp(x, _EXP_MIN, _EXP_MAX, scaled))


def _power_of_two(e):
    bits = (e + tirx.const(127, "int32")) << tirx.const(23, "int32")
    return tirx.reinterpret("float32", bits)


def _odd_ratio(x, limit: float, ratio, body: Callable):
    top, bottom = ratio

    def ratio_of(x, y):
        return _let(y * y, lambda s: _let(y * _polynomial(s, top) / _polynomial(s, bottom), partial(ends, x)))

    def ends(x, inside):
        below = tirx.Select(x < _f32(-limit), _f32(-1.0), inside)
        return _let(tirx.Select(x > _f32(limit), _f32(1.0), below), body)

    return _let(x, lambda x: _clamp(x, -limit, limit, lambda y: ratio_of(x, y)))


def tanh(x):
    """Return the hyperbolic tangent: absolute error at most 4e-7."""
    return _odd_ratio(x, _TANH_LIMIT, _TANH, lambda y: y)


def erf(x):
    """Return the error function: absolute error at most 5e-7, never beyond -1 and 1."""
    return _odd_ratio(x, _ERF_LIMIT, _ERF, lambda y: _clamp(y, -1.0, 1.0, lambda z: z))


def sigmoid(x):
    """Return 1 / (1 + exp(-x)): at most 4 ulp from exact."""
    return _f32(1.0) / (_f32(1.0) + exp(-x))


FORMS: dict[str, Callable] = {"exp": exp, "tanh": tanh, "erf": erf, "sigmoid": sigmoid}


def _holds_binding(expr) -> bool:
    found: list = []
    tvm_ffi.structural_walk(expr, [(tirx.Let, found.append)], order="post")
    return bool(found)


def vectorize_math(func):
    """Return ``func`` with float32 calls of `FORMS` written as arithmetic.

    A call whose operand is such a form already stays a call: TVM's LLVM code
    generator writes every bound value out in the values bound after it, which
    takes time exponential in the depth (10 s for ``tanh(log(1 + exp(x)))``).
    """

    def rewrite(call):
        if not isinstance(call.op, tvm.ir.Op) or str(call.ty.dtype) != "float32":
            return call
        dialect, _, name = call.op.name.rpartition(".")
        form = FORMS.get(name) if dialect in ("tirx", "tir") else None
        return call if form is None or _holds_binding(call.args[0]) else form(call.args[0])

    body = tvm_ffi.structural_map(func.body, [(tvm.ir.Call, rewrite)], order="post")
    return func.with_body(body)
