"""Discrete Fourier transforms, as products with matrices of sines and cosines."""

from __future__ import annotations

import numpy as np
from tvm import relax

from ..table import CannotConvert, Table
from .facts import dtype_of, rank_of, require_float, static_shape
from .shapes import reshaped

TABLE = Table()


def _waves(emit, angles: np.ndarray, dtype: str):
    """Return cosines and sines; Relay takes angles and waves in float32 whatever the dtype."""
    waves = (np.cos(angles.astype("float32")), np.sin(angles.astype("float32")))
    return tuple(emit.const(wave.astype("float32"), dtype) for wave in waves)


def _sizes(x) -> list[int]:
    sizes = static_shape(x)
    if not sizes:
        raise CannotConvert("the sizes of its signal are not known")
    return sizes


@TABLE.operator("dft")
def dft(emit, attrs, real, imaginary):
    """Transform along the last axis; returns real and imaginary parts."""
    require_float(real)
    dtype, size = dtype_of(real), _sizes(real)[-1]
    if dtype_of(imaginary) != dtype:
        raise CannotConvert("its parts have different dtypes")
    if rank_of(real) == 1:
        real, imaginary = (reshaped(emit, part, [1, size]) for part in (real, imaginary))
        parts = _transform(emit, attrs, real, imaginary, size, dtype)
        return tuple(reshaped(emit, part, [size]) for part in parts)
    return _transform(emit, attrs, real, imaginary, size, dtype)


def _transform(emit, attrs, real, imaginary, size: int, dtype: str):
    sign = np.float32(2 * np.pi if attrs.inverse else -2 * np.pi)
    places = np.arange(size, dtype="float32")
    cosine, sine = _waves(emit, (sign * places / np.float32(size))[None, :] * places[:, None], dtype)

    def times(part, wave):
        return emit(relax.op.matmul(part, wave, out_dtype=dtype))

    parts = (
        emit(relax.op.subtract(times(real, cosine), times(imaginary, sine))),
        emit(relax.op.add(times(real, sine), times(imaginary, cosine))),
    )
    if not attrs.inverse:
        return parts
    factor = emit.const(1.0 / size, dtype)
    return tuple(emit(relax.op.multiply(part, factor)) for part in parts)


@TABLE.operator("stft")
def stft(emit, attrs, signal, window):
    """Transform overlapping frames of a signal, (batch, length), to (batch, frequencies, frames, 2)."""
    require_float(signal)
    dtype, sizes = dtype_of(signal), _sizes(signal)
    if dtype_of(window) != dtype or len(sizes) > 2:
        raise CannotConvert("it takes a vector or a batch of them, and a window of the same dtype")
    points = int(attrs.n_fft)
    hop = int(attrs.hop_length) if attrs.hop_length > 0 else points // 4
    width = int(attrs.win_length) if attrs.win_length > 0 else points
    length = sizes[-1]
    if not (0 < points <= length and 0 < width <= points and hop > 0) or static_shape(window) != [width]:
        raise CannotConvert(
            f"n_fft={points}, hop_length={hop} and win_length={width} do not fit its operands"
        )
    frames = (length - points) // hop + 1
    places = (np.arange(frames)[:, None] * hop + np.arange(width)[None, :]).reshape(-1)
    framed = emit(relax.op.take(signal, emit.const(places, "int64"), axis=len(sizes) - 1, mode="clip"))
    framed = reshaped(emit, framed, [*sizes[:-1], frames, width])
    framed = emit(relax.op.multiply(framed, window))
    rows = points // 2 + 1 if attrs.onesided else points
    steps = np.float32(2 * np.pi) * np.arange(rows, dtype="float32")[None, :]
    angles = steps * np.arange(width, dtype="float32")[:, None] / np.float32(width)
    cosine, sine = _waves(emit, angles, dtype)
    real = emit(relax.op.matmul(framed, cosine, out_dtype=dtype))
    imaginary = emit(relax.op.negative(emit(relax.op.matmul(framed, sine, out_dtype=dtype))))
    both = emit(relax.op.stack([real, imaginary], axis=len(sizes) + 1))
    if attrs.normalized:
        both = emit(relax.op.divide(both, emit.const(np.sqrt(np.float32(points)), dtype)))
    batch = list(range(len(sizes) - 1))
    return relax.op.permute_dims(both, [*batch, len(batch) + 1, len(batch), len(batch) + 2])
