"""How Relax operators become TIR where stock TVM's way is wrong, unsafe or slow.

The map is given to `relax.transform.LegalizeOps`; operators that are not in it
keep TVM's own legalisation.  It fixes the meaning that every rule, recipe and
check of tvmpass relies on: maximum, minimum, relu, sign, clip, max and min
reductions, max pooling, argmax and argmin propagate NaN as numpy does; integer division
never traps; a reduction over an axis of length 0 gives its identity; no index
leaves its array.
"""

from __future__ import annotations

from tvm import ir

from tvmpass.core.options import Options

from .legalize_elementwise import Legalize, activations, comparisons, nan_operators, safe_operators
from .legalize_index import indexing
from .legalize_norm import normalisations
from .legalize_pool import poolings
from .legalize_reduce import reductions
from .legalize_scan import scans


def stock(operator: str) -> Legalize:
    """Return TVM's own legalisation of an operator."""
    return ir.Op.get(operator).get_attr("FLegalize")


def legalize_map(options: Options, target) -> dict[str, Legalize]:
    """Return the legalisations for `relax.transform.LegalizeOps`.

    With ``options.fast_math`` the NaN forms are dropped: a NaN may then be lost
    in a maximum, minimum or relu.
    """
    made = {
        **safe_operators(stock),
        **comparisons(stock, nan=not options.fast_math),
        **activations(),
        **reductions(nan=not options.fast_math),
        **poolings(nan=not options.fast_math),
        **normalisations(),
        **indexing(stock),
        **scans(cuda=target is not None and target.kind.name == "cuda"),
    }
    if not options.fast_math:
        made.update(nan_operators(stock))
    return {name: _or_stock(name, legalize) for name, legalize in made.items()}


def _or_stock(name: str, legalize: Legalize) -> Legalize:
    """Fall back to TVM's own where a legalisation returns None: it has nothing better."""

    def chosen(bb, call):
        made = legalize(bb, call)
        return stock(name)(bb, call) if made is None else made

    return chosen
