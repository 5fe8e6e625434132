"""The converter tables, one module per family of operators; `TABLE` is all of them."""

from __future__ import annotations

from ..table import merged
from . import (
    activation,
    conv,
    create,
    dense,
    einsum,
    elementwise,
    gradients,
    image,
    index,
    norm,
    order,
    pad,
    pool,
    qnn,
    random,
    reduce,
    signal,
    sparse,
    structural,
    transform,
    vision,
)

FAMILIES = (
    structural,
    elementwise,
    reduce,
    create,
    random,
    sparse,
    einsum,
    signal,
    transform,
    index,
    order,
    image,
    conv,
    dense,
    pool,
    gradients,
    norm,
    activation,
    pad,
    vision,
    qnn,
)

TABLE = merged([family.TABLE for family in FAMILIES])
"""Every operator that can be converted, by Relay name."""
