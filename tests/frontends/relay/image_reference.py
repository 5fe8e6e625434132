"""Resizing as Relay does it, axis by axis and in double precision: what tests of images compare with."""

from __future__ import annotations

import math

import numpy as np


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).uniform(-1, 1, shape).astype("float32")


def source(i: int, length: int, size: int, mode: str, begin: float = 0.0, end: float = 1.0) -> float:
    """Return where result ``i`` of ``size`` lies in a source of ``length``."""
    scale = length / size
    if mode == "align_corners":
        return i * (length - 1) / (size - 1) if size > 1 else 0.0
    if mode == "asymmetric":
        return i * scale
    if mode == "tf_half_pixel_for_nn":
        return (i + 0.5) * scale
    if mode == "tf_crop_and_resize":
        if size == 1:
            return 0.5 * (begin + end) * (length - 1)
        return begin * (length - 1) + i * (end - begin) * (length - 1) / (size - 1)
    if mode == "pytorch_half_pixel" and size == 1:
        return 0.0
    return (i + 0.5) * scale - 0.5


def rounded(at: float, rounding: str) -> int:
    if rounding == "round":
        return int(math.copysign(math.floor(abs(at) + 0.5), at))
    return {
        "round_prefer_floor": lambda: math.ceil(at - 0.5),
        "round_prefer_ceil": lambda: math.floor(at + 0.5),
        "floor": lambda: math.floor(at + 1e-5),
        "ceil": lambda: math.ceil(at - 1e-5),
    }[rounding]()


def weights(length: int, size: int, method: str, mode: str, rounding: str, exclude: bool = False, roi=(0, 1)):
    """Return the matrix that resizes one axis, and which results lie outside."""
    made, outside = np.zeros((size, length)), np.zeros(size, bool)
    for i in range(size):
        at = source(i, length, size, mode, *roi)
        outside[i] = mode == "tf_crop_and_resize" and not 0 <= at <= length - 1
        if method == "nearest_neighbor":
            taps = [(rounded(at, rounding), 1.0)]
        elif method == "linear":
            low = math.floor(at)
            taps = [(low, 1 - (at - low)), (low + 1, at - low)]
        else:
            low, a = math.floor(at), -0.5
            taps = []
            for place in range(low - 1, low + 3):
                d = abs(at - place)
                near = (a + 2) * d**3 - (a + 3) * d**2 + 1
                taps.append((place, near if d <= 1 else a * (d**3 - 5 * d**2 + 8 * d - 4)))
            if exclude:
                taps = [(place, w * (0 <= place < length)) for place, w in taps]
                taps = [(place, w / sum(w for _, w in taps)) for place, w in taps]
        for place, weight in taps:
            made[i, min(max(place, 0), length - 1)] += weight
    return made, outside


def resized(x, axes, size, method, mode, rounding="", roi=None, outside=0.0, exclude=False):
    """Return an image with some axes resized."""
    rounding = rounding or ("round" if mode == "align_corners" else "floor")
    made, beyond = x.astype("float64"), np.zeros([1] * x.ndim, bool)
    for n, (axis, extent) in enumerate(zip(axes, size)):
        region = (roi[n], roi[n + len(axes)]) if roi else (0, 1)
        matrix, out = weights(x.shape[axis], extent, method, mode, rounding, exclude, region)
        made = np.moveaxis(np.tensordot(matrix, made, (1, axis)), 0, axis)
        beyond = beyond | out.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    return np.where(beyond, outside, made).astype(x.dtype)


def attributes(**given) -> str:
    return "".join(f', {name}="{v}"' if isinstance(v, str) else f", {name}={v}" for name, v in given.items())
