"""Operators on images: resizing; `sampling` has those that sample at given coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, topi

from ..table import Attrs, CannotConvert, Emitter, Table, merged
from . import sampling
from .facts import dtype_of, shape_of
from .layouts import packed, unpacked
from .shapes import cast, is_empty, numbers

op = relax.op
_OWN = Table()

_PLAIN = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_METHODS = {
    "nearest_neighbor": "nearest_neighbor",
    **dict.fromkeys(("linear", "bilinear", "trilinear"), "linear"),
    **dict.fromkeys(("cubic", "bicubic"), "cubic"),
}
_MODES = (
    "half_pixel",
    "align_corners",
    "asymmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
_ROUNDINGS = ("", "round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_EXACT_IN_FLOAT32 = ("bool", "int8", "uint8", "int16", "uint16", "float16", "bfloat16", "float32")


@dataclass(frozen=True)
class Resize:
    """How an image is resized; ``roi`` is the begin of each spatial axis and then each end."""

    size: list[int]
    roi: list[float]
    method: str
    mode: str
    rounding: str
    cubic_alpha: float
    cubic_exclude: int
    outside: float

    @classmethod
    def of(cls, attrs: Attrs, size: list[int], roi: list[float] | None) -> Resize:
        """Read the attributes of ``image.resize1d``, ``2d`` or ``3d``."""
        method = _METHODS.get(str(attrs.method).lower())
        mode, rounding = str(attrs.coordinate_transformation_mode), attrs.get("rounding_method") or ""
        if method is None or mode not in _MODES or rounding not in _ROUNDINGS:
            raise CannotConvert(f"method {attrs.method!r}, mode {mode!r}, rounding {rounding!r}")
        if mode == "align_corners" and 1 in size:
            raise CannotConvert("the corners of one element are not aligned: Relay divides by 0")
        if mode == "tf_crop_and_resize" and len(roi or ()) != 2 * len(size):
            raise CannotConvert(f"mode {mode} with a region of {len(roi or ())} numbers")
        return cls(
            size,
            # Other modes do not look at the region.
            list(roi) if mode == "tf_crop_and_resize" and roi else [0.0] * (2 * len(size)),
            method,
            mode,
            _rounding(rounding, mode),
            float(attrs.get("cubic_alpha", -0.5)),
            int(attrs.get("cubic_exclude", 0)),
            float(attrs.get("extrapolation_value", 0.0)),
        )

    @property
    def rank(self) -> int:
        """Return the number of spatial axes."""
        return len(self.size)

    def is_stock(self) -> bool:
        """Say whether Relax's own operator gives the same values.

        Its ``round`` takes halves to the even number, and in two dimensions Relay
        divides whole numbers where the factor is one, whatever the rounding.
        """
        if self.rank == 1 or self.method != "nearest_neighbor":
            return self.rank > 1
        whole = self.rank == 2 and self.mode == "asymmetric" and self.rounding != "floor"
        return self.rounding != "round" and not whole


def _rounding(rounding: str, mode: str) -> str:
    if rounding:
        return rounding
    return "round" if mode == "align_corners" else "floor"


@_OWN.operator("image.resize1d")
def resize1d(emit, attrs, x):
    return _resize(emit, attrs, x, 1, attrs.ints("size"), attrs.roi)


@_OWN.operator("image.resize2d")
def resize2d(emit, attrs, x):
    return _resize(emit, attrs, x, 2, attrs.ints("size"), attrs.roi)


@_OWN.operator("image.resize3d")
def resize3d(emit, attrs, x):
    return _resize(emit, attrs, x, 3, attrs.ints("size"), attrs.roi)


@_OWN.operator("image.resize")
def resize(emit, attrs, x):
    """Convert the one resize of releases 0.6 and 0.7; its nearest pixel is that below, not the closest."""
    if attrs.word("coordinate_transformation_mode"):
        mode = str(attrs["coordinate_transformation_mode"])
    elif "align_corners" in attrs:
        mode = "align_corners" if attrs["align_corners"] else "asymmetric"
    else:
        # Left out it was align_corners in release 0.6 and half_pixel in 0.7.
        raise CannotConvert("state coordinate_transformation_mode: its default changed between releases")
    if mode not in ("align_corners", "asymmetric", "half_pixel"):
        raise CannotConvert(f"coordinate_transformation_mode {mode!r}")
    method = attrs.word("method") or "bilinear"
    if method == "nearest_neighbor" and mode == "half_pixel":
        mode = "asymmetric"
    stated = {name: attrs[name] for name in ("size", "layout", "out_dtype") if name in attrs}
    stated |= {"method": method, "coordinate_transformation_mode": mode, "rounding_method": ""}
    return resize2d(emit, Attrs("image.resize2d", stated), x)


@_OWN.operator("dyn.image.resize2d")
def dyn_resize2d(emit, attrs, x, size, roi):
    region = emit.array(roi)
    if region is None:
        raise CannotConvert("the region is computed when the program runs")
    return _resize(emit, attrs, x, 2, numbers(emit, size, "the size"), region.reshape(-1).tolist())


def _resize(emit: Emitter, attrs: Attrs, x: Any, rank: int, size: list[int] | None, roi: Any) -> Any:
    if size is None or len(size) != rank or min(size) < 0:
        raise CannotConvert(f"size {size} for {rank} axes")
    how = Resize.of(attrs, size, None if roi is None else [float(bound) for bound in roi])
    layout, dtype = attrs.word("layout") or _PLAIN[rank], dtype_of(x)
    asked = attrs.word("out_dtype") or dtype
    direct = how.is_stock() and (layout == _PLAIN[rank] or (rank == 2 and layout == "NHWC"))
    kept = layout if direct else _PLAIN[rank]
    x = unpacked(emit, x, layout, kept)
    shape = shape_of(x)
    spatial = [kept.index(axis) for axis in _PLAIN[rank][2:]]
    made = list(shape)
    for axis, extent in zip(spatial, size):
        made[axis] = extent
    if is_empty(made) or is_empty(shape):
        if not is_empty(made):
            raise CannotConvert("an image without pixels has no other size")
        x = emit(op.zeros(relax.ShapeExpr(made), asked))
    elif how.method == "nearest_neighbor" and not how.is_stock():
        x = cast(emit, _nearest(emit, x, how), asked)
    else:
        # Relay computes in float32 whatever it is given, and rounds to the result's dtype last.
        x = cast(emit, _interpolated(emit, cast(emit, x, "float32"), how, kept), asked)
    return packed(emit, x, kept, layout)


def _interpolated(emit: Emitter, x: Any, how: Resize, layout: str) -> Any:
    if how.rank == 1:

        def kernel(data):
            return topi.image.resize1d(
                data, how.roi, how.size, layout, how.method, how.mode, how.rounding,
                how.cubic_alpha, how.cubic_exclude, how.outside,
            )  # fmt: skip

        return emit.te(kernel, x, name="resize1d")
    operator = op.image.resize2d if how.rank == 2 else op.image.resize3d
    return emit(
        operator(
            x,
            tuple(how.size),
            roi=tuple(how.roi),
            layout=layout,
            method=how.method,
            coordinate_transformation_mode=how.mode,
            rounding_method=how.rounding,
            cubic_alpha=how.cubic_alpha,
            cubic_exclude=how.cubic_exclude,
            extrapolation_value=how.outside,
        )
    )


def _nearest(emit: Emitter, x: Any, how: Resize) -> Any:
    """Return the nearest elements: a take along each spatial axis, of positions known now."""
    dtype = dtype_of(x)
    if dtype not in _EXACT_IN_FLOAT32:
        x = cast(emit, x, "float32")
    outside = np.zeros([1] * (how.rank + 2), bool)
    for i, size in enumerate(how.size):
        length = shape_of(x)[i + 2]
        if not isinstance(length, int):
            raise CannotConvert("it needs the image's size; give it by --shape")
        at = coordinates(size, length, how, i)
        if how.mode == "tf_crop_and_resize":
            beyond = (at < 0) | (at > np.float32(length - 1))
            outside = outside | beyond.reshape([-1 if axis == i + 2 else 1 for axis in range(how.rank + 2)])
        place = np.clip(closest(at, size, length, how), 0, length - 1)
        if not np.array_equal(place, np.arange(length)):
            x = emit(op.take(x, emit.const(place, "int64"), i + 2, mode="clip"))
    if outside.any():
        x = emit(op.where(emit.const(outside, "bool"), emit.const(how.outside, dtype_of(x)), x))
    return x


def coordinates(size: int, length: int, how: Resize, axis: int) -> np.ndarray:
    """Return where in the source each of ``size`` results lies along a spatial axis (float32)."""
    half = np.float32(0.5)
    at = np.arange(size).astype(np.float32)
    scale = np.float32(length / size)
    if how.mode == "half_pixel":
        return (at + half) * scale - half
    if how.mode == "align_corners":
        return np.float32((length - 1) / (size - 1)) * at
    if how.mode == "asymmetric":
        return scale * at
    if how.mode == "pytorch_half_pixel":
        return (at + half) * scale - half if size > 1 else at * 0
    if how.mode == "tf_half_pixel_for_nn":
        return (at + half) * scale
    begin, end = np.float32(how.roi[axis]), np.float32(how.roi[axis + how.rank])
    last = np.float32(length - 1)
    if size > 1:
        return begin * last + at * (end - begin) * last / np.float32(size - 1)
    return np.full(size, half * (begin + end) * last, np.float32)


def closest(at: np.ndarray, size: int, length: int, how: Resize) -> np.ndarray:
    """Return the position nearest to each coordinate, by the rounding that is asked for."""
    if how.rank == 2 and how.mode == "asymmetric" and size % length == 0:
        return np.arange(size) // (size // length)
    half, tiny = np.float32(0.5), np.float32(1e-5)
    if how.rounding == "round":
        whole = np.trunc(at)
        return (whole + np.sign(at) * (np.abs(at - whole) >= half)).astype(np.int64)
    if how.rounding == "round_prefer_floor":
        return np.ceil(at - half).astype(np.int64)
    if how.rounding == "round_prefer_ceil":
        return np.floor(at + half).astype(np.int64)
    if how.rounding == "floor":
        return np.floor(at + tiny).astype(np.int64)
    return np.ceil(at - tiny).astype(np.int64)


TABLE = Table(merged([_OWN, sampling.TABLE]))
