"""Fold an inference batch norm into the weights of the convolution before it.

before: ``batch_norm(conv(x, w) [+ b], gamma, beta, mean, var)[0]``
after:  ``conv(x, w * s) + ((b - mean) * s + beta)`` with ``s = gamma / sqrt(var + eps)``

Always pays: a pass over the output less, and what is left is a bias that an
epilogue takes.  Holds for 1-D to 3-D and transposed convolutions, any groups and
any layout whose channel axis the batch norm uses.  The new weights are computed
in float64 and rounded once, so results differ by rounding of the weights only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tvm import relax

from relay_passes.operands import call_of, constant
from relay_passes.simplify import batch_norm as bn
from tvmpass.core.decision import RefusalKind
from tvmpass.core.legality import DTYPE_MISMATCH, ESCAPES, NOT_CONSTANT, SHAPE_MISMATCH, shown
from tvmpass.core.rule import SimplifyRule
from tvmpass.core.site import Site, dtype_of, op_name

CONVOLUTIONS = tuple(f"relax.nn.conv{d}d{t}" for d in (1, 2, 3) for t in ("", "_transpose"))

AXIS_MISMATCH = RefusalKind(
    "axis-mismatch", "batch norm over axis {found}, the convolution's channels are {expected}"
)
NOT_FINITE = RefusalKind("not-finite", "the folded {what} would hold values that are not finite in {dtype}")


@dataclass(frozen=True)
class FoldBatchNormIntoConv(SimplifyRule):
    """Fold an inference batch norm into the weights of the convolution before it."""

    reassociates: ClassVar = True

    refusals: ClassVar = (
        bn.TRAINING,
        bn.STATISTICS_READ,
        ESCAPES,
        NOT_CONSTANT,
        DTYPE_MISMATCH,
        AXIS_MISMATCH,
        SHAPE_MISMATCH,
        NOT_FINITE,
    )

    def match(self, view):
        """Yield item 0 of each batch norm whose data is a convolution, or one plus a constant."""
        for var, norm in bn.first_items(view):
            call = view.bindings[norm]
            data, bound, taken = call.args[0], {"norm": norm}, {var, norm}
            if call_of(view, data, "relax.add") is not None:
                added, bias = _conv_and_bias(view, view.value(data))
                if added is None:
                    continue
                bound |= {"added": data, "bias": bias}
                taken.add(data)
                data = added
            if call_of(view, data, *CONVOLUTIONS) is not None:
                bound |= {"conv": data, "weight": view.bindings[data].args[1]}
                yield Site.make(self, view, var, taken | {data}, bound)

    def check(self, site):
        refusal = bn.check_inference(site)
        if refusal is not None:
            return refusal
        for name in ("conv", "added"):
            if name in site.bound and site.escapes(name):
                return ESCAPES(value=site.name(name), readers=site.readers(name))
        if site.constant("weight") is None:
            return NOT_CONSTANT(value=site.name("weight"))
        if "float" not in site.dtype("weight") or site.dtype("conv") != dtype_of(site.root):
            return DTYPE_MISMATCH(
                value=site.name("conv"), found=site.dtype("conv"), expected="a float dtype throughout"
            )
        axis, rank = int(site.attrs("norm").axis), site.value("norm").args[0].ty.ndim
        channels = _channel_axis(site.attrs("conv"))
        if axis % rank != channels:
            return AXIS_MISMATCH(found=axis, expected=channels)
        if "bias" in site.bound and not _is_per_channel(site.constant("bias"), channels, rank):
            return SHAPE_MISMATCH(
                value="the bias", found=shown(site.shape("bias")), expected="one value per channel"
            )
        weight, bias = self._folded(site)
        for what, old, new in (("weight", site.constant("weight"), weight), ("bias", None, bias)):
            if not np.isfinite(new).all() and (old is None or np.isfinite(old).all()):
                return NOT_FINITE(what=what, dtype=str(new.dtype))
        return None

    def rewrite(self, site):
        weight, bias = self._folded(site)
        conv = site.value("conv")
        folded = relax.Call(conv.op, [conv.args[0], constant(weight)], conv.attrs, list(conv.ty_args))
        return relax.op.add(folded, constant(bias))

    @staticmethod
    def _folded(site) -> tuple[np.ndarray, np.ndarray]:
        """Return the new weight, and the bias shaped to broadcast over the output."""
        if "folded" not in site.data:
            scale, shift = bn.scale_and_shift(site)
            conv, weight = site.value("conv"), site.constant("weight").astype("float64")
            if "bias" in site.bound:
                shift = shift + site.constant("bias").astype("float64").reshape(-1) * scale
            axis, rank = _channel_axis(conv.attrs), conv.ty.ndim
            shape = [-1 if i == axis else 1 for i in range(rank)]
            with np.errstate(all="ignore"):  # what overflows is refused
                site.data["folded"] = (
                    _scaled(weight, scale, conv).astype(site.dtype("weight")),
                    shift.reshape(shape).astype(dtype_of(site.root)),
                )
        return site.data["folded"]


def _conv_and_bias(view, add):
    """Return the convolution and the constant of an add, either way round."""
    for data, bias in (add.args, list(add.args)[::-1]):
        if call_of(view, data, *CONVOLUTIONS) is not None and bn.is_constant(view, bias):
            return data, bias
    return None, None


def _channel_axis(attrs) -> int:
    return str(attrs.out_layout or attrs.data_layout).index("C")


def _is_per_channel(bias: np.ndarray, axis: int, rank: int) -> bool:
    """A scalar, or extent 1 everywhere but on the channel axis."""
    shape = (1,) * (rank - bias.ndim) + bias.shape
    return len(shape) == rank and all(extent == 1 for i, extent in enumerate(shape) if i != axis)


def _scaled(weight: np.ndarray, scale: np.ndarray, conv) -> np.ndarray:
    """Multiply every output channel's weights by its scale."""
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
