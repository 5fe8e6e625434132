"""Quantised products and convolutions: sums of ``(x - zx) * (w - zw)`` in integers.

The scales do not enter: the result has the product of both, and zero point 0.
Padding is with the zero point, so plain zeros after the subtraction.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from ..table import Attrs, CannotConvert, Table
from . import conv
from .facts import dtype_of, rank_of, shape_of
from .qnn_parameters import along, elements, is_zero, limits, shifted
from .shapes import cast

TABLE = Table()

_OUT = ("int16", "int32", "int64")


@TABLE.operator("qnn.dense")
def dense(emit, attrs, data, weight, zero_point, weight_zero_point, scale, weight_scale):
    """Multiply by a transposed weight; its zero point may be one per unit."""
    dtype = _out_dtype(attrs)
    x, w = _operands(emit, data, weight, zero_point, weight_zero_point, dtype, weight_axis=0)
    return relax.op.matmul(x, emit(relax.op.permute_dims(w)), out_dtype=dtype)


@TABLE.operator("qnn.batch_matmul")
def batch_matmul(emit, attrs, x, y, x_zero_point, y_zero_point, x_scale, y_scale):
    """Multiply batches of matrices, the second one transposed."""
    if attrs.transpose_a or ("transpose_b" in attrs.stated and not attrs.transpose_b):
        raise CannotConvert("qnn.batch_matmul is defined for transpose_a=False, transpose_b=True only")
    if elements(x_zero_point) != 1 or elements(y_zero_point) != 1:
        raise CannotConvert("zero points of qnn.batch_matmul are scalars")
    dtype = _out_dtype(attrs)
    left, right = _operands(emit, x, y, x_zero_point, y_zero_point, dtype, weight_axis=-1)
    return relax.op.matmul(left, emit(relax.op.permute_dims(right, [0, 2, 1])), out_dtype=dtype)


@TABLE.operator("qnn.conv2d")
def conv2d(emit, attrs, data, weight, zero_point, weight_zero_point, scale, weight_scale):
    """Convolve; the weight's zero point may be one per output channel."""
    dtype = _out_dtype(attrs)
    weight_point = _per_output_channel(emit, attrs, weight, weight_zero_point)
    x, w = _operands(emit, data, weight, zero_point, weight_point, dtype, weight_axis=None)
    return conv.TABLE["nn.conv2d"](emit, Attrs("nn.conv2d", {**attrs, "out_dtype": dtype}), x, w)


@TABLE.operator("qnn.conv2d_transpose")
def conv2d_transpose(emit, attrs, data, weight, zero_point, weight_zero_point, scale, weight_scale):
    """Convolve transposed; the weight's zero point may be one per output channel."""
    dtype = _out_dtype(attrs)
    weight_point = weight_zero_point
    if elements(weight_zero_point) != 1:
        if attrs.groups != 1:
            raise CannotConvert("zero points per channel of a grouped qnn.conv2d_transpose")
        # The letters name the weight as the convolution that is transposed sees it, in old
        # programs (OIHW) and new ones (IOHW) alike: the second dimension has the output channels.
        axis = 1 if attrs.kernel_layout in ("IOHW", "OIHW") else attrs.kernel_layout.index("O")
        weight_point = along(emit, weight_zero_point, rank_of(weight), axis)
    x, w = _operands(emit, data, weight, zero_point, weight_point, dtype, weight_axis=None)
    plain = Attrs("nn.conv2d_transpose", {**attrs, "out_dtype": dtype})
    return conv.TABLE["nn.conv2d_transpose"](emit, plain, x, w)


def _operands(emit, data, weight, zero_point, weight_zero_point, out_dtype: str, weight_axis):
    """Return both operands less their zero points, in one dtype in which no difference overflows.

    ``weight_axis`` is the axis of a vector of zero points, None where
    ``weight_zero_point`` broadcasts to the weight as it is.
    """
    if elements(zero_point) != 1:
        raise CannotConvert("the zero point of the data must be a scalar")
    dtype = _working_dtype(emit, (data, zero_point), (weight, weight_zero_point))
    x = shifted(emit, data, along(emit, zero_point, 0, 0), dtype)
    if weight_axis is not None:
        return x, shifted(emit, weight, weight_zero_point, dtype, weight_axis)
    w = cast(emit, weight, dtype)
    if not is_zero(emit, weight_zero_point):
        w = emit(relax.op.subtract(w, cast(emit, weight_zero_point, dtype)))
    return x, w


def _working_dtype(emit, *operands) -> str:
    dtypes = {dtype_of(tensor) for tensor, _ in operands}
    if len(dtypes) == 1 and all(is_zero(emit, point) for _, point in operands):
        return dtypes.pop()
    for dtype in ("int16", "int32"):
        low, high = limits(dtype)
        if all(low <= least and greatest <= high for least, greatest in _ranges(emit, operands)):
            return dtype
    return "int32"


def _ranges(emit, operands):
    for tensor, zero_point in operands:
        least, greatest = limits(dtype_of(tensor))
        point = emit.array(zero_point)
        if point is None:
            yield limits("int32")
        elif point.size:
            yield least - max(int(np.max(point)), 0), greatest - min(int(np.min(point)), 0)


def _per_output_channel(emit, attrs, weight, zero_point):
    """Return the weight's zero point in a shape that broadcasts to the weight."""
    count = elements(zero_point)
    if count == 1:
        return along(emit, zero_point, 0, 0)
    layout = attrs.kernel_layout
    if set(layout) != set("OIHW"):
        raise CannotConvert(f"kernel layout {layout} of qnn.conv2d")
    outputs, inputs = layout.index("O"), layout.index("I")
    dims = shape_of(weight)
    if count is None or count == dims[outputs]:
        return along(emit, zero_point, len(dims), outputs)
    if attrs.groups == 1 or count != dims[outputs] * dims[inputs]:
        raise CannotConvert(f"{count} zero points do not fit a weight of shape {dims} in {layout}")
    # Depthwise with several outputs per channel: they are counted in the order of the weight.
    shape = [size if place in (outputs, inputs) else 1 for place, size in enumerate(dims)]
    return emit(relax.op.reshape(zero_point, shape))


def _out_dtype(attrs) -> str:
    dtype = attrs.word("out_dtype") or "int32"
    if dtype not in _OUT:
        raise CannotConvert(f"out_dtype {dtype} of {', '.join(_OUT)}")
    return dtype
