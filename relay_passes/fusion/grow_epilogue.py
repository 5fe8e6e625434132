"""Compute the elementwise operators that follow a kernel inside that kernel.

before: ``c = conv2d(x, w); b = add(c, bias); r = add(b, skip); y = relu(r)``
after:  one kernel; bias, residual and activation are applied while the result
        is still in registers

From every anchor (convolution, matmul, reduction, pooling, softmax, data
movement) the group grows reader by reader in program order over elementwise
operators of the anchor's own shape.  Each prefix out of which exactly one value,
the last, is read is legal, and all are proposed: the planner prices how far to
go.  Values that join from the side (bias, residual) are operands and were made
before.

Pays nearly always: a pass over memory and a launch less per operator.  It can
lose where a long epilogue needs registers that the anchor's tile wants.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from relay_passes.fusion.elementwise import is_elementwise
from relay_passes.fusion.groups import candidate, same_block
from tvmpass.core.decision import RefusalKind
from tvmpass.core.legality import CROSSES_DATAFLOW_BLOCK, ESCAPES, UNKNOWN_SHAPE, shown
from tvmpass.core.rule import ProposalRule
from tvmpass.core.site import FunctionView, Site, op_name, outputs_of, same_shape, shape_of

NO_ELEMENTWISE_READER = RefusalKind("no-elementwise-reader", "{value} is read by {readers} only")
SHAPE_CHANGES = RefusalKind(
    "shape-changes", "{value} has shape {found}, its reader {reader} makes {expected}"
)

CONTRACTIONS = ("matmul", "einsum", *(f"nn.conv{d}d{t}" for d in (1, 2, 3) for t in ("", "_transpose")))
REDUCTIONS = ("sum", "mean", "max", "min", "prod", "variance", "std", "argmax", "argmin")
POOLINGS = tuple(f"nn.{kind}_pool{d}d" for kind in ("max", "avg", "adaptive_avg") for d in (1, 2, 3))
NORMS = ("nn.softmax", "nn.log_softmax", "nn.layer_norm", "nn.rms_norm", "nn.group_norm", "nn.instance_norm")
MOVEMENTS = (
    "permute_dims",
    "broadcast_to",
    "concat",
    "strided_slice",
    "take",
    "tile",
    "repeat",
    "flip",
    "nn.pad",
    "image.resize2d",
    "gather_elements",
    "gather_nd",
)
"""Reshapes are not among them: they cost nothing by themselves, a kernel would."""

ANCHORS = frozenset(f"relax.{n}" for n in (*CONTRACTIONS, *REDUCTIONS, *POOLINGS, *NORMS, *MOVEMENTS))


@dataclass(frozen=True)
class GrowEpilogue(ProposalRule):
    """Compute the elementwise operators that follow a kernel inside that kernel."""

    max_length: int = 32
    """Operators in a group, at most."""
    max_candidates: int = 6
    """Prefixes proposed per anchor: the longest ones and the shortest."""

    refusals: ClassVar = (
        NO_ELEMENTWISE_READER,
        SHAPE_CHANGES,
        ESCAPES,
        CROSSES_DATAFLOW_BLOCK,
        UNKNOWN_SHAPE,
    )

    def match(self, view):
        """Yield every anchor, with the bindings of its longest legal group."""
        for var, value in view.bindings.items():
            if op_name(value) in ANCHORS and var not in view.match_casts:
                prefixes = list(self.prefixes(view, var))
                yield Site.make(
                    self, view, var, prefixes[-1] if prefixes else {var}, {"anchor": var}, prefixes=prefixes
                )

    def check(self, site):
        if site.data["prefixes"]:
            return None
        view, anchor = site.view, site["anchor"]
        if shape_of(anchor) is None:
            return UNKNOWN_SHAPE(value=anchor.name)
        users = view.users.get(anchor, ())
        for user in users:
            if is_elementwise(view, user) and not same_block(view, anchor, user):
                return CROSSES_DATAFLOW_BLOCK(value=user.name, other=anchor.name)
        fitting = [u for u in users if is_elementwise(view, u) and same_shape(shape_of(u), shape_of(anchor))]
        if fitting:
            return ESCAPES(value=anchor.name, readers=site.readers("anchor"))
        for user in users:
            if is_elementwise(view, user):
                return SHAPE_CHANGES(
                    value=anchor.name,
                    found=shown(shape_of(anchor)),
                    reader=view.op(user),
                    expected=shown(shape_of(user)),
                )
        return NO_ELEMENTWISE_READER(value=anchor.name, readers=site.readers("anchor"))

    def propose(self, site):
        prefixes = site.data["prefixes"][::-1]
        if len(prefixes) > self.max_candidates:
            prefixes = [*prefixes[: self.max_candidates - 1], prefixes[-1]]
        return [candidate(site, site["anchor"], members) for members in prefixes]

    def prefixes(self, view: FunctionView, anchor) -> Iterator[tuple]:
        """Yield the legal groups that start at ``anchor``, shortest first."""
        shape = shape_of(anchor)
        if shape is None or not view.in_dataflow(anchor):
            return
        members, inside, queued = [anchor], {anchor}, {anchor}
        waiting: list[tuple[int, object]] = []

        def push_readers(var) -> None:
            for user in view.users.get(var, ()):
                if user not in queued:
                    queued.add(user)
                    heapq.heappush(waiting, (view.order[user], user))

        push_readers(anchor)
        while waiting and len(members) < self.max_length:
            _, var = heapq.heappop(waiting)
            if not (
                is_elementwise(view, var)
                and same_block(view, anchor, var)
                and same_shape(shape_of(var), shape)
            ):
                continue
            members.append(var)
            inside.add(var)
            push_readers(var)
            if outputs_of(view, members) == [var]:
                yield tuple(members)
