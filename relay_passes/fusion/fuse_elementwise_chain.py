"""Compute a chain or tree of elementwise operators in one kernel.

before: ``a = exp(x); b = add(a, y); c = multiply(b, a)``      after: one kernel

From the last operator the group grows backwards over producers that nothing
outside reads.  Up to four ways to cut it are proposed: all of it; only the
operators of the last one's shape, so that what is broadcast into it is computed
once, not once per element; and both of these without what an anchor (see
grow-epilogue) could take.

Pays where the values passed on are large: a pass over memory less for each.
Loses where an expensive small producer is broadcast into a large consumer and
is computed again for every element; that is what the cut is for.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from tvm import relax

from relay_passes.fusion.elementwise import is_elementwise
from relay_passes.fusion.groups import candidate, same_block
from relay_passes.fusion.grow_epilogue import ANCHORS, GrowEpilogue
from tvmpass.core.legality import CROSSES_DATAFLOW_BLOCK, ESCAPES
from tvmpass.core.rule import ProposalRule
from tvmpass.core.site import FunctionView, Site, op_name, operands, same_shape, shape_of


@dataclass(frozen=True)
class FuseElementwiseChain(ProposalRule):
    """Compute a chain or tree of elementwise operators in one kernel."""

    max_length: int = 32
    """Operators in a group, at most."""

    refusals: ClassVar = (ESCAPES, CROSSES_DATAFLOW_BLOCK)

    def match(self, view):
        """Yield the last operator of every tree, then of each part broadcast into one."""
        anchored = _taken_by_anchors(view)
        taken: set = set()
        parts: list = []
        for var in reversed(view.bindings):
            if not is_elementwise(view, var) or var in taken:
                continue
            tree = self.tree(view, var)
            taken.update(tree)
            parts += [v for v in tree if not v.same_as(var) and _is_broadcast(view, v)]
            yield from self._site(view, var, tree, anchored)
        for var in parts:
            tree = self.tree(view, var)
            if len(tree) > 1:
                yield from self._site(view, var, tree, anchored)

    def check(self, site):
        if site.data["cuts"]:
            return None
        view, root = site.view, site.root
        producer = next(p for p in _producers(view, root))
        if not same_block(view, producer, root):
            return CROSSES_DATAFLOW_BLOCK(value=producer.name, other=root.name)
        readers = [view.op(u) or "other" for u in view.users[producer] if not u.same_as(root)]
        return ESCAPES(value=producer.name, readers=readers + ["output"] * (producer in view.outputs))

    def propose(self, site):
        return [candidate(site, None, cut) for cut in site.data["cuts"]]

    def tree(self, view: FunctionView, root, may_take: Callable = lambda var: True) -> tuple:
        """Return the largest group that ends in ``root``, in program order."""
        members: dict = {root: None}
        queued: set = set()
        waiting: list[tuple[int, relax.Var]] = []

        def push_producers(var) -> None:
            for producer in _producers(view, var):
                if producer not in queued:
                    queued.add(producer)
                    heapq.heappush(waiting, (-view.order[producer], producer))

        push_producers(root)
        # Latest first: when a producer comes up, all its readers have been decided.
        while waiting and len(members) < self.max_length:
            _, var = heapq.heappop(waiting)
            if may_take(var) and same_block(view, var, root) and not view.escapes(var, members):
                members[var] = None
                push_producers(var)
        return tuple(sorted(members, key=lambda v: view.order[v]))

    def _site(self, view, root, tree, anchored):
        """Yield the site of ``root`` unless no producer of it is elementwise."""
        if not _producers(view, root):
            return
        shape = shape_of(root)
        cuts: dict[tuple, None] = {}
        for may_take in (
            lambda v: True,
            lambda v: same_shape(shape_of(v), shape),
            lambda v: v not in anchored,
            lambda v: v not in anchored and same_shape(shape_of(v), shape),
        ):
            cut = self.tree(view, root, may_take)
            if len(cut) > 1:
                cuts[cut] = None
        ordered = sorted(cuts, key=len, reverse=True)
        yield Site.make(self, view, root, tree, {"root": root}, cuts=ordered)


def _producers(view, var) -> list:
    found = {
        p: None for p in operands(view.bindings[var]) if isinstance(p, relax.Var) and is_elementwise(view, p)
    }
    return list(found)


def _is_broadcast(view, var) -> bool:
    """Return True where a reader of ``var`` makes a larger value of it."""
    return any(not same_shape(shape_of(user), shape_of(var)) for user in view.users.get(var, ()))


def _taken_by_anchors(view) -> frozenset:
    """Return what the longest epilogues would take."""
    grow = GrowEpilogue()
    taken: set = set()
    for var, value in view.bindings.items():
        if op_name(value) in ANCHORS and var not in view.match_casts:
            prefixes = list(grow.prefixes(view, var))
            taken.update(prefixes[-1] if prefixes else ())
    return frozenset(taken)
