"""Replace function calls by their bodies: a model's own, and those of the ONNX standard."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import onnx
import onnx.inliner
from onnx import defs

_DOMAIN = "tvmpass.expanded"


def inline_functions(model: onnx.ModelProto, operators: Collection[str]) -> onnx.ModelProto:
    """Replace calls to the model's own functions and to ``operators`` by their bodies.

    ``operators`` are standard ONNX operators that have a function body.  The
    nodes of a body carry the name of the node they came from.  The model may
    be changed; use the result.
    """
    if model.functions:
        model = _inlined(model, onnx.inliner.inline_local_functions(model))
    # A body may itself call an operator that is defined by a body.
    while _make_local(model, operators):
        model = _inlined(model, onnx.inliner.inline_local_functions(model))
        kept = [entry for entry in model.opset_import if entry.domain != _DOMAIN]
        del model.opset_import[:]
        model.opset_import.extend(kept)
    return model


def _make_local(model: onnx.ModelProto, operators: Collection[str]) -> bool:
    """Turn standard operators into calls of functions that the model defines itself.

    A body may depend on the types of the operands and on which are left out,
    so that each call gets its own function.
    """
    standard = [node for node in model.graph.node if node.domain in ("", "ai.onnx")]
    found = [node for node in standard if node.op_type in operators]
    if not found:
        return False
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)
    types = _types(model)
    made = False
    for node in found:
        function = _body(node, opset, types)
        if function is None:
            continue
        function.domain, function.name = _DOMAIN, f"{node.op_type}_{len(model.functions)}"
        del function.opset_import[:]
        function.opset_import.add(domain="", version=opset)
        model.functions.append(function)
        node.domain, node.op_type = _DOMAIN, function.name
        made = True
    if made:
        model.opset_import.add(domain=_DOMAIN, version=1)
    return made


def _body(node: onnx.NodeProto, opset: int, types: Mapping[str, onnx.TypeProto]) -> onnx.FunctionProto | None:
    """Return the body that the standard gives for a node, or None.

    The node gets the default attributes written out, which a body refers to.
    """
    schema = defs.get_schema(node.op_type, opset, "")
    present = {attribute.name for attribute in node.attribute}
    defaults = [spec.default_value for spec in schema.attributes.values() if spec.default_value.name]
    node.attribute.extend(value for value in defaults if value.name not in present)
    plain = [v for v in schema.function_opset_versions if v <= opset]
    dependent = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    if dependent:
        given = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
        data = schema.get_context_dependent_function_with_opset_version(
            max(dependent), node.SerializeToString(), given
        )
    elif plain:
        data = schema.get_function_with_opset_version(max(plain))
    else:
        return None
    return onnx.FunctionProto.FromString(data) if data else None


def _types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except (ValueError, onnx.shape_inference.InferenceError):  # more than 2 GiB, or wrong shapes
        graph = model.graph
    types = {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}
    for tensor in model.graph.initializer:
        types[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
    return types


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
