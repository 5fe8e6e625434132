"""Name an RMS norm that an exporter spelled out.

before: ``x / sqrt(mean(x * x) + eps) * scale``      after: ``nn.rms_norm(x, scale)``

Written as a layer norm is, but nothing is subtracted.  Pays: one kernel that
keeps a row in cache in place of up to six.  Results differ by rounding only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import relax

from relay_passes.operands import call_of
from relay_passes.recognize.normalization import affine_after, parameter, ratio_of
from relay_passes.recognize.recognize_layer_norm import AXES_NOT_LAST
from tvmpass.core.legality import ESCAPES, SYMBOLIC_SHAPE, shown
from tvmpass.core.rule import SimplifyRule
from tvmpass.core.site import Site, dtype_of, shape_of


@dataclass(frozen=True)
class RecognizeRmsNorm(SimplifyRule):
    """Name an RMS norm that an exporter spelled out."""

    reassociates: ClassVar = True

    level: ClassVar = 3
    refusals: ClassVar = (AXES_NOT_LAST, ESCAPES, SYMBOLIC_SHAPE)

    def match(self, view):
        """Yield every ratio of x and its own root mean square that is no layer norm."""
        for var in view.bindings:
            ratio = ratio_of(view, var)
            if (
                ratio is None
                or not ratio.numerator.same_as(ratio.squared)
                or _is_centred(view, ratio.numerator)
            ):
                continue
            affine = affine_after(view, var, ratio.axes, shift=False)
            bound = {"x": ratio.numerator, "mean": ratio.mean, "normalized": var}
            yield Site.make(
                self, view, affine.root, ratio.taken | affine.taken, bound, ratio=ratio, affine=affine
            )

    def check(self, site):
        axes, rank = site.data["ratio"].axes, site["x"].ty.ndim
        if axes != tuple(range(rank - len(axes), rank)):
            return AXES_NOT_LAST(found=list(axes), rank=rank)
        if site.escapes("mean"):
            return ESCAPES(value=site.name("mean"), readers=site.readers("mean"))
        dims = shape_of(site["x"])[-len(axes) :]
        if not all(isinstance(d, int) for d in dims):
            return SYMBOLIC_SHAPE(value=site.name("x"), found=shown(dims))
        return None

    def rewrite(self, site):
        ratio, x = site.data["ratio"], site["x"]
        dims = shape_of(x)[-len(ratio.axes) :]
        scale = parameter(site.view, site.data["affine"].scale, 1.0, dims, dtype_of(x))
        return relax.op.nn.rms_norm(x, scale, axes=[a - x.ty.ndim for a in ratio.axes], epsilon=ratio.epsilon)


def _is_centred(view, var) -> bool:
    subtract = call_of(view, var, "relax.subtract")
    return subtract is not None and call_of(view, subtract.args[1], "relax.mean") is not None
