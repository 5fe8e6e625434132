"""Fold a constant scale and shift into the convolution before them.

before: ``(conv(x, w) [+ b]) * s [+ t]`` with constants b, s and t
after:  ``conv(x, w * s) + (b * s + t)``

Always pays: two passes over the output become the bias that an epilogue takes
anyway.  Scales are one number or one per output channel.  The new weights are
computed in float64 and rounded once, so results differ by rounding of the
weights only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relay_passes.operands import array_of, call_of, either_order
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
from tvmpass.core.legality import DTYPE_MISMATCH, ESCAPES, NOT_CONSTANT, SHAPE_MISMATCH, shown
from tvmpass.core.rule import SimplifyRule
from tvmpass.core.site import Site, same_shape, shape_of


@dataclass(frozen=True)
class FoldScaleIntoConv(SimplifyRule):
    """Fold a constant scale and shift into the convolution before them."""

    refusals: ClassVar = (ESCAPES, NOT_CONSTANT, DTYPE_MISMATCH, SHAPE_MISMATCH, NOT_FINITE)

    def match(self, view):
        """Yield every product of a convolution (or one plus a constant) and a constant."""
        for var, value in view.bindings.items():
            if call_of(view, value, "relax.multiply") is None or var in view.match_casts:
                continue
            for data, scale in either_order(value):
                if array_of(view, scale) is None:
                    continue
                bound, conv = {"scale": scale, "scaled": var}, data
                if call_of(view, data, "relax.add") is not None:
                    conv, bias = conv_and_bias(view, view.value(data))
                    bound |= {"added": data, "bias": bias}
                if conv is None or call_of(view, conv, *CONVOLUTIONS) is None:
                    continue
                bound |= {"conv": conv, "weight": view.bindings[conv].args[1]}
                yield self._with_shift(view, var, bound)

    def _with_shift(self, view, scaled_var, bound) -> Site:
        """Make the site, with the constant that is added next if there is one."""
        root, users = scaled_var, view.users.get(scaled_var, ())
        if (
            len(users) == 1
            and scaled_var not in view.outputs
            and call_of(view, users[0], "relax.add") is not None
        ):
            axis, rank = channel_axis(view.bindings[bound["conv"]].attrs), scaled_var.ty.ndim
            for data, shift in either_order(view.bindings[users[0]]):
                array = array_of(view, shift)
                if data.same_as(scaled_var) and array is not None and is_per_channel(array, axis, rank):
                    root, bound = users[0], bound | {"shift": shift}
        taken = {root, scaled_var, bound["conv"], bound.get("added", root)}
        return Site.make(self, view, root, taken, bound)

    def check(self, site):
        for name in ("conv", "added"):
            if name in site.bound and site.escapes(name):
                return ESCAPES(value=site.name(name), readers=site.readers(name))
        if site.constant("weight") is None:
            return NOT_CONSTANT(value=site.name("weight"))
        if "float" not in site.dtype("weight"):
            return DTYPE_MISMATCH(
                value=site.name("weight"), found=site.dtype("weight"), expected="a float dtype"
            )
        axis, rank = channel_axis(site.attrs("conv")), site["conv"].ty.ndim
        for name in ("scale", "bias"):
            if name in site.bound and not is_per_channel(site.constant(name), axis, rank):
                return SHAPE_MISMATCH(
                    value=f"the {name}", found=shown(site.shape(name)), expected="one value per channel"
                )
        if not same_shape(shape_of(site.root), shape_of(site["conv"])):
            return SHAPE_MISMATCH(
                value=site.name("scaled"),
                found=shown(shape_of(site.root)),
                expected=shown(site.shape("conv")),
            )
        return check_finite(site, *self._folded(site))

    def rewrite(self, site):
        return scaled_convolution(site, *self._folded(site))

    @staticmethod
    def _folded(site) -> tuple[np.ndarray, np.ndarray]:
        if "folded" not in site.data:
            scale = site.constant("scale").astype("float64").reshape(-1)
            bias, shift = (
                site.constant(n).astype("float64").reshape(-1) if n in site.bound else np.zeros(1)
                for n in ("bias", "shift")
            )
            site.data["folded"] = scaled(site, scale, bias * scale + shift)
        return site.data["folded"]
