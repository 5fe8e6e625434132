"""Name a layer norm that an exporter spelled out.

before: ``d = x - mean(x); d / sqrt(mean(d * d) + eps) * scale + shift``
after:  ``nn.layer_norm(x, scale, shift)``

The square may be a power, a product or a square, the division a product with
rsqrt, and scale and shift may be missing.  Pays: one kernel that keeps a row in
cache in place of up to nine.  Results differ by rounding only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import relax

from relay_passes.operands import axes_of, call_of
from relay_passes.recognize.normalization import affine_after, parameter, ratio_of
from tvmpass.core.decision import RefusalKind
from tvmpass.core.legality import ESCAPES, SYMBOLIC_SHAPE, shown
from tvmpass.core.rule import SimplifyRule
from tvmpass.core.site import Site, dtype_of, shape_of

AXES_NOT_LAST = RefusalKind(
    "axes-not-last", "the norm runs over axes {found} of {rank}, not over the last ones"
)
AXES_DIFFER = RefusalKind("axes-differ", "the mean runs over axes {mean}, the variance over {variance}")


@dataclass(frozen=True)
class RecognizeLayerNorm(SimplifyRule):
    """Name a layer norm that an exporter spelled out."""

    reassociates: ClassVar = True

    level: ClassVar = 3
    refusals: ClassVar = (AXES_DIFFER, AXES_NOT_LAST, ESCAPES, SYMBOLIC_SHAPE)

    def match(self, view):
        for var in view.bindings:
            ratio = ratio_of(view, var)
            if ratio is None or not ratio.numerator.same_as(ratio.squared):
                continue
            centred = call_of(view, ratio.numerator, "relax.subtract")
            mean = call_of(view, centred.args[1], "relax.mean") if centred is not None else None
            if mean is None or not mean.attrs.keepdims or not mean.args[0].same_as(centred.args[0]):
                continue
            affine = affine_after(view, var, ratio.axes)
            bound = {
                "x": centred.args[0],
                "centred": ratio.numerator,
                "mean": centred.args[1],
                "variance": ratio.mean,
                "normalized": var,
            }
            taken = ratio.taken | affine.taken | {ratio.numerator, centred.args[1]}
            yield Site.make(self, view, affine.root, taken, bound, ratio=ratio, affine=affine)

    def check(self, site):
        ratio, rank = site.data["ratio"], site["x"].ty.ndim
        axes = axes_of(site.attrs("mean").axis, rank)
        if axes != ratio.axes:
            return AXES_DIFFER(mean=list(axes), variance=list(ratio.axes))
        if axes != tuple(range(rank - len(axes), rank)):
            return AXES_NOT_LAST(found=list(axes), rank=rank)
        for name in ("centred", "mean", "variance"):
            if site.escapes(name):
                return ESCAPES(value=site.name(name), readers=site.readers(name))
        dims = shape_of(site["x"])[-len(axes) :]
        if not all(isinstance(d, int) for d in dims):
            return SYMBOLIC_SHAPE(value=site.name("x"), found=shown(dims))
        return None

    def rewrite(self, site):
        ratio, affine, x = site.data["ratio"], site.data["affine"], site["x"]
        dims = shape_of(x)[-len(ratio.axes) :]
        scale = parameter(site.view, affine.scale, 1.0, dims, dtype_of(x))
        shift = parameter(site.view, affine.shift, 0.0, dims, dtype_of(x))
        axes = [a - x.ty.ndim for a in ratio.axes]
        return relax.op.nn.layer_norm(x, scale, shift, axes=axes, epsilon=ratio.epsilon)
