"""Every operator that counts as elementwise can be part of one kernel."""

from __future__ import annotations

import pytest
from tvm import relax

from relay_passes.fusion import FuseElementwiseChain
from relay_passes.fusion.elementwise import (
    ACTIVATIONS,
    ARITHMETIC,
    BITS,
    CURVES,
    ELEMENTWISE,
    LOGIC,
    ROUNDING,
)
from tvmpass.core.site import op_name
from tvmpass.testing.graphs import graph

op = relax.op
SHAPE = (3, 4)
BINARY = {
    *(
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
    ),
    *("log_add_exp", "atan2", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"),
    *("left_shift", "right_shift"),
}
BOOLEAN = {"logical_and", "logical_or", "logical_xor", "logical_not"}
SPECIAL = {
    "clip": lambda x: op.clip(x, 0.0, 1.0),
    "astype": lambda x: op.astype(x, "float64"),
    "where": lambda x: op.where(op.isnan(x), x, x),
    "nn.prelu": lambda x: op.nn.prelu(x, relax.const([0.1, 0.2, 0.3, 0.4], "float32"), 1),
    "nn.leakyrelu": lambda x: op.nn.leakyrelu(x, 0.1),
}


def make(name):
    """Return the operator, and the dtype that it takes."""
    function = op
    for part in name.split("."):
        function = getattr(function, part)
    dtype = "int32" if name in BITS else "bool" if name in BOOLEAN else "float32"
    if name in SPECIAL:
        return SPECIAL[name], dtype
    return (lambda x: function(x, x)) if name in BINARY else function, dtype


@pytest.mark.parametrize("name", (*ARITHMETIC, *ROUNDING, *CURVES, *ACTIVATIONS, *LOGIC, *BITS))
def test_lowers_in_a_group(emitter, name):
    assert f"relax.{name}" in ELEMENTWISE
    apply, dtype = make(name)
    before = {"int32": op.bitwise_not, "bool": op.logical_not, "float32": op.negative}[dtype]
    mod = graph(lambda x: apply(before(x)), (SHAPE, dtype))
    (longest, *_) = emitter.candidates(FuseElementwiseChain(), mod)
    lowered = emitter.fused(mod, longest)
    calls = [b.value for block in lowered["main"].body.blocks for b in block.bindings]
    assert [op_name(call) for call in calls] == ["relax.call_tir"]


CONSTANT_OPERAND = {
    "where-left": ("float32", lambda x: op.where(op.isnan(x), relax.const(1.0), x)),
    "where-right": ("float32", lambda x: op.where(op.isnan(x), x, relax.const(1.0))),
    "shift": ("int32", lambda x: op.left_shift(op.bitwise_not(x), relax.const(1, "int32"))),
    "add": ("float32", lambda x: op.add(relax.const(1.0), op.exp(x))),
    "and": ("bool", lambda x: op.logical_and(op.logical_not(x), relax.const(True, "bool"))),
}


@pytest.mark.parametrize("name", CONSTANT_OPERAND)
def test_constant_operands_lower_in_a_group(emitter, name):
    dtype, body = CONSTANT_OPERAND[name]
    mod = graph(body, (SHAPE, dtype))
    (longest, *_) = emitter.candidates(FuseElementwiseChain(), mod)
    lowered = emitter.fused(mod, longest)
    calls = [b.value for block in lowered["main"].body.blocks for b in block.bindings]
    assert [op_name(call) for call in calls] == ["relax.call_tir"]
