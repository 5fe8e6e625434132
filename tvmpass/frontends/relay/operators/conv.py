"""Convolutions: plain, transposed, packed, and the deformable one."""

from __future__ import annotations

from typing import Any

from tvm import relax, topi

from ..table import Attrs, CannotConvert, Emitter, Table
from .facts import dtype_of, product, shape_of
from .layouts import is_plain, known, packed, padding_of, parsed, per_axis, require_number, unpacked
from .shapes import reshaped

TABLE = Table()

_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def _grouped_weight(emit: Emitter, weight, layout: str, plain: str, groups: int):
    """Return a weight as ``plain``, its ``G`` axis, if any, merged into the axis after it.

    ``GOIHW`` holds one weight per group.
    """
    if "G" not in [name for name, _ in parsed(layout)]:
        return unpacked(emit, weight, layout, plain)
    weight = unpacked(emit, weight, layout, "G" + plain)
    sizes = shape_of(weight)
    if sizes[0] != groups:
        raise CannotConvert(f"a weight of {sizes[0]} groups in a convolution of {groups}")
    return reshaped(emit, weight, [product(sizes[:2]), *sizes[2:]])


def _check_stated(attrs: Attrs, channels: Any, kernel: list[Any]) -> None:
    """Refuse a stated number of channels or kernel size that the weight contradicts."""
    stated = attrs.ints("channels")
    if stated and isinstance(channels, int) and stated != [channels]:
        raise CannotConvert(f"channels={stated[0]}, but the weight makes {channels}")
    size = attrs.ints("kernel_size")
    if size and all(isinstance(dim, int) for dim in kernel) and size != kernel:
        raise CannotConvert(f"kernel_size={size}, but the weight has {kernel}")


def _weight(emit: Emitter, weight, layout: str, spatial: str, last: bool, groups: int, channels: Any):
    """Return the weight as ``OI`` before the spatial axes, ``IO`` after them with channels ``last``.

    A depthwise weight may be given as (channels, multiplier): the output channel
    ``c * multiplier + m`` belongs to the input channel c.
    """
    plain = f"{spatial}IO" if last else f"OI{spatial}"
    if "G" in layout:
        weight = _grouped_weight(emit, weight, layout, f"OI{spatial}", groups)
        return unpacked(emit, weight, f"OI{spatial}", plain)
    if spatial == "HW" and groups > 1 and is_plain(layout):
        sizes = dict(zip(layout, shape_of(weight)))
        if sizes.get("O") == groups == channels and sizes.get("I") != 1:
            both = f"{spatial}OI" if last else f"OI{spatial}"
            weight = unpacked(emit, weight, layout, both)
            merged = sizes["O"] * sizes["I"]
            rest = [sizes[axis] for axis in spatial]
            return reshaped(emit, weight, [*rest, 1, merged] if last else [merged, 1, *rest])
    return unpacked(emit, weight, layout, plain)


def convolve(
    emit: Emitter,
    attrs: Attrs,
    x,
    weight,
    rank: int,
    data_layout: str,
    kernel_layout: str,
    out_layout: str | None,
    out_dtype: str | None,
):
    """Return the convolution of ``x`` by ``weight`` over ``rank`` axes, in any layouts."""
    spatial = _SPATIAL[rank]
    last = is_plain(data_layout) and data_layout[0] == "N" and data_layout[-1] == "C"
    plain = f"N{spatial}C" if last else f"NC{spatial}"
    plain_kernel = f"{spatial}IO" if last else f"OI{spatial}"
    groups = int(attrs.groups)
    out_dtype = out_dtype or dtype_of(x)
    require_number(out_dtype)
    x = unpacked(emit, x, data_layout, plain)
    weight = _weight(emit, weight, kernel_layout, spatial, last, groups, shape_of(x)[plain.index("C")])
    sizes = dict(zip(plain_kernel, shape_of(weight)))
    _check_stated(attrs, sizes["O"], [sizes[axis] for axis in spatial])
    result = getattr(relax.op.nn, f"conv{rank}d")(
        x,
        weight,
        strides=per_axis(attrs.ints("strides"), rank, "strides"),
        padding=padding_of(attrs.ints("padding"), rank),
        dilation=per_axis(attrs.ints("dilation"), rank, "dilation"),
        groups=groups,
        data_layout=plain,
        kernel_layout=plain_kernel,
        out_dtype=out_dtype,
    )
    result = emit(result)
    for axis, size in zip(plain, shape_of(result)):
        # Kernels of such a shape cannot be built, in Relay neither.
        if axis in spatial and isinstance(size, int) and size <= 0:
            raise CannotConvert(f"the kernel does not fit axis {axis}: the result would have no elements")
    wanted = out_layout or data_layout
    return result if wanted == plain else packed(emit, result, plain, wanted)


def _convolution(rank: int, emit: Emitter, attrs: Attrs, x, weight):
    spatial = _SPATIAL[rank]
    return convolve(
        emit,
        attrs,
        x,
        weight,
        rank,
        attrs.word("data_layout") or f"NC{spatial}",
        attrs.word("kernel_layout") or f"OI{spatial}",
        attrs.word("out_layout"),
        attrs.word("out_dtype"),
    )


@TABLE.operator("nn.conv1d")
def conv1d(emit: Emitter, attrs: Attrs, x, weight):
    """Convert a convolution over one axis."""
    return _convolution(1, emit, attrs, x, weight)


@TABLE.operator("nn.conv2d")
def conv2d(emit: Emitter, attrs: Attrs, x, weight):
    """Convert a convolution over two axes."""
    return _convolution(2, emit, attrs, x, weight)


@TABLE.operator("nn.conv3d")
def conv3d(emit: Emitter, attrs: Attrs, x, weight):
    """Convert a convolution over three axes."""
    return _convolution(3, emit, attrs, x, weight)


@TABLE.operator("nn.contrib_conv2d_NCHWc", "nn.contrib_depthwise_conv2d_NCHWc")
def conv2d_packed(emit: Emitter, attrs: Attrs, x, weight):
    """Convert a convolution whose channels are split into blocks."""
    data_layout, kernel_layout = attrs.word("data_layout"), attrs.word("kernel_layout")
    if not data_layout or not kernel_layout or is_plain(data_layout) or is_plain(kernel_layout):
        raise CannotConvert(f"data_layout={data_layout} and kernel_layout={kernel_layout} are not packed")
    return _convolution(2, emit, attrs, x, weight)


def _transposed_kernel_layout(layout: str, sizes: list[Any], channels_in: Any, outputs: int | None) -> str:
    """Return the kernel layout as it is meant.

    Before TVM 0.9 the letters I and O of transposed convolutions were swapped:
    ``OIHW`` held (in, out, height, width).  Where the shape fits only the old
    reading, it is an old program.
    """
    dims = dict(zip((name for name, _ in parsed(layout)), sizes))
    if not is_plain(layout) or "G" in dims or "I" not in dims or "O" not in dims:
        return layout
    if dims["I"] != channels_in and dims["O"] == channels_in:
        if outputs is None or dims["I"] == outputs:
            return layout.translate(str.maketrans("IO", "OI"))
    return layout


def _transposed_convolution(rank: int, emit: Emitter, attrs: Attrs, x, weight):
    spatial = _SPATIAL[rank]
    plain, plain_kernel = f"NC{spatial}", f"IO{spatial}"
    data_layout = attrs.word("data_layout") or plain
    groups = int(attrs.groups)
    strides = per_axis(attrs.ints("strides"), rank, "strides")
    extra = attrs.ints("output_padding") or [0]
    # Over one axis Relay reads the first number and lets others stand.
    extra = per_axis(extra[:1] if rank == 1 else extra, rank, "output_padding")
    out_dtype = attrs.word("out_dtype") or dtype_of(x)
    require_number(out_dtype)
    x = unpacked(emit, x, data_layout, plain)
    stated = attrs.ints("channels")
    layout = _transposed_kernel_layout(
        attrs.word("kernel_layout") or plain_kernel,
        shape_of(weight),
        shape_of(x)[1],
        stated[0] // groups if stated else None,
    )
    weight = _grouped_weight(emit, weight, layout, plain_kernel, groups)
    _, outputs, *kernel = shape_of(weight)
    _check_stated(attrs, outputs * groups, kernel)
    for axis, (more, stride) in enumerate(zip(extra, strides)):
        if not 0 <= more < stride:
            raise CannotConvert(f"output_padding {more} of axis {axis} must be less than its stride {stride}")
    result = getattr(relax.op.nn, f"conv{rank}d_transpose")(
        x,
        weight,
        strides=strides,
        padding=padding_of(attrs.ints("padding"), rank),
        output_padding=extra,
        dilation=per_axis(attrs.ints("dilation"), rank, "dilation"),
        groups=groups,
        data_layout=plain,
        kernel_layout=plain_kernel,
        out_dtype=out_dtype,
    )
    wanted = attrs.word("out_layout") or data_layout
    return result if wanted == plain else packed(emit, emit(result), plain, wanted)


@TABLE.operator("nn.conv1d_transpose")
def conv1d_transpose(emit: Emitter, attrs: Attrs, x, weight):
    """Convert a transposed convolution over one axis."""
    return _transposed_convolution(1, emit, attrs, x, weight)


@TABLE.operator("nn.conv2d_transpose")
def conv2d_transpose(emit: Emitter, attrs: Attrs, x, weight):
    """Convert a transposed convolution over two axes."""
    return _transposed_convolution(2, emit, attrs, x, weight)


@TABLE.operator("nn.conv3d_transpose")
def conv3d_transpose(emit: Emitter, attrs: Attrs, x, weight):
    """Convert a transposed convolution over three axes."""
    return _transposed_convolution(3, emit, attrs, x, weight)


@TABLE.operator("nn.deformable_conv2d")
def deformable_conv2d(emit: Emitter, attrs: Attrs, x, offset, weight):
    """Convert a convolution whose samples are moved by an offset each."""
    if int(attrs.groups) != 1:
        raise CannotConvert("deformable convolutions in groups are not computed by Relay either")
    layout = attrs.word("data_layout") or "NCHW"
    x, offset = unpacked(emit, x, layout, "NCHW"), unpacked(emit, offset, layout, "NCHW")
    weight = unpacked(emit, weight, attrs.word("kernel_layout") or "OIHW", "OIHW")
    outputs, _, *kernel = [known(dim, "the weight") for dim in shape_of(weight)]
    _check_stated(attrs, outputs, kernel)
    for tensor in (x, offset):
        for dim in shape_of(tensor):
            known(dim, "the shape of a deformable convolution's input")
    strides = per_axis(attrs.ints("strides"), 2, "strides")
    dilation = per_axis(attrs.ints("dilation"), 2, "dilation")
    padding = padding_of(attrs.ints("padding"), 2)
    out_dtype = attrs.word("out_dtype") or dtype_of(x)
    result = emit.te(
        lambda a, b, c: topi.nn.deformable_conv2d_nchw(
            a, b, c, strides, padding, dilation, int(attrs.deformable_groups), 1, out_dtype
        ),
        x,
        offset,
        weight,
        name="deformable_conv2d",
    )
    return packed(emit, result, "NCHW", attrs.word("out_layout") or layout)


@TABLE.operator("nn.correlation")
def correlation(emit: Emitter, attrs: Attrs, first, second):
    """Convert the correlation of patches of two images."""
    if (attrs.word("layout") or "NCHW") != "NCHW":
        raise CannotConvert(f"layout={attrs.layout}: Relay computes correlations in NCHW only")
    for dim in [*shape_of(first), *shape_of(second)]:
        known(dim, "the shape of a correlation's input")
    size = int(attrs.kernel_size)
    if size < 1 or size % 2 == 0:
        raise CannotConvert(f"kernel_size={size} must be odd")
    return emit.te(
        lambda a, b: topi.nn.correlation_nchw(
            a,
            b,
            size,
            int(attrs.max_displacement),
            int(attrs.stride1),
            int(attrs.stride2),
            padding_of(attrs.ints("padding"), 2),
            bool(attrs.is_multiply),
        ),
        first,
        second,
        name="correlation",
    )
