"""Carry the names of a model's source nodes on Relax expressions.

The name of every source node (an ONNX node, a Relay line, a torch FX node) that
a value came from is kept in the ``span`` of its expression.  TVM's own mutators
copy spans, so the names survive passes that tvmpass does not own.
"""

from __future__ import annotations

from collections.abc import Iterable

import tvm
from tvm import relax

_SEPARATOR = "\n"


def make_span(names: Iterable[str]):
    """Return a span that carries ``names``, or None when there are none.

    Names are kept in first-seen order and once each.
    """
    unique = list(dict.fromkeys(name for name in names if name))
    if not unique:
        return None
    return tvm.ir.Span(tvm.ir.SourceName(_SEPARATOR.join(unique)), 0, 0, 0, 0)


def origin(expr) -> tuple[str, ...]:
    """Return the source node names that ``expr`` carries, possibly none."""
    span = getattr(expr, "span", None)
    if span is None:
        return ()
    return tuple(name for name in span.source_name.name.split(_SEPARATOR) if name)


def with_origin(expr, names: Iterable[str]):
    """Return ``expr`` carrying ``names``; only calls and tuple items are copied.

    Other expressions (constants, variables) are returned unchanged: they have
    no site of their own.
    """
    span = make_span(names)
    if span is None:
        return expr
    if isinstance(expr, relax.Call):
        return relax.Call(expr.op, list(expr.args), expr.attrs, list(expr.ty_args), span)
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(expr.tuple_value, expr.index, span)
    return expr
