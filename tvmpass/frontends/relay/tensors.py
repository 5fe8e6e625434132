"""Read tensors in the form in which TVM writes them into files.

A tensor is a header (magic, device, rank, dtype, dims, byte count) and its
bytes, little-endian.  Every size is checked before memory is taken.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import ml_dtypes
import numpy as np

from .errors import RelayError

_MAGIC = 0xDD5E40F096B4A13F
_MAX_RANK = 64
_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6
_DTYPES: dict[tuple[int, int], Any] = {
    **{(_INT, bits): np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{(_UINT, bits): np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{(_FLOAT, bits): np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
    (_BFLOAT, 16): np.dtype(ml_dtypes.bfloat16),
    # Relay's bool is uint1; TVM from 0.20 on writes a type of its own.
    (_UINT, 1): np.dtype(np.bool_),
    (_BOOL, 8): np.dtype(np.bool_),
}
_KINDS = {_INT: "int", _UINT: "uint", _FLOAT: "float", 3: "handle", _BFLOAT: "bfloat", 5: "complex"}


class ByteReader:
    """Reads numbers and bytes in order; what is not there is a `RelayError`."""

    def __init__(self, data: bytes, where: str):
        self.data = data
        self.where = where
        self.position = 0

    def numbers(self, layout: str, what: str) -> tuple[int, ...]:
        """Read numbers by a `struct` layout (little-endian, unpadded)."""
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout), what))

    def take(self, count: int, what: str) -> memoryview:
        """Return the next ``count`` bytes, without a copy."""
        left = len(self.data) - self.position
        if count > left:
            raise RelayError(f"{self.where}: {what} needs {count} bytes, but {left} are left (truncated?)")
        begin, self.position = self.position, self.position + count
        return memoryview(self.data)[begin : self.position]

    def at_end(self) -> bool:
        """Tell whether everything was read."""
        return self.position == len(self.data)


def read_tensor(reader: ByteReader, what: str) -> np.ndarray:
    """Read one tensor; ``what`` names it in messages.

    Raises `RelayError` where it is no tensor, is cut off, or has a dtype that
    has no counterpart.
    """
    where = reader.where
    magic, _ = reader.numbers("QQ", what)
    if magic != _MAGIC:
        raise RelayError(f"{where}: {what} does not begin as a tensor of TVM does (damaged?)")
    _, _, rank = reader.numbers("iii", what)
    if not 0 <= rank <= _MAX_RANK:
        raise RelayError(f"{where}: {what} claims {rank} dims; 0 to {_MAX_RANK} are possible")
    code, bits, lanes = reader.numbers("BBH", what)
    dtype = _DTYPES.get((code, bits)) if lanes == 1 else None
    if dtype is None:
        kind = f"{_KINDS.get(code, f'type code {code}, bits ')}{bits}" + (f"x{lanes}" if lanes != 1 else "")
        raise RelayError(f"{where}: {what} has dtype {kind}, which is not supported")
    shape = reader.numbers(f"{rank}q", what)
    if any(dim < 0 for dim in shape):
        raise RelayError(f"{where}: {what} has a negative dim in its shape {list(shape)}")
    (stated,) = reader.numbers("q", what)
    needed = math.prod(shape) * dtype.itemsize
    if stated != needed:
        raise RelayError(f"{where}: {what} of shape {list(shape)} needs {needed} bytes but states {stated}")
    data = reader.take(needed, what)
    if dtype == np.bool_:
        return (np.frombuffer(data, np.uint8) != 0).reshape(shape)
    return np.frombuffer(data, dtype).reshape(shape).copy()
