"""The operators that fusion treats as elementwise, stated once.

An operator is elementwise where every result element depends on one element of
each operand (operands broadcast), so that it may be computed inside the loops
of whatever makes its operand.

Values.  Fusing changes no arithmetic: each operator keeps its own rounding and
its own legalisation.  maximum, minimum, relu and clip propagate NaN, and sign
of NaN is NaN, inside a group as outside it.

Dtypes.  A group may change dtype along the way (astype, comparisons): loops do
not care.  Integer divide, floor_divide, mod and floor_mod keep their guard
against a zero divisor, because the guard is part of their legalisation.

Not elementwise, though they look it: ewise_fma (TVM has no lowering for it),
dropout (random), cumsum and cumprod (order), one_hot and take (data-dependent
reads), broadcast_to (a movement: an anchor of its own, since its result is
larger than what it reads).
"""

from __future__ import annotations

from tvm import relax

from tvmpass.core.site import FunctionView, op_name, shape_of

ARITHMETIC = (
    "add",
    "subtract",
    "multiply",
    "divide",
    "floor_divide",
    "mod",
    "floor_mod",
    "power",
    "maximum",
    "minimum",
    "negative",
    "abs",
    "sign",
    "square",
    "log_add_exp",
    "clip",
)
ROUNDING = ("floor", "ceil", "round", "trunc", "astype")
CURVES = (
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "erf",
    "sigmoid",
    "tanh",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "asin",
    "acos",
    "atan",
    "asinh",
    "acosh",
    "atanh",
    "atan2",
)
ACTIVATIONS = (
    "nn.relu",
    "nn.leakyrelu",
    "nn.prelu",
    "nn.selu",
    "nn.silu",
    "nn.gelu",
    "nn.gelu_tanh",
    "nn.softplus",
)
LOGIC = (
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "logical_not",
    "where",
    "isnan",
    "isinf",
    "isfinite",
)
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift", "right_shift")

ELEMENTWISE = frozenset(
    f"relax.{name}" for name in (*ARITHMETIC, *ROUNDING, *CURVES, *ACTIVATIONS, *LOGIC, *BITS)
)


def is_elementwise(view: FunctionView, var) -> bool:
    """Return True where ``var`` is bound to an elementwise call whose shape is known, symbolic or not."""
    return (
        isinstance(var, relax.Var)
        and var not in view.match_casts
        and op_name(view.bindings.get(var)) in ELEMENTWISE
        and shape_of(var) is not None
    )
