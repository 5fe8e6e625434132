"""Running sums and products: none of nothing, and for CUDA a thread for each line.

TVM's own forms divide by the length of a line.  For CUDA it has a parallel one, in
which threads read elements that others store, without a barrier between.
"""

from __future__ import annotations

from tvm import topi

from .legalize_elementwise import Legalize
from .legalize_index import is_empty


def scans(cuda: bool) -> dict[str, Legalize]:
    """Return the legalisations of cumsum and cumprod; for CUDA each line in order, lines apart."""
    return {"relax.cumsum": _scan(topi.cumsum, cuda), "relax.cumprod": _scan(topi.cumprod, cuda)}


def _scan(define, cuda: bool) -> Legalize:
    def legalize(bb, call):
        if is_empty(call.args[0]):
            return bb.call_te(topi.full, list(call.ty.shape.values), str(call.ty.dtype), 0)
        if not cuda:
            return call  # TVM lowers it when it builds
        attrs = call.attrs
        axis = None if attrs.axis is None else int(attrs.axis)
        return bb.call_te(define, call.args[0], axis, str(call.ty.dtype), bool(attrs.exclusive))

    return legalize
