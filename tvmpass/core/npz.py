"""Read and write arrays by name as ``.npz`` files."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping

import numpy as np

from .errors import TvmpassError, UsageError
from .files import replacing

MAX_BYTES = 1 << 36
"""An array that claims more (64 GiB) is taken for a broken or hostile file."""


def read_npz(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Read every array of an ``.npz`` file; nothing in it is unpickled.

    Sizes are read from the headers before anything is allocated.  Raises
    `TvmpassError` with one line (`UsageError` where there is no such file).
    """
    arrays: dict[str, np.ndarray] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                name = entry.filename.removesuffix(".npy")
                with archive.open(entry) as stream:
                    _check_header(stream, entry, path, name)
                with archive.open(entry) as stream:
                    arrays[name] = np.lib.format.read_array(stream, allow_pickle=False)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except zipfile.BadZipFile as error:
        raise TvmpassError(f"{path}: not an .npz file ({error})") from None
    except (ValueError, EOFError) as error:
        raise TvmpassError(f"{path}: {error}") from None
    return arrays


def _check_header(stream, entry: zipfile.ZipInfo, path, name: str) -> None:
    version = np.lib.format.read_magic(stream)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = reader(stream)
    if dtype.hasobject:
        raise TvmpassError(f"{path}: array {name!r} holds Python objects, which are not read")
    size = int(np.prod([int(dim) for dim in shape], dtype=object)) * dtype.itemsize
    if size > MAX_BYTES or size > entry.file_size:
        raise TvmpassError(
            f"{path}: array {name!r} claims {size} bytes but its entry holds {entry.file_size}"
        )


def write_npz(path: str | os.PathLike, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as ``.npz``, whole or not at all; any name is allowed."""
    with (
        replacing(path) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED, allowZip64=True) as archive,
    ):
        for name, array in arrays.items():
            with archive.open(name + ".npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)
