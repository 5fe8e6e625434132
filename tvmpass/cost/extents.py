"""Loop extents and dimensions as numbers, symbolic ones by example."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import tirx

from tvmpass.core.analysis.types import EXAMPLE_EXTENT


def extent_value(expr, examples: Mapping[str, int]) -> float:
    """Return the value of a loop extent or dimension.

    ``examples`` gives symbolic dimensions a value by name; an expression that
    is not plain arithmetic counts as `EXAMPLE_EXTENT`.
    """
    if isinstance(expr, int):
        return float(expr)
    kind = type(expr)
    if kind is tirx.IntImm:
        return float(expr.value)
    if kind is tirx.Var:
        return float(examples.get(expr.name, EXAMPLE_EXTENT))
    if kind is tirx.Cast:
        return extent_value(expr.value, examples)
    if kind not in _BINARY:
        return float(EXAMPLE_EXTENT)
    return _BINARY[kind](extent_value(expr.a, examples), extent_value(expr.b, examples))


_BINARY: dict[type, Callable[[float, float], float]] = {
    tirx.Add: lambda a, b: a + b,
    tirx.Sub: lambda a, b: max(1.0, a - b),
    tirx.Mul: lambda a, b: a * b,
    tirx.FloorDiv: lambda a, b: max(1.0, a // max(1.0, b)),
    tirx.Div: lambda a, b: max(1.0, a // max(1.0, b)),
    tirx.Max: max,
    tirx.Min: min,
}
