"""Say which bindings may be removed and which may be shared."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax

from ..site import FunctionView, op_name

_EFFECTS = frozenset(
    {
        "relax.call_dps_packed",
        "relax.call_inplace_packed",
        "relax.call_tir_inplace",
        "relax.invoke_closure",
        "relax.call_builtin_with_ctx",
        "relax.assert_op",
        "relax.print",
    }
)
"""Operators that TVM marks pure or that write to an operand: calls into code nobody can see."""

_STORAGE = ("relax.builtin.", "relax.memory.", "relax.vm.", "relax.dist.", "relax.ccl.")
"""Operators that make or destroy storage, or talk to other workers."""

_RANDOM = frozenset({"relax.nn.dropout"})


def is_pure(value) -> bool:
    """Return True where leaving out a binding of ``value`` cannot be noticed."""
    if not isinstance(value, relax.Call):
        return not isinstance(value, relax.If)
    if isinstance(value.op, tvm.ir.GlobalVar):
        return bool(getattr(value.op.ty, "purity", False))
    name = op_name(value)
    if name is None or name in _EFFECTS or name.startswith(_STORAGE):
        return False
    return bool(value.op.get_attr("FPurity"))


def is_repeatable(value) -> bool:
    """Return True where evaluating ``value`` twice on equal operands gives equal results.

    A call to a packed function is not repeatable even when it is said to be
    pure: a random generator may stand behind it.
    """
    name = op_name(value)
    if isinstance(value, relax.Call) and name is None:
        return False
    return is_pure(value) and name not in _RANDOM and name != "relax.call_pure_packed"


@dataclass(frozen=True)
class Purity:
    """The variables whose values are free of effects, and those that always repeat."""

    pure: frozenset[relax.Var]
    repeatable: frozenset[relax.Var]


def find_purity(view: FunctionView) -> Purity:
    """Sort the bindings of a function by whether they have effects."""
    pure = frozenset(var for var, value in view.bindings.items() if is_pure(value))
    return Purity(pure, frozenset(var for var in pure if is_repeatable(view.bindings[var])))
