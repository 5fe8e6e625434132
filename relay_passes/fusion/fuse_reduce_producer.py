"""Compute what a reduction, softmax or norm reads while it is being reduced.

before: ``s = multiply(x, x); y = sum(s, axis=1)``      after: one kernel

Takes the elementwise operators that end in the data operand and that nothing
else reads; proposed with and without the reduction's own epilogue.

Pays for a reduction, which reads its operand once.  A softmax or norm reads it
several times and computes the producers as often: cheap ones (a scale, a mask)
pay, an expensive curve need not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from relay_passes.fusion.elementwise import is_elementwise
from relay_passes.fusion.fuse_elementwise_chain import FuseElementwiseChain
from relay_passes.fusion.groups import producer_candidates, producer_refusal
from relay_passes.fusion.grow_epilogue import GrowEpilogue
from tvmpass.core.legality import CROSSES_DATAFLOW_BLOCK, ESCAPES
from tvmpass.core.rule import ProposalRule
from tvmpass.core.site import Site, op_name, same_shape, shape_of

READERS = frozenset(
    f"relax.{n}"
    for n in (
        "sum",
        "mean",
        "max",
        "min",
        "prod",
        "argmax",
        "argmin",
        "nn.softmax",
        "nn.log_softmax",
        "nn.layer_norm",
        "nn.rms_norm",
    )
)


@dataclass(frozen=True)
class FuseReduceProducer(ProposalRule):
    """Compute what a reduction, softmax or norm reads while it is being reduced."""

    max_length: int = 16
    """Producers in a group, at most."""

    refusals: ClassVar = (ESCAPES, CROSSES_DATAFLOW_BLOCK)

    def match(self, view):
        """Yield every reduction whose data operand an elementwise operator makes."""
        chain = FuseElementwiseChain(max_length=self.max_length)
        for var, value in view.bindings.items():
            if op_name(value) not in READERS or var in view.match_casts or shape_of(var) is None:
                continue
            data = value.args[0]
            if not is_elementwise(view, data):
                continue
            tree = chain.tree(view, data, partial(_has_shape, shape_of(data)))
            yield Site.make(self, view, var, {*tree, var}, {"reduction": var, "data": data}, tree=tree)

    def check(self, site):
        return producer_refusal(site)

    def propose(self, site):
        return producer_candidates(site, site.data["tree"], GrowEpilogue().prefixes(site.view, site.root))


def _has_shape(shape, var) -> bool:
    return same_shape(shape_of(var), shape)
