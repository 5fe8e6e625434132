"""Read the parameters of a Relay program: ``relay.save_param_dict`` files, and ``.npz``."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np

from tvmpass.core.errors import TvmpassError
from tvmpass.core.files import reading
from tvmpass.core.npz import read_npz

from .errors import RelayError
from .tensors import ByteReader, read_tensor

_MAGIC = 0xF7E58D4F05049CB7
_MAX_COUNT = 1 << 20
"""More parameters than this are taken for a damaged file."""


def read_params(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Return the parameters of a file by name, each in its exact dtype.

    The file is what ``relay.save_param_dict`` (or ``tvm.runtime``'s) returned,
    written as bytes, or an ``.npz``; which of them is told by its content.
    Nothing is unpickled, and sizes are checked before memory is taken.  Raises
    `UsageError` where there is no such file, `TvmpassError` where it is damaged.
    """
    where = os.fspath(path)
    with reading(where, "parameter file", "a .params or .npz file"):
        with Path(where).open("rb") as stream:
            head = stream.read(8)
        if zipfile.is_zipfile(where) and not head.startswith(_MAGIC.to_bytes(8, "little")):
            return _checked(read_npz(where), where)
        data = Path(where).read_bytes()
    return parse_params(data, where)


def parse_params(data: bytes, where: str = "params") -> dict[str, np.ndarray]:
    """Return the parameters that the bytes of ``save_param_dict`` hold."""
    reader = ByteReader(data, where)
    if data[:8] != _MAGIC.to_bytes(8, "little"):
        shown = "it is empty" if not data else "it begins with other bytes"
        raise RelayError(
            f"{where}: neither the bytes of relay.save_param_dict nor an .npz file ({shown}); "
            "parameters of other formats are to be saved as one of these"
        )
    reader.numbers("QQ", "the header")
    names = [_name(reader, number) for number in range(_count(reader, "names"))]
    count = _count(reader, "tensors")
    if count != len(names):
        raise RelayError(f"{where}: holds {len(names)} names but {count} tensors (damaged?)")
    found: dict[str, np.ndarray] = {}
    for name in names:
        if name in found:
            raise RelayError(f"{where}: holds two parameters {name!r}")
        found[name] = read_tensor(reader, f"parameter {name!r}")
    if not reader.at_end():
        raise RelayError(f"{where}: holds {len(data) - reader.position} bytes more than its parameters need")
    return found


def _checked(arrays: dict[str, np.ndarray], where: str) -> dict[str, np.ndarray]:
    """Return arrays in this machine's byte order; what is no plain number is refused."""
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise TvmpassError(
                f"{where}: array {name!r} has dtype {array.dtype}, which is no number "
                "(.npz cannot hold bfloat16; a .params file can)"
            )
    return {name: array.astype(array.dtype.newbyteorder("="), copy=False) for name, array in arrays.items()}


def _count(reader: ByteReader, what: str) -> int:
    (count,) = reader.numbers("Q", f"the number of {what}")
    if count > _MAX_COUNT:
        raise RelayError(f"{reader.where}: claims {count} {what} (damaged?)")
    return count


def _name(reader: ByteReader, number: int) -> str:
    (length,) = reader.numbers("Q", f"the length of name {number}")
    try:
        return bytes(reader.take(length, f"name {number}")).decode("utf-8")
    except UnicodeDecodeError:
        raise RelayError(f"{reader.where}: name {number} is no text (damaged?)") from None
