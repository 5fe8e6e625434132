"""Read an ONNX file that may be damaged or hostile.

Nothing is executed or unpickled, every size is checked before memory is taken,
and tensor data kept outside the file is read from the model's folder only.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto

from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.core.files import reading

_PACKED = {
    value: bits
    for name, bits in {"UINT4": 4, "INT4": 4, "FLOAT4E2M1": 4, "UINT2": 2, "INT2": 2}.items()
    if (value := getattr(TensorProto, name, None)) is not None
}
_MIN_IR_VERSION = 3


def read_model(model: str | os.PathLike | onnx.ModelProto) -> onnx.ModelProto:
    """Return a checked copy of the model with all tensor data inside it.

    ``model`` is a path or a ModelProto; the caller's proto is never changed.
    Raises `TvmpassError` with one line where the file is missing, damaged, or
    refers to data that is missing or outside its folder.
    """
    if isinstance(model, onnx.ModelProto):
        proto, folder, where = onnx.ModelProto(), None, "the given ModelProto"
        proto.CopyFrom(model)
    else:
        path = Path(model)
        proto, folder, where = _parse(path), path.parent, str(path)
    _check_header(proto, where)
    for tensor in tensors(proto.graph):
        if tensor.data_location == TensorProto.EXTERNAL:
            _read_external(tensor, folder, where)
        _check_size(tensor, where)
    return proto


def tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """Yield every tensor of a graph: initializers and attributes, subgraphs too."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for subgraph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                yield from tensors(subgraph)


def tensor_name(tensor: TensorProto) -> str:
    """Return the name of a tensor for messages."""
    return repr(tensor.name) if tensor.name else "(unnamed)"


def _parse(path: Path) -> onnx.ModelProto:
    with reading(path, "model file", "an .onnx file"):
        data = path.read_bytes()
    if not data:
        raise TvmpassError(f"{path} is empty, not an ONNX model")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError:
        raise TvmpassError(
            f"{path} is not an ONNX model: its {len(data)} bytes do not parse (truncated, or another format)"
        ) from None
    return proto


def _check_header(proto: onnx.ModelProto, where: str) -> None:
    if not proto.ir_version or not (proto.graph.node or proto.graph.output):
        raise TvmpassError(f"{where} is not an ONNX model: it has no IR version or no graph (truncated?)")
    if proto.ir_version < _MIN_IR_VERSION:
        raise TvmpassError(
            f"{where} has ONNX IR version {proto.ir_version}, but {_MIN_IR_VERSION} is needed (re-export it)"
        )
    newest = onnx.defs.onnx_opset_version()
    for entry in proto.opset_import:
        if entry.domain in ("", "ai.onnx") and not 1 <= entry.version <= newest:
            raise TvmpassError(
                f"{where} uses ONNX opset {entry.version}, which is unknown here (1 to {newest} are known)"
            )
    if not proto.graph.output:
        raise TvmpassError(f"{where} has no graph output (truncated?)")


def _element_bits(tensor: TensorProto) -> int | None:
    """Return bits per element, or None where elements have no fixed size."""
    if tensor.data_type == TensorProto.STRING:
        return None
    if tensor.data_type in _PACKED:
        return _PACKED[tensor.data_type]
    try:
        return onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize * 8
    except (KeyError, TypeError, ValueError):
        return None


def _expected_bytes(tensor: TensorProto, where: str) -> int | None:
    if any(dim < 0 for dim in tensor.dims):
        raise TvmpassError(
            f"{where}: tensor {tensor_name(tensor)} has a negative dimension {list(tensor.dims)}"
        )
    bits = _element_bits(tensor)
    return None if bits is None else (math.prod(tensor.dims) * bits + 7) // 8


def _check_size(tensor: TensorProto, where: str) -> None:
    """Refuse a tensor whose data does not fit its shape, before it is unpacked."""
    expected = _expected_bytes(tensor, where)
    if expected is None:
        return
    if tensor.HasField("raw_data"):
        found = len(tensor.raw_data)
        if found != expected:
            raise TvmpassError(
                f"{where}: tensor {tensor_name(tensor)} of shape {list(tensor.dims)} needs {expected} bytes "
                f"but holds {found} (truncated?)"
            )
        return
    stored = max(
        len(tensor.float_data),
        len(tensor.int32_data),
        len(tensor.int64_data),
        len(tensor.double_data),
        len(tensor.uint64_data),
    )
    elements = math.prod(tensor.dims)
    # Complex values take two entries, packed ones a part of one.
    per_entry = 8 // _PACKED.get(tensor.data_type, 8)
    if not -(-elements // per_entry) <= stored <= 2 * elements:
        raise TvmpassError(
            f"{where}: tensor {tensor_name(tensor)} of shape {list(tensor.dims)} needs {elements} values "
            f"but holds {stored} (truncated?)"
        )


def _read_external(tensor: TensorProto, folder: Path | None, where: str) -> None:
    """Bring a tensor's data in from a file of the model's own folder."""
    name = tensor_name(tensor)
    if folder is None:
        raise UsageError(
            f"{where}: tensor {name} keeps its data in another file; pass the model's path instead"
        )
    info = {entry.key: entry.value for entry in tensor.external_data}
    source = _resolve(info.get("location", ""), folder, name, where)
    expected = _expected_bytes(tensor, where)
    if expected is None:
        raise TvmpassError(
            f"{where}: tensor {name} has an element type that cannot be kept outside the model"
        )
    try:
        offset, length = int(info.get("offset") or 0), int(info.get("length") or expected)
    except ValueError:
        raise TvmpassError(
            f"{where}: tensor {name} has a malformed offset or length of external data"
        ) from None
    try:
        available = source.stat().st_size
        if length != expected:
            raise TvmpassError(
                f"{where}: tensor {name} needs {expected} bytes, but {length} are said to be in {source.name}"
            )
        if offset < 0 or offset + length > available:
            raise TvmpassError(
                f"{where}: tensor {name} needs {expected} bytes at offset {offset} of {source.name}, "
                f"which has {available} (truncated?)"
            )
        with source.open("rb") as stream:
            stream.seek(offset)
            tensor.raw_data = stream.read(length)
    except OSError as error:
        raise TvmpassError(f"{where}: cannot read {source}: {error.strerror or error}") from None
    del tensor.external_data[:]
    tensor.data_location = TensorProto.DEFAULT


def _resolve(location: str, folder: Path, name: str, where: str) -> Path:
    """Return the real path of external data, refused when outside ``folder``."""
    relative = Path(location)
    refused = not location or "\x00" in location or relative.is_absolute() or ".." in relative.parts
    if not refused:
        root = folder.resolve()
        source = (root / relative).resolve()
        if source.is_relative_to(root):
            if not source.is_file():
                raise TvmpassError(f"{where}: external data file {location!r} of tensor {name} is missing")
            return source
    raise TvmpassError(
        f"{where}: tensor {name} refers to external data {location!r} outside the model's folder; "
        "that is refused (copy the file next to the model)"
    )
