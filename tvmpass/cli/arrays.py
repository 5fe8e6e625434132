"""Read and write arrays by name as ``.npz``, and draw random ones."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tvmpass.core.errors import TvmpassError, UsageError, nearest
from tvmpass.core.files import replacing

MAX_BYTES = 1 << 36
"""An array that claims more (64 GiB) is taken for a broken or hostile file."""


def read_npz(path: str) -> dict[str, np.ndarray]:
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


def _check_header(stream, entry: zipfile.ZipInfo, path: str, name: str) -> None:
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


def write_npz(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as ``.npz``, whole or not at all; any name is allowed."""
    with (
        replacing(path) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED, allowZip64=True) as archive,
    ):
        for name, array in arrays.items():
            with archive.open(name + ".npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)


def random_inputs(inputs: Sequence[Any], shapes: Mapping[str, tuple], seed: int) -> dict[str, np.ndarray]:
    """Draw an array for each input: normal floats, integers and bools from {0, 1}.

    ``inputs`` are an artifact's ``input_info``.  An open dimension takes its
    size from ``shapes``, else 1; one symbol has one size everywhere.
    """
    known = {entry.name: entry for entry in inputs}
    sizes: dict[str, int] = {}
    for name, dims in shapes.items():
        if name not in known:
            raise UsageError(
                f"--shape {name}: no such input{nearest(name, known)}; inputs are: {', '.join(known)}"
            )
        declared = known[name].shape or ()
        if len(declared) != len(dims) or not all(isinstance(dim, int) for dim in dims):
            raise UsageError(f"--shape {name}: expected {len(declared)} sizes, as in {show_shape(declared)}")
        for symbol, size in zip(declared, dims):
            if isinstance(symbol, str):
                sizes[symbol] = size
            elif symbol != size:
                raise UsageError(f"--shape {name}: the artifact was built for {show_shape(declared)}")
    generator = np.random.default_rng(seed)
    return {name: _draw(generator, entry, sizes) for name, entry in known.items()}


def _draw(generator, entry, sizes: Mapping[str, int]) -> np.ndarray:
    if entry.shape is None or entry.dtype is None:
        raise UsageError(f"input {entry.name!r} has no known shape and dtype; give it with --inputs")
    shape = tuple(sizes.get(dim, 1) if isinstance(dim, str) else dim for dim in entry.shape)
    dtype = np.dtype(entry.dtype)
    if dtype.kind in "iub":
        return generator.integers(0, 2, size=shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


def show_shape(shape: Sequence[Any]) -> str:
    """Print a shape as people write it: ``1x3x48x192``; a scalar is ``scalar``."""
    return "x".join(str(dim) for dim in shape) or "scalar"
