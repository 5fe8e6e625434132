"""Bring an ONNX graph into the form that the importer can read.

Shape arithmetic and constants are folded with onnxslim.  Its graph fusion,
subexpression and node elimination stay off: what they would remove must reach
tvmpass's own rules, which judge and report it.
"""

from __future__ import annotations

import logging
import math

import onnx
import onnx.shape_inference

from tvmpass.core.quiet import quiet

from .onnx_shapes import model_inputs

logger = logging.getLogger(__name__)

# What onnxslim must not do; only its constant and shape folding is wanted.
SKIPPED = ["graph_fusion", "dead_node_elimination", "subexpression_elimination", "weight_tying"]
# No value on the way of folding may take more than this many bytes.
FOLD_LIMIT = 1 << 28
_WIDEST = 8
# Each round of folding lets the next inference of shapes see further.
_ROUNDS = 6
_NOT_FOLDED = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "SequenceEmpty"}
# Operators whose result can be far larger than what they are given.
_GROWING = {"ConstantOfShape", "Expand", "EyeLike", "OneHot", "Pad", "Range", "Resize", "Tile", "Upsample"}


def name_nodes(graph: onnx.GraphProto) -> None:
    """Name every nameless node after its first output (or its operator)."""
    for node in graph.node:
        if not node.name:
            node.name = next((out for out in node.output if out), node.op_type)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                name_nodes(attribute.g)


def freeze_inputs(graph: onnx.GraphProto) -> None:
    """Drop graph inputs that have a stored value: they are constants here."""
    kept = model_inputs(graph)
    if len(kept) != len(graph.input):
        kept = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in kept]
        del graph.input[:]
        graph.input.extend(kept)


def fold(model: onnx.ModelProto) -> onnx.ModelProto:
    """Fold constants and shape arithmetic; interface and other nodes stay as they are.

    Shapes are inferred by onnx itself: onnxslim's own inference takes a Split
    into computed sizes for an even one and then folds wrong shapes.
    """
    inputs = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in model.graph.input]
    outputs = [value.name for value in model.graph.output]
    for _ in range(_ROUNDS):
        try:
            inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
        except (ValueError, onnx.shape_inference.InferenceError) as error:  # above 2 GiB, or wrong shapes
            logger.debug("shapes of %s cannot be inferred: %s", model.graph.name, error)
            break
        if _folds_large(inferred.graph):
            logger.debug("constants of %s are too large to fold", model.graph.name)
            break
        folded = _slim(inferred)
        if folded is None or [value.name for value in folded.graph.output] != outputs:
            logger.debug("onnxslim did not fold %s", model.graph.name)
            break
        before = len(model.graph.node)
        model = folded
        if len(model.graph.node) == before:
            break
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    return model


def _slim(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return the model folded by onnxslim, or None where the library fails on it."""
    # onnxslim and its dependencies are slow to import and needed for ONNX only.
    from onnxslim.cli._main import slim

    try:
        # ONNX Runtime, which evaluates for onnxslim, reports on stderr what it cannot fold.
        with quiet():
            return slim(model, skip_optimizations=SKIPPED, size_threshold=FOLD_LIMIT, no_shape_infer=True)
    except Exception as error:  # a library fault here costs optimisation, not correctness
        logger.debug("onnxslim failed: %s", error)
        return None


def _folds_large(graph: onnx.GraphProto) -> bool:
    """Return True where evaluating the constant part of a graph could exhaust memory.

    Only the node whose result would be kept is limited by onnxslim itself; a
    large value in between would still be computed.
    """
    sizes = {value.name: _elements(value.type.tensor_type) for value in graph.value_info}
    constants = {tensor.name for tensor in graph.initializer} | {""}
    for node in graph.node:
        if not constants.issuperset(node.input) or node.op_type in _NOT_FOLDED:
            continue
        constants.update(node.output)
        for name in node.output:
            size = sizes.get(name)
            if size is None and node.op_type in _GROWING:
                return True
            if size is not None and size * _WIDEST > FOLD_LIMIT:
                return True
    return False


def _elements(tensor: onnx.TypeProto.Tensor) -> int | None:
    if not tensor.HasField("shape") or any(not dim.HasField("dim_value") for dim in tensor.shape.dim):
        return None
    return math.prod(dim.dim_value for dim in tensor.shape.dim)
