"""Quantised operators: integer arithmetic, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from functools import wraps
from typing import Any

from ..table import CannotConvert, Convert, Table, merged
from . import qnn_arithmetic, qnn_contractions, qnn_lookup, qnn_quantize
from .facts import dtype_of

_TWO_TENSORS = {
    **dict.fromkeys(("qnn.add", "qnn.subtract", "qnn.mul"), "szszsz"),
    **dict.fromkeys(("qnn.conv2d", "qnn.conv2d_transpose", "qnn.dense"), "zzss"),
    **dict.fromkeys(("qnn.contrib_dense_pack", "qnn.batch_matmul"), "zzss"),
}
"""Scales and zero points after two tensors, in their order; after one it is s, z, s, z."""

_DTYPES = {"s": ("scale", "float32"), "z": ("zero point", "int32")}


def _checked(name: str, convert: Convert) -> Convert:
    """Return a converter that refuses scales and zero points of other dtypes than Relay does."""
    first, kinds = (2, _TWO_TENSORS[name]) if name in _TWO_TENSORS else (1, "szsz")

    @wraps(convert)
    def checked(emit, attrs, *args):
        for arg, kind in zip(args[first:], kinds):
            what, wanted = _DTYPES[kind]
            for part in _parts(arg):
                if dtype_of(part) != wanted:
                    raise CannotConvert(f"a {what} of dtype {dtype_of(part)}; {wanted} is needed")
        return convert(emit, attrs, *args)

    return checked


def _parts(arg: Any) -> Iterator[Any]:
    if isinstance(arg, tuple):
        for item in arg:
            yield from _parts(item)
    else:
        yield arg


_ALL = merged([qnn_quantize.TABLE, qnn_contractions.TABLE, qnn_arithmetic.TABLE, qnn_lookup.TABLE])

TABLE = Table()
for _name, _convert in _ALL.items():
    # The simulated forms take any dtype.
    TABLE[_name] = _convert if _name.startswith("qnn.simulated_") else _checked(_name, _convert)
