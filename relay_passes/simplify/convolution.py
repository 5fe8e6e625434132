"""What the rules that fold into convolutions share: channels, weights, bias."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from relay_passes.operands import call_of, constant
from tvmpass.core.decision import Refusal, RefusalKind
from tvmpass.core.site import dtype_of, op_name

CONVOLUTIONS = tuple(f"relax.nn.conv{d}d{t}" for d in (1, 2, 3) for t in ("", "_transpose"))

NOT_FINITE = RefusalKind("not-finite", "the folded {what} would hold values that are not finite in {dtype}")


def conv_and_bias(view, add):
    """Return the convolution and the constant of an add, either way round, else ``(None, None)``."""
    for data, bias in (add.args, list(add.args)[::-1]):
        if call_of(view, data, *CONVOLUTIONS) is not None and isinstance(
            view.value(bias), tvm.ir.GenericConst
        ):
            return data, bias
    return None, None


def channel_axis(attrs) -> int:
    """Return the axis of the output that holds the channels."""
    return str(attrs.out_layout or attrs.data_layout).index("C")


def is_per_channel(array: np.ndarray, axis: int, rank: int) -> bool:
    """Return True for a scalar, or extent 1 everywhere but on the channel axis."""
    shape = (1,) * (rank - array.ndim) + array.shape
    return len(shape) == rank and all(extent == 1 for i, extent in enumerate(shape) if i != axis)


def scaled(site, scale: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weight times ``scale`` and ``shift`` as a bias, for the site's ``conv``.

    Both are float64, one value per output channel or one for all.
    """
    conv, weight = site.value("conv"), site.constant("weight").astype("float64")
    axis, rank = channel_axis(conv.attrs), conv.ty.ndim
    with np.errstate(all="ignore"):  # what overflows is refused
        return (
            _scaled_weight(weight, scale, conv).astype(site.dtype("weight")),
            shift.reshape([-1 if i == axis else 1 for i in range(rank)]).astype(dtype_of(site.root)),
        )


def check_finite(site, weight: np.ndarray, bias: np.ndarray) -> Refusal | None:
    """Refuse where folding overflows, unless the weight was not finite before."""
    for what, old, new in (("weight", site.constant("weight"), weight), ("bias", None, bias)):
        if not np.isfinite(new).all() and (old is None or np.isfinite(old).all()):
            return NOT_FINITE(what=what, dtype=str(new.dtype))
    return None


def scaled_convolution(site, weight: np.ndarray, bias: np.ndarray):
    """Return the site's convolution with another weight, plus a bias."""
    conv = site.value("conv")
    made = relax.Call(conv.op, [conv.args[0], constant(weight)], conv.attrs, list(conv.ty_args))
    return relax.op.add(made, constant(bias))


def _scaled_weight(weight: np.ndarray, scale: np.ndarray, conv) -> np.ndarray:
    """Multiply every output channel's weights by its scale."""
    if scale.size == 1:
        return weight * scale.reshape(())
    layout, groups = str(conv.attrs.kernel_layout), int(conv.attrs.groups)
    out = layout.index("O")
    if not op_name(conv).endswith("_transpose"):
        return weight * scale.reshape([-1 if i == out else 1 for i in range(weight.ndim)])
    # Transposed: axis I holds the groups one after another, axis O one group's channels.
    into = layout.index("I")
    moved = np.moveaxis(weight, (into, out), (0, 1))
    grouped = moved.reshape(groups, moved.shape[0] // groups, *moved.shape[1:])
    grouped = grouped * scale.reshape(groups, 1, -1, *[1] * (moved.ndim - 2))
    return np.moveaxis(grouped.reshape(moved.shape), (0, 1), (into, out))
