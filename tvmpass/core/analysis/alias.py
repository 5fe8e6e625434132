"""Which values may lie in the same memory.

Read by `memory`; for anything that would write a result over an operand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm import relax

from ..site import FunctionView, op_name, operands

VIEW_OPS = frozenset({"relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.flatten"})
"""Operators that the virtual machine runs as views of their operand."""

INPLACE_OPS = frozenset({"relax.call_tir_inplace", "relax.call_inplace_packed"})


@dataclass(frozen=True)
class Aliases:
    """``storages`` maps a variable to the variables whose memory it may use.

    A value with memory of its own maps to itself; a constant has none.
    """

    storages: Mapping[relax.Var, frozenset[relax.Var]]

    def may_alias(self, a: relax.Var, b: relax.Var) -> bool:
        """Return True unless the two surely lie apart."""
        return bool(self.storages[a] & self.storages[b])


def find_aliases(view: FunctionView) -> Aliases:
    """Follow names, tuples, views, in-place calls and branches back to the memory behind them."""
    storages: dict[relax.Var, frozenset[relax.Var]] = {p: frozenset({p}) for p in view.function.params}
    fields: dict[relax.Var, list[frozenset[relax.Var]]] = {}

    def behind(expr) -> frozenset[relax.Var]:
        if isinstance(expr, relax.Var):
            return storages.get(expr, frozenset())
        if isinstance(expr, relax.Tuple):
            return frozenset().union(*map(behind, expr.fields))
        return frozenset()

    for var, value in view.bindings.items():
        if isinstance(value, relax.Tuple):
            fields[var] = [behind(item) for item in value.fields]
            storages[var] = behind(value)
        elif isinstance(value, relax.TupleGetItem):
            known = fields.get(value.tuple_value)
            storages[var] = known[value.index] if known else behind(value.tuple_value)
        elif isinstance(value, relax.Var):
            storages[var] = behind(value)
            if value in fields:
                fields[var] = fields[value]
        elif op_name(value) in VIEW_OPS:
            storages[var] = behind(value.args[0])
        elif op_name(value) in INPLACE_OPS:
            storages[var] = frozenset({var}).union(*map(behind, operands(value)))
        elif isinstance(value, relax.If):
            inside = frozenset().union(*(storages.get(v, frozenset()) for v in _read_in(view, var)))
            storages[var] = frozenset({var}) | inside
        elif isinstance(value, relax.Call):
            storages[var] = frozenset({var})
        else:
            storages[var] = behind(value)
    return Aliases(storages)


def _read_in(view: FunctionView, var) -> list[relax.Var]:
    """Return the variables that the value of ``var`` reads anywhere."""
    return [used for used, users in view.users.items() if var in users]
