"""Running sums and products for CUDA: a thread for each line.

TVM has a parallel form of its own, in which threads read elements that others
store, without a barrier between.
"""

from __future__ import annotations

from tvm import topi

from .legalize_elementwise import Legalize


def scans() -> dict[str, Legalize]:
    """Return the legalisations of cumsum and cumprod: each line in order, lines apart."""
    return {"relax.cumsum": _scan(topi.cumsum), "relax.cumprod": _scan(topi.cumprod)}


def _scan(define) -> Legalize:
    def legalize(bb, call):
        attrs = call.attrs
        axis = None if attrs.axis is None else int(attrs.axis)
        return bb.call_te(define, call.args[0], axis, str(call.ty.dtype), bool(attrs.exclusive))

    return legalize
