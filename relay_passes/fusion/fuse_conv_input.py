"""Change a convolution's input into its layout while the convolution pads it.

before: ``s = multiply(x, scale); t = permute_dims(s); y = conv2d(t, w, padding=1)``
after:  one kernel: the copy that padding makes anyway reads ``x``, scales it and
        writes channels last

Takes the transpose and the elementwise operators before it, where nothing else
reads them; proposed with and without the convolution's own epilogue.  Without
padding there is no copy, and each window would read across the old layout again.

Pays at the input of a network, whose layout is the caller's: two passes over the
image less.  Can lose where the padded rows are staged for each block of channels
again, which makes the strided reads as often.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import relax

from relay_passes.fusion.elementwise import is_elementwise
from relay_passes.fusion.fuse_elementwise_chain import FuseElementwiseChain
from relay_passes.fusion.groups import producer_candidates, producer_refusal, same_block
from relay_passes.fusion.grow_epilogue import GrowEpilogue
from tvmpass.core.decision import RefusalKind
from tvmpass.core.legality import CROSSES_DATAFLOW_BLOCK, ESCAPES
from tvmpass.core.rule import ProposalRule
from tvmpass.core.site import FunctionView, Site, op_name, same_shape, shape_of

NO_PADDING = RefusalKind("no-padding", "{conv} does not pad its input, which would be read across the layout")

READERS = frozenset(f"relax.nn.conv{rank}d" for rank in (1, 2, 3))


@dataclass(frozen=True)
class FuseConvInput(ProposalRule):
    """Change a convolution's input into its layout while the convolution pads it."""

    max_length: int = 16
    """Elementwise operators before the transpose, at most."""

    refusals: ClassVar = (NO_PADDING, ESCAPES, CROSSES_DATAFLOW_BLOCK)

    def match(self, view):
        """Yield every convolution whose input is a transpose."""
        for var, value in view.bindings.items():
            if op_name(value) not in READERS or var in view.match_casts or shape_of(var) is None:
                continue
            data = value.args[0]
            if not isinstance(data, relax.Var) or op_name(view.bindings.get(data)) != "relax.permute_dims":
                continue
            if data in view.match_casts:
                continue
            before = self._before(view, data)
            yield Site.make(self, view, var, {*before, data, var}, {"conv": var, "data": data}, before=before)

    def check(self, site):
        if not any(int(amount) for amount in site.view.bindings[site.root].attrs.padding):
            return NO_PADDING(conv=site.root.name)
        return producer_refusal(site)

    def propose(self, site):
        producers = (*site.data["before"], site["data"])
        return producer_candidates(site, producers, GrowEpilogue().prefixes(site.view, site.root))

    def _before(self, view: FunctionView, data) -> tuple:
        """Return the elementwise operators that only the transpose reads, in program order."""
        last = view.bindings[data].args[0]
        if not isinstance(last, relax.Var) or not is_elementwise(view, last):
            return ()
        if not same_block(view, last, data) or view.escapes(last, {last: None, data: None}):
            return ()
        shape = shape_of(last)
        chain = FuseElementwiseChain(max_length=self.max_length)
        return chain.tree(view, last, lambda var: same_shape(shape_of(var), shape))
