"""Compute a transposed convolution whose windows do not overlap as a matmul.

before: ``conv2d_transpose(x, w[ci, co, k, k], strides=k)``, then bias and activation
after:  a 1x1 convolution to k*k*co channels, bias and activation on them, and
        one copy that puts each pixel's k*k block in place (depth to space)

Needs stride = kernel, no padding, no dilation, no groups: then every output
pixel has exactly one input pixel.  What follows and looks at one channel only
(a bias, a scale, an activation) is moved before the copy, where it joins the
convolution.  The work is done in NHWC; permutes at both ends cancel with those
of a network that runs in NHWC.

Pays: the operator's own form is a padded, dilated convolution that multiplies
mostly by zero.  The same products are summed over the same channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tvm import relax

from relay_passes.fusion.elementwise import is_elementwise
from relay_passes.operands import array_of, constant
from tvmpass.core.decision import RefusalKind
from tvmpass.core.legality import NOT_CONSTANT, UNSUPPORTED_LAYOUT
from tvmpass.core.rule import SimplifyRule
from tvmpass.core.site import Site, dtype_of, operands, same_shape, shape_of

WINDOWS_OVERLAP = RefusalKind("windows-overlap", "strides {strides} differ from the kernel {kernel}")
PADDED = RefusalKind(
    "padded", "padding {padding}, output padding {output_padding}, dilation {dilation} are not plain"
)
GROUPED = RefusalKind("grouped", "the convolution has {groups} groups")

EXPECTED = ["NCHW", "IOHW", "NCHW"]
_TO_NHWC, _TO_NCHW = [0, 2, 3, 1], [0, 3, 1, 2]


@dataclass(frozen=True)
class RewriteConvTranspose(SimplifyRule):
    """Compute a transposed convolution whose windows do not overlap as a matmul."""

    reassociates: ClassVar = True

    level: ClassVar = 2
    refusals: ClassVar = (NOT_CONSTANT, UNSUPPORTED_LAYOUT, GROUPED, WINDOWS_OVERLAP, PADDED)

    def match(self, view):
        """Yield every 2-D transposed convolution with what follows channel by channel."""
        for var in view.bindings:
            if view.op(var) == "relax.nn.conv2d_transpose" and var not in view.match_casts:
                tail = _tail(view, var)
                bound = {"conv": var, "x": view.bindings[var].args[0], "weight": view.bindings[var].args[1]}
                yield Site.make(self, view, tail[-1] if tail else var, {var, *tail}, bound, tail=tail)

    def check(self, site):
        attrs, weight = site.attrs("conv"), site.constant("weight")
        if weight is None:
            return NOT_CONSTANT(value=site.name("weight"))
        layouts = [
            str(attrs.data_layout),
            str(attrs.kernel_layout),
            str(attrs.out_layout or attrs.data_layout),
        ]
        if layouts != EXPECTED:
            return UNSUPPORTED_LAYOUT(value=site.name("conv"), found=layouts, expected=EXPECTED)
        if int(attrs.groups) != 1:
            return GROUPED(groups=int(attrs.groups))
        strides, kernel = _ints(attrs.strides), list(weight.shape[2:])
        if strides != kernel:
            return WINDOWS_OVERLAP(strides=strides, kernel=kernel)
        padding, extra, dilation = (_ints(a) for a in (attrs.padding, attrs.output_padding, attrs.dilation))
        if any(padding) or any(extra) or any(d != 1 for d in dilation):
            return PADDED(padding=padding, output_padding=extra, dilation=dilation)
        return None

    def rewrite(self, site):
        view, weight, attrs = site.view, site.constant("weight"), site.attrs("conv")
        ci, co, kh, kw = weight.shape
        kernel = constant(weight.transpose(0, 2, 3, 1).reshape(1, 1, ci, kh * kw * co))
        n, _, h, w = shape_of(site["x"])
        value = relax.op.nn.conv2d(
            relax.op.permute_dims(site["x"], _TO_NHWC),
            kernel,
            data_layout="NHWC",
            kernel_layout="HWIO",
            out_layout="NHWC",
            out_dtype=attrs.out_dtype,
        )
        made = {site["conv"]: value}
        for var in site.data["tail"]:
            call = view.bindings[var]
            args = [made[a] if a in made else _per_block(view, a, co, kh * kw) for a in call.args]
            made[var] = relax.Call(call.op, args, call.attrs, list(call.ty_args))
        blocks = relax.op.reshape(made[site.root], relax.ShapeExpr([n, h, w, kh, kw, co]))
        pixels = relax.op.permute_dims(blocks, [0, 1, 3, 2, 4, 5])
        out = shape_of(site.root)
        if co == 1:  # one channel: both layouts hold the same bytes
            return relax.op.reshape(pixels, relax.ShapeExpr(list(out)))
        channels_last = relax.op.reshape(pixels, relax.ShapeExpr([out[0], out[2], out[3], out[1]]))
        return relax.op.permute_dims(channels_last, _TO_NCHW)


def _tail(view, conv) -> list:
    """Return the elementwise operators after ``conv`` whose other operands are per channel."""
    tail, last = [], conv
    while last not in view.outputs and len(view.users.get(last, ())) == 1:
        user = view.users[last][0]
        if not is_elementwise(view, user) or not same_shape(shape_of(user), shape_of(conv)):
            break
        if not all(a.same_as(last) or _is_per_channel(view, a) for a in operands(view.bindings[user])):
            break
        if hasattr(view.bindings[user].attrs, "axis") or dtype_of(user) != dtype_of(conv):
            break
        tail.append(user)
        last = user
    return tail


def _is_per_channel(view, expr) -> bool:
    array = array_of(view, expr)
    if array is None:
        return False
    if array.size == 1:
        return True
    padded = (1,) * (4 - array.ndim) + array.shape
    return len(padded) == 4 and all(extent == 1 for i, extent in enumerate(padded) if i != 1)


def _per_block(view, expr, channels: int, pixels: int):
    """Repeat a per-channel constant for each pixel of a block, channels innermost."""
    array = array_of(view, expr).reshape(-1)
    if array.size == 1:
        return constant(array.reshape(()))
    return constant(np.tile(array, pixels).reshape(1, 1, 1, pixels * channels))


def _ints(values) -> list[int]:
    return [int(v) for v in values]
