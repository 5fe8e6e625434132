"""Run 2-D convolutions with channels last.

before: ``conv2d(x, w)`` in NCHW/OIHW, and so on through the network
after:  the same in NHWC/HWIO, with permutes where a region of such work begins
        and ends, and weights permuted when the model is built

Pays on a CPU: the innermost loop runs over channels, which are many, contiguous
and the same for every kernel size, so that one vector schedule serves all
convolutions.  Transposed convolutions stay as they are, because TVM cannot lower
their NHWC form; `RewriteConvTranspose` turns most of them into convolutions first.
Moving data is exact.  Sums run over the same products, perhaps in another order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relay_passes.layout.channels_last import to_nhwc
from relay_passes.layout.sink_transposes import SinkTransposes
from relay_passes.simplify.dead_code import DeadCode
from relay_passes.simplify.eliminate_identities import EliminateIdentities
from relay_passes.simplify.fold_constants import FoldConstants
from relay_passes.simplify.merge_reshapes import MergeReshapes
from relay_passes.simplify.merge_transposes import MergeTransposes
from relay_passes.simplify.reshape_trivial_transpose import ReshapeTrivialTranspose
from tvmpass.core.decision import ALWAYS
from tvmpass.core.engine import simplify
from tvmpass.core.legality import UNKNOWN_SHAPE, UNSUPPORTED_LAYOUT
from tvmpass.core.rule import ProposalRule
from tvmpass.core.site import FunctionView, Site, op_name, shape_of


@dataclass(frozen=True)
class PreferNHWC(ProposalRule):
    """Run 2-D convolutions with channels last."""

    max_priced: int = 8
    """Convolutions in a function up to which the change is priced."""

    plans: ClassVar = "layout"
    refusals: ClassVar = (UNSUPPORTED_LAYOUT, UNKNOWN_SHAPE)

    def match(self, view):
        """Yield every 2-D convolution that is not channels-last yet."""
        for var, value in view.bindings.items():
            if op_name(value) == "relax.nn.conv2d" and str(value.attrs.data_layout) != "NHWC":
                yield Site.make(self, view, var, {var}, {"conv": var})

    def check(self, site):
        attrs = site.attrs("conv")
        layouts = [
            str(attrs.data_layout),
            str(attrs.kernel_layout),
            str(attrs.out_layout or attrs.data_layout),
        ]
        if layouts != ["NCHW", "OIHW", "NCHW"]:
            return UNSUPPORTED_LAYOUT(
                value=site.name("conv"), found=layouts, expected=["NCHW", "OIHW", "NCHW"]
            )
        if shape_of(site["conv"]) is None:
            return UNKNOWN_SHAPE(value=site.name("conv"))
        return None

    def plan(self, mod, function: str, job):
        """Decide for one function and return the module with the decision carried out.

        ``auto`` means no change but on a CPU, where all legal convolutions of the
        function go together: few of them if that is predicted to pay, with all
        permutes that are left; more than ``max_priced`` without asking.
        """
        view = FunctionView(mod, function)
        legal = []
        for site in job.sites.undecided(self.match(view)):
            job.sites.count(site)
            refusal = self.check(site)
            if refusal is not None:
                job.sites.decide(site, "illegal", refusal=refusal)
            else:
                legal.append(site)
        layout = job.options.layout
        if (
            not legal
            or layout not in ("NHWC", "auto")
            or (layout == "auto" and job.target.kind.name != "llvm")
        ):
            for site in legal:
                job.sites.decide(site, "unprofitable", evidence={"reason": "never", "layout": layout})
            return mod
        converted = to_nhwc(mod, function, [site.root for site in legal])
        estimate, evidence = ALWAYS, {}
        if layout == "auto" and len(legal) <= self.max_priced:
            before, after = job.pricer.apart(view), job.pricer.apart(_cleaned(converted, function))
            if before is not None and after is not None:
                estimate, evidence = after, {"parts_us": before.mean}
                if before.mean < job.options.min_speedup * after.high:
                    for site in legal:
                        job.sites.decide(
                            site, "unprofitable", estimate=after, evidence={"reason": "price", **evidence}
                        )
                    return mod
        for site in legal:
            job.sites.decide(site, "applied", estimate=estimate, evidence=evidence)
        return converted


def _cleaned(mod, function: str) -> FunctionView:
    """Return the function as it will be once weights are permuted and permutes have met."""
    rules = (
        FoldConstants(),
        MergeTransposes(),
        ReshapeTrivialTranspose(),
        EliminateIdentities(),
        MergeReshapes(),
        SinkTransposes(),
        DeadCode(),
    )
    return FunctionView(simplify(mod, rules), function)
