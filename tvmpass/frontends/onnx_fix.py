"""Converters that replace those of the stock ONNX importer, by operator name.

A converter is called as ``converter(bb, inputs, attrs, opset, stock)`` with the
Relax expressions of the node's inputs (None where left out), its attributes as
Python values (strings as bytes), the opset, and the stock conversion to fall
back on.  It returns a Relax expression; what it leaves unbound is bound by the
importer.
"""

from __future__ import annotations

from functools import cache

from onnx import defs
from tvm.relax.frontend.onnx import onnx_frontend

from .onnx_fix_conv import CONVOLUTIONS
from .onnx_fix_elementwise import ELEMENTWISE
from .onnx_fix_norm import NORMALISATION
from .onnx_fix_quantized import QUANTISED
from .onnx_fix_recurrent import RECURRENT
from .onnx_fix_resize import RESIZING
from .onnx_fix_select import SELECTION
from .onnx_fix_shape import SHAPES

CONVERTERS = {
    **CONVOLUTIONS,
    **ELEMENTWISE,
    **NORMALISATION,
    **QUANTISED,
    **RECURRENT,
    **RESIZING,
    **SELECTION,
    **SHAPES,
}


@cache
def stock_operators() -> frozenset[str]:
    """Return the operators that the stock importer converts."""
    return frozenset(onnx_frontend._get_convert_map())


@cache
def expanded_operators() -> frozenset[str]:
    """Return the standard operators that are replaced by their function body.

    They have no converter, or the stock one has another meaning: its Attention
    is that of ONNX Runtime's own domain.
    """
    bodies = {
        schema.name
        for schema in defs.get_all_schemas_with_history()
        if not schema.domain and (schema.has_function or schema.has_context_dependent_function)
    }
    return frozenset((bodies - stock_operators() - set(CONVERTERS)) | {"Attention"})
