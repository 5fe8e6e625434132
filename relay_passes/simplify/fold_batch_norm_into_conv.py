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

from relay_passes.operands import call_of
from relay_passes.simplify import batch_norm as bn
from relay_passes.simplify.convolution import (
    CONVOLUTIONS,
    NOT_FINITE,
    channel_axis,
    check_finite,
    conv_and_bias,
    is_per_channel,
    scaled,
    scaled_convolution,
)
from tvmpass.core.decision import RefusalKind
from tvmpass.core.legality import DTYPE_MISMATCH, ESCAPES, NOT_CONSTANT, SHAPE_MISMATCH, shown
from tvmpass.core.rule import SimplifyRule
from tvmpass.core.site import Site, dtype_of

AXIS_MISMATCH = RefusalKind(
    "axis-mismatch", "batch norm over axis {found}, the convolution's channels are {expected}"
)


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
                added, bias = conv_and_bias(view, view.value(data))
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
        channels = channel_axis(site.attrs("conv"))
        if axis % rank != channels:
            return AXIS_MISMATCH(found=axis, expected=channels)
        if "bias" in site.bound and not is_per_channel(site.constant("bias"), channels, rank):
            return SHAPE_MISMATCH(
                value="the bias", found=shown(site.shape("bias")), expected="one value per channel"
            )
        return check_finite(site, *self._folded(site))

    def rewrite(self, site):
        return scaled_convolution(site, *self._folded(site))

    @staticmethod
    def _folded(site):
        """Return the new weight, and the bias shaped to broadcast over the output."""
        if "folded" not in site.data:
            scale, shift = bn.scale_and_shift(site)
            if "bias" in site.bound:
                shift = shift + site.constant("bias").astype("float64").reshape(-1) * scale
            site.data["folded"] = scaled(site, scale, shift)
        return site.data["folded"]
