"""How Relay spells numbers and types."""

from __future__ import annotations

import numpy as np

from tvmpass.frontends.relay import ast

SUFFIX = {
    "bool": "",
    "int32": "",
    "int16": "i16",
    "int64": "i64",
    "float32": "f",
    "float16": "f16",
    "float64": "f64",
}
"""The dtypes whose scalars stand in the text, with the ending of the number."""


def scalar(value: np.ndarray) -> str | None:
    """Spell a constant as a number, with six digits; None where it belongs into the metadata."""
    dtype = value.dtype.name
    if value.ndim or dtype not in SUFFIX:
        return None
    if dtype == "bool":
        return str(bool(value))
    if dtype.startswith("int"):
        return f"{int(value)}{SUFFIX[dtype]}"
    return f"{float(value):g}{SUFFIX[dtype]}"


def survives(value: float, dtype: str) -> bool:
    """Return whether a number is the same after it was printed with six digits."""
    exact = np.dtype(dtype).type(value)
    return bool(np.dtype(dtype).type(float(f"{float(exact):g}")) == exact)


def type_text(kind: ast.Type | None) -> str:
    """Spell a type; ``_`` where it is unknown."""
    if kind is None:
        return "_"
    if isinstance(kind, ast.TensorType):
        if not kind.shape:
            return kind.dtype
        dims = ", ".join("?" if dim is None else str(dim) for dim in kind.shape)
        return f"Tensor[({dims}), {kind.dtype}]"
    if isinstance(kind, ast.TupleType):
        items = ", ".join(map(type_text, kind.fields))
        return f"({items},)" if len(kind.fields) == 1 else f"({items})"
    if isinstance(kind, ast.FunctionType):
        return f"fn ({', '.join(map(type_text, kind.params))}) -> {type_text(kind.result)}"
    if kind.arguments:
        return f"{kind.name}[{', '.join(map(type_text, kind.arguments))}]"
    return kind.name
