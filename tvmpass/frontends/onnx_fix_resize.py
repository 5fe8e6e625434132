"""Resize and Upsample as ONNX defines them, one axis at a time.

The stock conversion is kept where it is exact: the spatial axes of an image,
scaled to a whole number of pixels.  Otherwise each result position takes a few
source positions with constant weights: a gather per tap, or one gather alone
where the mode is nearest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from tvm import relax

from .onnx_fix_elementwise import is_float
from .onnx_fix_shape import constant, dims, int64

op = relax.op


@dataclass(frozen=True)
class _Axis:
    """How one axis is resized: ``ideal`` is the length before rounding."""

    axis: int
    length: int
    result: int
    scale: float
    start: float = 0.0
    end: float = 1.0

    @property
    def ideal(self) -> float:
        return self.scale * self.length


def _resize(bb, inputs, attrs, opset, stock):
    x, shape = inputs[0], dims(inputs[0])
    given = [constant(v) if v is not None else None for v in list(inputs)[1:]]
    if opset < 11:
        given = [None, *given]
    roi, scales, sizes = (given + [None] * 3)[:3]
    scales = None if scales is not None and scales.size == 0 else scales
    if scales is None and sizes is None:
        return stock()
    rank = len(shape)
    axes = [axis % rank for axis in attrs.get("axes", range(rank))]
    plan = _plan(shape, axes, scales, sizes, roi, attrs)
    if plan is None or _is_exact(plan, rank, attrs, opset):
        return stock()
    return _apply(bb, x, plan, _Rule.of(attrs, opset))


def _upsample(bb, inputs, attrs, opset, stock):
    scales = attrs.get("scales") if opset < 9 else constant(inputs[1])
    shape = dims(inputs[0])
    if scales is None:
        raise ValueError("Upsample with run-time scales is not supported")
    plan = _plan(shape, list(range(len(shape))), np.asarray(scales), None, None, {})
    if plan is None:
        raise ValueError("Upsample of a symbolic dim is not supported")
    mode = attrs.get("mode", b"nearest").decode()
    return _apply(bb, inputs[0], plan, _Rule(mode, "asymmetric", "floor"))


def _plan(shape, axes, scales, sizes, roi, attrs) -> list[_Axis] | None:
    """Return the axes that change, or None where a length is not known."""
    policy = attrs.get("keep_aspect_ratio_policy", b"stretch").decode()
    lengths = [shape[axis] for axis in axes]
    if sizes is not None:
        if not all(isinstance(n, int) for n, s in zip(lengths, sizes)):
            return None
        factors = [float(size) / length for size, length in zip(sizes, lengths)]
        results = [int(size) for size in sizes]
        if policy != "stretch":
            factors = [min(factors) if policy == "not_larger" else max(factors)] * len(axes)
            results = [int(factor * length + 0.5) for factor, length in zip(factors, lengths)]
    else:
        factors = [float(scale) for scale in scales]
        if any(not isinstance(n, int) and f != 1 for n, f in zip(lengths, factors)):
            return None
        results = [math.floor(n * f + 1e-6) if isinstance(n, int) else n for n, f in zip(lengths, factors)]
    count, plan = len(axes), []
    crops = attrs.get("coordinate_transformation_mode", b"") == b"tf_crop_and_resize"
    for i, axis in enumerate(axes):
        if factors[i] == 1 and results[i] == lengths[i] and not crops:
            continue
        if not isinstance(lengths[i], int):
            return None
        ends = (float(roi[i]), float(roi[i + count])) if crops and roi is not None else (0.0, 1.0)
        plan.append(_Axis(axis, lengths[i], results[i], factors[i], *ends))
    return plan


def _is_exact(plan: list[_Axis], rank: int, attrs, opset: int) -> bool:
    """Return True where the stock conversion gives ONNX's values."""
    unusual = ("axes", "antialias", "exclude_outside", "keep_aspect_ratio_policy")
    if rank != 4 or any(attrs.get(name) for name in unusual) or not {a.axis for a in plan} <= {2, 3}:
        return False
    mode = attrs.get("coordinate_transformation_mode", b"half_pixel").decode()
    if opset < 11 or mode not in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"):
        return False
    return all(abs(a.ideal - a.result) < 1e-6 for a in plan)


@dataclass(frozen=True)
class _Rule:
    """How source positions are found and weighted."""

    mode: str
    coordinates: str
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    outside: float = 0.0

    @classmethod
    def of(cls, attrs, opset: int) -> _Rule:
        coordinates = attrs.get("coordinate_transformation_mode", b"half_pixel").decode()
        if opset < 11:
            return cls(attrs.get("mode", b"nearest").decode(), "asymmetric", "floor")
        return cls(
            attrs.get("mode", b"nearest").decode(),
            coordinates,
            attrs.get("nearest_mode", b"round_prefer_floor").decode(),
            attrs.get("cubic_coeff_a", -0.75),
            bool(attrs.get("exclude_outside", 0)),
            bool(attrs.get("antialias", 0)),
            attrs.get("extrapolation_value", 0.0),
        )

    def source(self, a: _Axis) -> np.ndarray:
        """Return the source coordinate of each result position."""
        out = np.arange(a.result, dtype=np.float64)
        half = (out + 0.5) / a.scale - 0.5
        if self.coordinates == "half_pixel":
            return half
        if self.coordinates == "pytorch_half_pixel":
            return half if a.ideal > 1 else np.full(a.result, -0.5)
        if self.coordinates == "half_pixel_symmetric":
            return a.length / 2 * (1 - a.result / a.ideal) + half
        if self.coordinates == "asymmetric":
            return out / a.scale
        if self.coordinates == "align_corners":
            return out * (a.length - 1) / (a.ideal - 1) if a.ideal != 1 else out * 0
        if self.coordinates == "tf_half_pixel_for_nn":
            return (out + 0.5) / a.scale
        if self.coordinates == "tf_crop_and_resize":
            span = (a.end - a.start) * (a.length - 1)
            inside = out * span / (a.ideal - 1) if a.ideal > 1 else out * 0 + span / 2
            return a.start * (a.length - 1) + inside
        raise ValueError(f"Resize with coordinates {self.coordinates} is not supported")

    def index(self, x: np.ndarray, length: int) -> np.ndarray:
        """Return the nearest source position of each coordinate."""
        rounded = {
            "round_prefer_floor": np.ceil(x - 0.5),
            "round_prefer_ceil": np.floor(x + 0.5),
            "floor": np.floor(x),
            "ceil": np.ceil(x),
        }[self.nearest]
        return np.clip(rounded, 0, length - 1).astype(np.int64)

    def taps(self, x: np.ndarray, a: _Axis) -> tuple[np.ndarray, np.ndarray]:
        """Return source positions and weights, ``[taps, result]`` each."""
        shrink = min(a.scale, 1.0) if self.antialias else 1.0
        reach = {"linear": 1, "cubic": 2}[self.mode]
        first = math.floor(-reach / shrink) + 1
        steps = np.arange(first, 2 - first)[:, None]
        base = np.floor(x)
        distance = np.abs(steps - (x - base)) * shrink
        weights = np.clip(1 - distance, 0, None) if self.mode == "linear" else self._cubic(distance)
        places = (base + steps).astype(np.int64)
        if self.exclude_outside:
            weights = np.where((places < 0) | (places >= a.length), 0, weights)
        weights = weights / weights.sum(0)
        return np.clip(places, 0, a.length - 1), weights

    def _cubic(self, d: np.ndarray) -> np.ndarray:
        c = self.cubic
        near = ((c + 2) * d - (c + 3)) * d * d + 1
        far = ((c * d - 5 * c) * d + 8 * c) * d - 4 * c
        return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _apply(bb, x, plan: list[_Axis], rule: _Rule):
    dtype = str(x.ty.dtype)
    weighted = rule.mode != "nearest"
    if weighted and not is_float(x):
        x = bb.emit(op.astype(x, "float32"))
    rank = x.ty.ndim
    for a in plan:
        where = rule.source(a)
        if weighted:
            x = _weigh(bb, x, a, *rule.taps(where, a), rank)
        else:
            x = bb.emit(op.take(x, int64(rule.index(where, a.length)), axis=a.axis))
        if rule.coordinates == "tf_crop_and_resize":
            beyond = (where < 0) | (where > a.length - 1)
            if beyond.any():
                mask = relax.const(_along(beyond, a.axis, rank), "bool")
                x = bb.emit(op.where(mask, relax.const(rule.outside, str(x.ty.dtype)), x))
    return x if str(x.ty.dtype) == dtype else op.astype(x, dtype)


def _weigh(bb, x, a: _Axis, places: np.ndarray, weights: np.ndarray, rank: int):
    """Return the weighted sum of gathers along one axis; taps without weight are left out."""
    total, dtype = None, str(x.ty.dtype)
    for place, weight in zip(places, weights):
        if not weight.any():
            continue
        part = bb.emit(op.take(x, int64(place), axis=a.axis))
        part = bb.emit(op.multiply(part, relax.const(_along(weight, a.axis, rank).astype("float32"), dtype)))
        total = part if total is None else bb.emit(op.add(total, part))
    return total


def _along(values: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """Return a vector shaped to broadcast along ``axis``."""
    return values.reshape([-1] + [1] * (rank - 1 - axis))


RESIZING = {"Resize": _resize, "Upsample": _upsample}
