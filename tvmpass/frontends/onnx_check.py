"""Say what of an ONNX model cannot be imported, before any work is done."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import TensorProto

from tvmpass.core.errors import TvmpassError

from .onnx_fix import CONVERTERS, expanded_operators, stock_operators

STANDARD = ("", "ai.onnx")
# Operators of ONNX Runtime's own domain for which the importer has a converter.
MICROSOFT = {
    "Attention",
    "BiasGelu",
    "EmbedLayerNormalization",
    "FastGelu",
    "Gelu",
    "MatMulInteger16",
    "QuantizeLinear",
    "DequantizeLinear",
    "SkipLayerNormalization",
}
_WITH_SUBGRAPHS = {"If"}
_SHOWN = 20
_ELEMENT_TYPES = {
    getattr(TensorProto, name)
    for name in (
        *("UNDEFINED", "FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE", "BOOL"),
        *("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"),
    )
}


def check_supported(model: onnx.ModelProto, where: str) -> None:
    """Raise one `TvmpassError` that lists every unsupported operator with its nodes."""
    local = {(function.domain, function.name) for function in model.functions}
    found: dict[str, list[str]] = {}
    for node in all_nodes(model.graph):
        if (node.domain, node.op_type) not in local and not is_supported(node.domain, node.op_type):
            operator = node.op_type if node.domain in STANDARD else f"{node.domain}.{node.op_type}"
            found.setdefault(operator, []).append(node.name)
    if found:
        parts = "; ".join(f"{operator} ({_names(names)})" for operator, names in sorted(found.items()))
        raise TvmpassError(f"{where} uses operators that are not supported: {parts}")


def check_types(graph: onnx.GraphProto, where: str) -> None:
    """Raise one `TvmpassError` for element types that have no storage or no exact cast here.

    TVM rounds to 8-bit floats in its own way and cannot store what is packed
    below a byte; a refusal is better than other numbers than ONNX Runtime's.
    """
    found: dict[str, list[str]] = {}
    for sparse in graph.sparse_initializer:
        found.setdefault("sparse tensor", []).append(sparse.values.name)

    def note(element_type: int, name: str) -> None:
        if element_type not in _ELEMENT_TYPES:
            named = element_type in TensorProto.DataType.values()
            kind = TensorProto.DataType.Name(element_type).lower() if named else f"type {element_type}"
            found.setdefault(kind, []).append(name)

    for value in (*graph.input, *graph.output):
        if value.type.HasField("tensor_type"):
            note(value.type.tensor_type.elem_type, value.name)
    for tensor in graph.initializer:
        note(tensor.data_type, tensor.name)
    for node in all_nodes(graph):
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype", "output_dtype") and attribute.i:
                note(attribute.i, node.name)
            elif attribute.HasField("t"):
                note(attribute.t.data_type, node.name)
    if found:
        parts = "; ".join(f"{kind} ({_names(names)})" for kind, names in sorted(found.items()))
        raise TvmpassError(f"{where} uses element types that are not supported: {parts}")


def check_valid(model: onnx.ModelProto, where: str) -> None:
    """Raise one `TvmpassError` where the model breaks the ONNX specification."""
    # The checker demands a shape of every output; exporters leave it out where
    # it depends on data, and nothing here needs it.
    types = [out.type.tensor_type for out in model.graph.output if out.type.HasField("tensor_type")]
    shapeless = [entry for entry in types if not entry.HasField("shape")]
    for entry in shapeless:
        entry.shape.SetInParent()
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        text = next((line for line in str(error).splitlines() if line.strip()), "unknown fault")
        raise TvmpassError(f"{where} is not a valid ONNX model: {text.strip()}") from None
    except ValueError:
        # More than 2 GiB: the checker takes serialised models only.
        return
    finally:
        for entry in shapeless:
            entry.ClearField("shape")


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of its subgraphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from all_nodes(attribute.g)


def is_supported(domain: str, operator: str) -> bool:
    """Return True where a converter or a function body exists for the operator."""
    if domain in STANDARD:
        known = (CONVERTERS, stock_operators(), expanded_operators(), _WITH_SUBGRAPHS)
        return any(operator in names for names in known)
    return domain == "com.microsoft" and operator in MICROSOFT


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
