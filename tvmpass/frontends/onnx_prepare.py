"""Bring an ONNX graph into the form that the importer can read.

Functions are inlined, shape arithmetic and constants are folded with onnxslim.
Its graph fusion, subexpression and node elimination stay off: what they would
remove must reach tvmpass's own rules, which judge and report it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

import onnx
import onnx.inliner

from tvmpass.core.quiet import quiet

from .onnx_shapes import model_inputs

logger = logging.getLogger(__name__)

# What onnxslim must not do; only its constant and shape folding is wanted.
SKIPPED = ["graph_fusion", "dead_node_elimination", "subexpression_elimination", "weight_tying"]
# A folded constant may not take more than this many bytes.
FOLD_LIMIT = 1 << 28


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


def inline_functions(model: onnx.ModelProto, operators: Collection[str]) -> onnx.ModelProto:
    """Replace calls to the model's own functions and to ``operators`` by their bodies.

    ``operators`` are standard ONNX operators that have a function body.  The
    nodes of a body carry the name of the node they came from.
    """
    if model.functions:
        model = _inlined(model, onnx.inliner.inline_local_functions(model))
    present = sorted({n.op_type for n in model.graph.node if n.domain in ("", "ai.onnx")} & set(operators))
    if present:
        chosen = [("", name) for name in present]
        inlined = onnx.inliner.inline_selected_functions(model, chosen, inline_schema_functions=True)
        model = _inlined(model, inlined)
    return model


def _inlined(before: onnx.ModelProto, after: onnx.ModelProto) -> onnx.ModelProto:
    """Give the nodes of inlined bodies the name of the node they replace.

    Inlining keeps the order: a body stands where its call stood, and it ends
    once all outputs of the call have been produced.
    """
    calls = iter(before.graph.node)
    call, open_outputs = None, set()
    for node in after.graph.node:
        if not open_outputs:
            call = next(calls, None)
            open_outputs = {out for out in call.output if out} if call is not None else set()
        if call is not None:
            node.name = call.name
            open_outputs -= set(node.output)
    return after


def fold(model: onnx.ModelProto) -> onnx.ModelProto:
    """Fold constants and shape arithmetic; interface and other nodes stay as they are."""
    # onnxslim and its dependencies are slow to import and needed for ONNX only.
    from onnxslim.cli._main import slim

    inputs = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in model.graph.input]
    outputs = [value.name for value in model.graph.output]
    name = model.graph.name
    try:
        # ONNX Runtime, which evaluates for onnxslim, reports on stderr what it cannot fold.
        with quiet():
            folded = slim(model, skip_optimizations=SKIPPED, size_threshold=FOLD_LIMIT)
    except Exception as error:  # a library fault here costs optimisation, not correctness
        logger.debug("onnxslim gave up on %s: %s", name, error)
        folded = model
    if [value.name for value in folded.graph.output] != outputs:
        logger.debug("onnxslim changed the outputs of %s; its result is dropped", name)
        folded = model
    del folded.graph.input[:]
    folded.graph.input.extend(inputs)
    return folded
