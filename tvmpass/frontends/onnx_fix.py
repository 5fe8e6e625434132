"""Converters that replace or correct those of the stock ONNX importer."""

from __future__ import annotations

CONVERTERS = {}
EXPANDED = frozenset({"Celu", "Swish", "SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss", "BlackmanWindow",
                      "HammingWindow", "HannWindow", "CenterCropPad", "RotaryEmbedding", "SwiGLU"})
