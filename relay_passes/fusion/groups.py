"""Describe a group of bindings: its name, its identity, its candidate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tvmpass.core.decision import Refusal
from tvmpass.core.legality import CROSSES_DATAFLOW_BLOCK, ESCAPES
from tvmpass.core.site import Candidate, FunctionView, Site, op_name

_NAMED_OPERATORS = 4
"""Operators spelled out in a kernel's name; the identity lists them all."""


def short(operator: str) -> str:
    """Return ``conv2d`` for ``relax.nn.conv2d``."""
    return operator.rsplit(".", 1)[-1]


def layout_of(call) -> str:
    """Return the layouts of a convolution or pooling (``NHWC/HWIO``), else nothing."""
    attrs = call.attrs
    names = [str(getattr(attrs, n)) for n in ("data_layout", "kernel_layout", "layout") if hasattr(attrs, n)]
    return "/".join(names)


def candidate(site: Site, anchor, bindings: Sequence, producers: int = 0) -> Candidate:
    """Make a candidate of ``bindings`` in program order.

    The first ``producers`` of them come before the anchor; ``anchor`` is None
    for a group that is elementwise throughout.
    """
    view = site.view
    operators = [short(op_name(view.bindings[v])) for v in bindings]
    before = operators[:producers]
    if anchor is None:
        name, layout, after = "", "", operators
    else:
        name, layout = op_name(view.bindings[anchor]), layout_of(view.bindings[anchor])
        after = operators[producers + 1 :]
    identity = {"rule": site.rule.name, "anchor": name, "layout": layout, "epilogue": after}
    if before:
        identity["prologue"] = before
    listed = operators if len(operators) <= _NAMED_OPERATORS else [*operators[:_NAMED_OPERATORS], "more"]
    return Candidate(site, tuple(bindings), " + ".join(operators), "fused_" + "_".join(listed), identity)


def producer_refusal(site: Site) -> Refusal | None:
    """Return why the root cannot take in what makes its ``data``, else None."""
    view, data = site.view, site["data"]
    if not same_block(view, data, site.root):
        return CROSSES_DATAFLOW_BLOCK(value=data.name, other=site.root.name)
    if site.escapes("data"):
        return ESCAPES(value=data.name, readers=site.readers("data"))
    return None


def producer_candidates(site: Site, producers: Sequence, epilogues: Iterable[Sequence]) -> list[Candidate]:
    """Propose the root with its producers: with its longest epilogue, where it has one, and without.

    ``producers`` and each of ``epilogues`` are bindings in program order; an epilogue
    begins with the root.  One that holds a producer is left out.
    """
    found = [(*producers, site.root)]
    apart = [epilogue for epilogue in epilogues if not set(producers) & set(epilogue)]
    if apart:
        found.insert(0, tuple(sorted({*producers, *apart[-1]}, key=site.view.order.__getitem__)))
    return [candidate(site, site.root, members, producers=len(producers)) for members in found]


def same_block(view: FunctionView, a, b) -> bool:
    """Return True where both variables are bound in one dataflow block."""
    return view.block_of.get(a) == view.block_of.get(b) and view.in_dataflow(a)
