"""Which definitions have been made whenever a binding is reached.

A function is straight-line code with ``If`` values whose branches are
straight-line code again: what a branch defines is seen in that branch only.
For rules that route a reader to another value, as common-subexpressions does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm import relax

from ..site import FunctionView


@dataclass(frozen=True)
class Dominance:
    """``path`` leads to a variable's binding: index, branch, index in it, and so on."""

    path: Mapping[relax.Var, tuple[int, ...]]
    block: Mapping[relax.Var, int]

    def dominates(self, first: relax.Var, second: relax.Var) -> bool:
        """Return True where ``first`` is always defined before ``second``'s binding runs."""
        a, b = self.path[first], self.path[second]
        if not a:  # a parameter
            return bool(b)
        return len(a) <= len(b) and a[:-1] == b[: len(a) - 1] and a[-1] < b[len(a) - 1]

    def available(self, value: relax.Var, at: relax.Var) -> bool:
        """Return True where ``value`` may be read by ``at``'s binding.

        A variable of a dataflow block cannot be read outside it.
        """
        if isinstance(value, relax.DataflowVar) and self.block[value] != self.block[at]:
            return False
        return self.dominates(value, at)


def find_dominance(view: FunctionView) -> Dominance:
    """Find the path of every binding, those inside branches included."""
    path: dict[relax.Var, tuple[int, ...]] = dict.fromkeys(view.function.params, ())
    block: dict[relax.Var, int] = {}
    blocks = 0

    def walk(body, prefix: tuple[int, ...]) -> None:
        nonlocal blocks
        index = 0
        for binding_block in body.blocks:
            blocks += 1
            number = blocks
            for binding in binding_block.bindings:
                path[binding.var] = (*prefix, index)
                block[binding.var] = number
                if isinstance(binding.value, relax.If):
                    for branch, side in enumerate((binding.value.true_branch, binding.value.false_branch)):
                        if isinstance(side, relax.SeqExpr):
                            walk(side, (*prefix, index, branch))
                index += 1

    walk(view.function.body, ())
    return Dominance(path, block)
