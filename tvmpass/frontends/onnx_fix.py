"""Converters that replace those of the stock ONNX importer, by operator name.

A converter is called as ``converter(bb, inputs, attrs, opset, stock)`` with the
Relax expressions of the node's inputs (None where left out), its attributes as
Python values (strings as bytes), the opset, and the stock conversion to fall
back on.  It returns a Relax expression; what it leaves unbound is bound by the
importer.
"""

from __future__ import annotations

from .onnx_fix_conv import CONVOLUTIONS
from .onnx_fix_elementwise import ELEMENTWISE
from .onnx_fix_norm import NORMALISATION
from .onnx_fix_resize import RESIZING
from .onnx_fix_select import SELECTION
from .onnx_fix_shape import SHAPES

CONVERTERS = {**CONVOLUTIONS, **ELEMENTWISE, **NORMALISATION, **RESIZING, **SELECTION, **SHAPES}

# Operators that are replaced by the function body of the ONNX standard: the
# stock importer has no converter, or one of another meaning (its Attention is
# that of ONNX Runtime's own domain).
EXPANDED = frozenset(
    {
        "Attention",
        "BlackmanWindow",
        "CenterCropPad",
        "HammingWindow",
        "HannWindow",
        "NegativeLogLikelihoodLoss",
        "RotaryEmbedding",
        "SoftmaxCrossEntropyLoss",
        "SwiGLU",
    }
)
