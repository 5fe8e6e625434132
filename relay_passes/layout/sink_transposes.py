"""Move a transpose behind the elementwise operator that reads it.

before: ``relu(permute_dims(x, axes))``      after: ``permute_dims(relu(x), axes)``

Every non-constant operand must come from a transpose over the same axes that
nothing else reads; constants are permuted when the model is built.  Pays where
the transpose then meets its inverse, or the operator the kernel that made x; it
never costs, because the same data is moved.  Exact for every dtype and value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tvm import relax

from relay_passes.fusion.elementwise import is_elementwise
from relay_passes.operands import array_of, axes_of_transpose, call_of, constant
from tvmpass.core.decision import RefusalKind
from tvmpass.core.legality import DTYPE_MISMATCH, ESCAPES, SHAPE_MISMATCH, shown
from tvmpass.core.rule import SimplifyRule
from tvmpass.core.site import Site, dtype_of, same_shape, shape_of

AXES_DIFFER = RefusalKind(
    "transposes-differ", "{value} is no transpose over axes {expected} like the other operands"
)


@dataclass(frozen=True)
class SinkTransposes(SimplifyRule):
    """Move a transpose behind the elementwise operator that reads it."""

    level: ClassVar = 2
    refusals: ClassVar = (AXES_DIFFER, ESCAPES, SHAPE_MISMATCH, DTYPE_MISMATCH)

    def match(self, view):
        """Yield every elementwise call that reads a transpose."""
        for var, value in view.bindings.items():
            if not is_elementwise(view, var) or (value.attrs is not None and hasattr(value.attrs, "axis")):
                continue
            moved = [a for a in value.args if call_of(view, a, "relax.permute_dims") is not None]
            if moved:
                yield Site.make(self, view, var, {var, *moved}, {"moved": moved[0], "result": var})

    def check(self, site):
        view, moved = site.view, site["moved"]
        axes, shape = axes_of_transpose(site.value("moved")), shape_of(site.root)
        inside = set(site.bindings)
        for operand in view.bindings[site.root].args:
            array = array_of(view, operand)
            if array is not None:
                if array.size != 1 and array.ndim != len(axes):
                    return SHAPE_MISMATCH(
                        value="a constant", found=list(array.shape), expected=f"rank {len(axes)}"
                    )
                continue
            permute = call_of(view, operand, "relax.permute_dims")
            if permute is None or axes_of_transpose(permute) != axes:
                return AXES_DIFFER(value=getattr(operand, "name", "an operand"), expected=axes)
            if not same_shape(shape_of(operand), shape):
                return SHAPE_MISMATCH(
                    value=operand.name, found=shown(shape_of(operand)), expected=shown(shape)
                )
            if view.escapes(operand, inside):
                return ESCAPES(
                    value=operand.name, readers=[view.op(u) or "other" for u in view.users[operand]]
                )
        if dtype_of(moved) != dtype_of(site.root):
            return DTYPE_MISMATCH(value=site.root.name, found=dtype_of(site.root), expected=dtype_of(moved))
        return None

    def rewrite(self, site):
        view, axes = site.view, axes_of_transpose(site.value("moved"))
        call = view.bindings[site.root]
        args = []
        for operand in call.args:
            array = array_of(view, operand)
            if array is None:
                args.append(view.bindings[operand].args[0])
            else:
                args.append(operand if array.size == 1 else constant(array.transpose(np.argsort(axes))))
        return relax.op.permute_dims(relax.Call(call.op, args, call.attrs, list(call.ty_args)), axes)
