"""Elementwise operators against numpy, with the meaning that Relay gives them."""

from __future__ import annotations

import numpy as np
import pytest
from running import check, run_ops

from tvmpass.frontends.relay.errors import RelayError

FLOATS = np.array(
    [-2.5, -1.5, -0.5, -0.3, -0.0, 0.3, 0.5, 1.5, 2.5, 8388609.0, np.inf, -np.inf, np.nan], "float32"
)
BYTES = np.array([-128, -7, -1, 0, 5, 127], "int8")


def test_round_takes_halves_away_from_zero():
    wide = FLOATS.astype("float64")
    away = np.sign(wide) * np.floor(np.abs(wide) + 0.5)
    half = FLOATS[:9].astype("float16")
    check(
        "(round(%x), round(%h), round(%i))",
        {"x": FLOATS, "h": half, "i": BYTES},
        np.where(np.isnan(FLOATS), np.nan, away).astype("float32"),
        away[:9].astype("float16"),
        BYTES,
    )


def test_round_keeps_the_sign_of_zero_and_numbers_next_to_a_half():
    x = np.array([-0.2, -0.0, 0.49999997], "float32")
    (made,) = run_ops("round(%x)", {"x": x})
    np.testing.assert_array_equal(np.signbit(made), np.signbit(x))
    np.testing.assert_array_equal(made, [0, 0, 0])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_functions_of_floats(dtype):
    x = np.array([0.02, 0.3, 0.55, 0.98], dtype)
    names = {
        **{
            name: getattr(np, name)
            for name in ("exp", "log", "log2", "log10", "sqrt", "tanh", "sin", "cos", "tan")
        },
        **{name: getattr(np, name) for name in ("sinh", "cosh")},
        **{name: getattr(np, f"arc{name[1:]}") for name in ("asin", "acos", "atan", "asinh", "atanh")},
        "rsqrt": lambda v: 1 / np.sqrt(v),
        "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    }
    tolerance = {"float16": 4e-3, "float32": 2e-6, "float64": 1e-12}[dtype]
    wide = x.astype("float64")
    check(
        f"({', '.join(f'{name}(%x)' for name in names)}, acosh(exp(%x)))",
        {"x": x},
        *(function(wide).astype(dtype) for function in names.values()),
        np.arccosh(np.exp(x).astype("float64")).astype(dtype),
        rtol=tolerance,
        atol=tolerance,
    )


def test_fast_functions_are_near_the_exact_ones():
    x = np.linspace(-5, 5, 41, dtype="float32")
    erf = run_ops("erf(%x)", {"x": x})[0]
    check(
        "(fast_exp(%x), fast_tanh(%x), fast_erf(%x))",
        {"x": x},
        np.exp(x),
        np.tanh(x),
        erf,
        rtol=2e-5,
        atol=2e-5,
    )


def test_integer_division_cuts_towards_zero():
    a, b = np.array([-7, -7, 7, 7, -128], "int8"), np.array([2, -2, 2, -2, 3], "int8")
    quotient = np.trunc(a / b).astype("int8")
    rest = (a - quotient * b).astype("int8")
    check(
        """(divide(%a, %b), trunc_divide(%a, %b), mod(%a, %b), trunc_mod(%a, %b),
        floor_divide(%a, %b), floor_mod(%a, %b))""",
        {"a": a, "b": b},
        *(quotient, quotient, rest, rest, a // b, a % b),
    )


def test_float_division():
    a, b = np.array([-7.3, -7.3, 7.3, 1.0], "float32"), np.array([2, -2, 2, 0.1], "float32")
    check(
        """(divide(%a, %b), mod(%a, %b), trunc_divide(%a, %b), trunc_mod(%a, %b),
        floor_divide(%a, %b), floor_mod(%a, %b))""",
        {"a": a, "b": b},
        *(a / b, np.fmod(a, b), np.trunc(a / b), a - np.trunc(a / b) * b),
        *(np.floor(a / b), a - np.floor(a / b) * b),
        rtol=1e-6,
        atol=1e-6,
    )


def test_operators_broadcast():
    a = np.arange(6, dtype="float32").reshape(2, 3, 1)
    b = np.array([2, 3], "float32")
    check(
        "(add(%a, %b), subtract(%b, %a), multiply(%a, 2f), maximum(%a, %b), minimum(%a, %b), power(%a, %b))",
        {"a": a, "b": b},
        *(a + b, b - a, a * 2, np.maximum(a, b), np.minimum(a, b), a**b),
        rtol=1e-6,
        atol=1e-6,
    )


def test_truth_values():
    a, b = np.array([True, False, True, False]), np.array([True, True, False, False])
    check(
        """(multiply(%a, %b), maximum(%a, %b), minimum(%a, %b), equal(%a, %b), not_equal(%a, %b),
        less(%a, %b), greater_equal(%a, %b), logical_and(%a, %b), logical_or(%a, %b),
        logical_xor(%a, %b), logical_not(%a), bitwise_and(%a, %b), bitwise_or(%a, %b), bitwise_xor(%a, %b),
        bitwise_not(%a))""",
        {"a": a, "b": b},
        *(
            a & b,
            a | b,
            a & b,
            a == b,
            a != b,
            a < b,
            a >= b,
            a & b,
            a | b,
            a ^ b,
            ~a,
            a & b,
            a | b,
            a ^ b,
            ~a,
        ),
    )


def test_bits():
    a, b = np.array([-7, 5, 100], "int16"), np.array([2, 3, 1], "int16")
    check(
        """(left_shift(%a, %b), right_shift(%a, %b), bitwise_and(%a, %b), bitwise_or(%a, %b),
        bitwise_xor(%a, %b), bitwise_not(%a), logical_xor(%a, %b))""",
        {"a": a, "b": b},
        *(a << b, a >> b, a & b, a | b, a ^ b, ~a, a ^ b),
    )


def test_signs_and_kinds_of_numbers():
    u = np.array([0, 1, 200, 255], "uint8")
    check(
        """(negative(%u), abs(%u), sign(%u), negative(%i), abs(%i), sign(%i), isnan(%u), isinf(%i),
        isfinite(%u), isnan(%x), isinf(%x), isfinite(%x), sign(%x), floor(%i), ceil(%u),
        trunc(%x), floor(%x), ceil(%x))""",
        {"u": u, "i": BYTES, "x": FLOATS},
        *(-u, u, np.sign(u), -BYTES, np.abs(BYTES), np.sign(BYTES), u > 255, BYTES > 127, u >= 0),
        *(np.isnan(FLOATS), np.isinf(FLOATS), np.isfinite(FLOATS), np.sign(FLOATS), BYTES, u),
        *(np.trunc(FLOATS), np.floor(FLOATS), np.ceil(FLOATS)),
    )


def test_clip_cuts_bounds_of_integers():
    u = np.array([0, 3, 255], "uint8")
    check(
        """(clip(%i, a_min=-3.7f, a_max=3.9f), clip(%i, a_min=-1e+30f, a_max=inff),
        clip(%u, a_min=-5f, a_max=100f), clip(%x, a_min=-1f, a_max=1.5f), clip(%x, a_min=2f, a_max=1f))""",
        {"i": BYTES, "u": u, "x": FLOATS},
        *(np.clip(BYTES, -3, 3), BYTES, np.clip(u, 0, 100), np.clip(FLOATS, -1, 1.5).astype("float32")),
        np.where(np.isnan(FLOATS), FLOATS, np.float32(2)),
    )


def test_casts():
    x = FLOATS[:9]
    check(
        """(cast(%x, dtype="int32"), cast(%x, dtype="bool"), cast(%i, dtype="bool"), cast(%i, dtype="uint8"),
        cast(cast(%x, dtype="bool"), dtype="float16"), cast_like(%x, %i), reinterpret(%x, dtype="int32"))""",
        {"x": x, "i": BYTES},
        *(x.astype("int32"), x != 0, BYTES != 0, BYTES.astype("uint8"), (x != 0).astype("float16")),
        *(x.astype("int8"), x.view("int32")),
    )


def test_where_takes_any_condition():
    c, x = np.array([[0], [-2]], "int32"), np.array([1, 2, 3], "float32")
    check(
        """(where(%c, %x, 0f), where(cast(%c, dtype="float32"), 5f, %x),
        where(cast(%c, dtype="bool"), %x, %x))""",
        {"c": c, "x": x},
        np.where(c, x, np.float32(0)),
        np.where(c, np.float32(5), x),
        np.where(c, x, x),
    )


def test_bfloat16():
    x = np.array([-2.5, -0.5, 0.5, 1.5, 3.25, np.inf, np.nan], "float32")
    body = ", ".join(
        f'cast({call}, dtype="float32")'
        for call in (
            "round(%h)",
            "asin(%h)",
            "power(%h, %h)",
            "isnan(%h)",
            "isinf(%h)",
            "clip(%h, a_min=-1f, a_max=2f)",
        )
    )
    with np.errstate(invalid="ignore"):
        expected = [
            np.sign(x) * np.floor(np.abs(x) + 0.5),
            np.arcsin(x),
            x**x,
            *(np.isnan(x).astype("float32"), np.isinf(x).astype("float32"), np.clip(x, -1, 2)),
        ]
    check(
        f'let %h = cast(%x, dtype="bfloat16"); ({body}, argmax(strided_slice(%h, begin=[0], end=[6])))',
        {"x": x},
        *(array.astype("float32") for array in expected),
        np.array(5, "int32"),
        rtol=8e-3,
        atol=8e-3,
    )


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("exp(%i)", "not defined on int8"),
        ("power(%i, %i)", "not defined on int8"),
        ("logical_and(%i, %i)", "bool"),
        ("add(%x, %i)", "different dtypes"),
        ('clip(%x, a_min=-1f, a_max=1f) + cast(%i, dtype="float64")', "different dtypes"),
        ('reinterpret(%x, dtype="int8")', "width"),
        ('add(logical_not(cast(%i, dtype="bool")), cast(%i, dtype="bool"))', "not defined on bool"),
    ],
)
def test_what_relay_does_not_define_is_refused(body, why):
    with pytest.raises(RelayError, match=why):
        run_ops(body, {"x": FLOATS[:6], "i": BYTES})
