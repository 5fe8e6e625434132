"""Refusal kinds that several rules share; each code has one meaning everywhere."""

from __future__ import annotations

from .decision import RefusalKind

ESCAPES = RefusalKind("escapes", "{value} is also read by {readers}")
"""A value that the rewrite would recompute or lose is read outside the match."""

DTYPE_MISMATCH = RefusalKind("dtype-mismatch", "{value} is {found}, expected {expected}")
"""An operand or result has a dtype for which the rewrite is not proved."""

SHAPE_MISMATCH = RefusalKind("shape-mismatch", "{value} has shape {found}, expected {expected}")
"""Shapes are not what the rewrite needs, or cannot be proved to be."""

NOT_CONSTANT = RefusalKind("not-constant", "{value} is not a constant")
"""A value must be known when the model is built, and is not."""

UNKNOWN_SHAPE = RefusalKind("unknown-shape", "the shape of {value} is not known when the model is built")
"""Not even symbolic dims are known."""

SYMBOLIC_SHAPE = RefusalKind("symbolic-shape", "{value} has dims known only at run time: {found}")
"""Dims are symbolic where the rewrite needs numbers."""

UNSUPPORTED_LAYOUT = RefusalKind("unsupported-layout", "{value} has layout {found}, expected {expected}")

CROSSES_DATAFLOW_BLOCK = RefusalKind(
    "crosses-dataflow-block", "{value} lies in another dataflow block than {other}"
)
"""A value of one dataflow block cannot be read or taken from another."""

IMPURE = RefusalKind("impure", "{operator} has effects or may give another value each time")


def shown(shape) -> list:
    """Return a shape as a JSON-able list: ints stay, symbolic dims become text."""
    return [] if shape is None else [d if isinstance(d, int) else str(d) for d in shape]
