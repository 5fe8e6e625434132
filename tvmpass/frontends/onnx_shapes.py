"""Fix the dimensions of a model's inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from tvmpass.core.errors import TvmpassError, UsageError, nearest

from .sizes import MAX_ELEMENTS

Dim = int | str


def model_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs that a caller feeds: those without a stored value."""
    stored = {tensor.name for tensor in graph.initializer}
    stored |= {sparse.values.name for sparse in graph.sparse_initializer}
    return [value for value in graph.input if value.name not in stored]


def fix_shapes(
    graph: onnx.GraphProto, shapes: Mapping[str, Sequence[Dim]] | None
) -> dict[str, tuple[Dim, ...]]:
    """Write concrete or named dimensions into the graph's inputs; return them by input.

    ``shapes`` maps input names to dims: an int, or a name that stays symbolic.
    A symbolic first dim that is not given becomes 1 (the batch); a dim with a
    name that another input fixes follows it.  Raises `UsageError` naming every
    unknown input, every mismatch, and all dims that are still missing at once.
    """
    shapes = dict(shapes or {})
    inputs = {value.name: value for value in model_inputs(graph)}
    for name in shapes:
        if name not in inputs:
            known = ", ".join(inputs) or "none"
            raise UsageError(
                f"unknown input {name!r} in shapes{nearest(name, inputs)}; the model's inputs are: {known}"
            )
    declared = {name: _declared(value) for name, value in inputs.items()}
    named: dict[str, Dim] = {}
    for name, wanted in shapes.items():
        _check_given(name, wanted, declared[name], named)

    fixed: dict[str, tuple[Dim, ...]] = {}
    missing: dict[str, list[str]] = {}
    for name, dims in declared.items():
        if name in shapes:
            fixed[name] = tuple(shapes[name])
        elif dims is None:
            missing[name] = ["all (the rank is unknown)"]
        else:
            fixed[name] = tuple(_fill(name, axis, dim, named, missing) for axis, dim in enumerate(dims))
    if missing:
        raise UsageError(_missing_text(missing, declared))
    for name, dims in fixed.items():
        _write(inputs[name], dims)
    # Shapes inferred for the old dims would contradict the new ones.
    del graph.value_info[:]
    for output in graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    return fixed


def _declared(value: onnx.ValueInfoProto) -> list[Dim] | None:
    """Return an input's dims; an unknown one is its name, or ``?``."""
    if not value.type.HasField("tensor_type"):
        kind = value.type.WhichOneof("value") or "unknown type"
        raise UsageError(f"input {value.name!r} is a {kind.replace('_type', '')}; only tensors can be fed")
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    sizes = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim]
    # Some exporters write -1 for a dim that is open; nothing else below 0 means anything.
    if any(size < -1 for size in sizes):
        raise TvmpassError(f"input {value.name!r} has a negative dimension {sizes}")
    return [size if size >= 0 else (dim.dim_param or "?") for size, dim in zip(sizes, tensor.shape.dim)]


def _check_given(name: str, wanted: Sequence[Dim], declared: list[Dim] | None, named: dict[str, Dim]) -> None:
    for dim in wanted:
        valid = dim.isidentifier() if isinstance(dim, str) else isinstance(dim, int) and dim >= 0
        if not valid or isinstance(dim, bool):
            raise UsageError(f"shape of input {name!r}: {dim!r} is neither a size nor a name like 'n'")
        if not isinstance(dim, str) and dim > MAX_ELEMENTS:
            raise UsageError(f"shape of input {name!r}: {dim} is more than any memory holds")
    if declared is None:
        return
    if len(wanted) != len(declared):
        raise UsageError(
            f"input {name!r} has {len(declared)} dims {_text(declared)}, but {_text(wanted)} was given"
        )
    for axis, (new, old) in enumerate(zip(wanted, declared)):
        if isinstance(old, int):
            # Some exporters write 0 for a dim that they do not know.
            if old not in (new, 0):
                raise UsageError(f"input {name!r} has dim {axis} fixed at {old}, but {new} was given")
        elif old != "?" and named.setdefault(old, new) != new:
            raise UsageError(
                f"input {name!r}: dim {axis} is {old!r} in the model, here {new}, elsewhere {named[old]}"
            )


def _fill(name: str, axis: int, dim: Dim, named: Mapping[str, Dim], missing: dict[str, list[str]]) -> Dim:
    if isinstance(dim, int):
        return dim
    if dim in named:
        return named[dim]
    if axis == 0:
        return 1
    missing.setdefault(name, []).append(f"dim {axis}" + (f" ({dim})" if dim != "?" else ""))
    return 1


def _missing_text(missing: Mapping[str, list[str]], declared: Mapping[str, list[Dim] | None]) -> str:
    parts = "; ".join(f"input {name!r}: {', '.join(dims)}" for name, dims in missing.items())
    name = next(iter(missing))
    dims = declared[name]
    if dims is None:
        example = "1,3,224,224"
    else:
        example = ",".join(
            str(d) if isinstance(d, int) else ("1" if i == 0 else "224") for i, d in enumerate(dims)
        )
    return f"the model leaves dims open: {parts}; give them, for example --shape {name}:{example}"


def _text(dims: Sequence[Dim]) -> str:
    return "(" + ", ".join(map(str, dims)) + ")"


def _write(value: onnx.ValueInfoProto, dims: Sequence[Dim]) -> None:
    shape = value.type.tensor_type.shape
    shape.Clear()
    value.type.tensor_type.shape.SetInParent()
    for dim in dims:
        if isinstance(dim, str):
            shape.dim.add().dim_param = dim
        else:
            shape.dim.add().dim_value = dim
