"""Read a small tree of arithmetic as a polynomial, whatever way an exporter wrote it.

``0.5 * x * (1 + t)``, ``x * (0.5 + 0.5 * t)`` and ``(x + x * t) / 2`` are all
``{(1, 0): 0.5, (1, 1): 0.5}`` in (x, t).
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm import relax

from relay_passes.operands import number_of
from tvmpass.core.site import FunctionView, op_name

Polynomial = dict[tuple[int, int], float]
"""Maps (power of x, power of t) to a coefficient."""

_ARITHMETIC = frozenset(
    f"relax.{n}" for n in ("add", "subtract", "multiply", "divide", "negative", "power", "square")
)
_MAX_POWER = 4
_MAX_DEPTH = 8


def read(view: FunctionView, expr, x, t=None, taken: set | None = None, depth: int = 0) -> Polynomial | None:
    """Return ``expr`` as a polynomial in the variables ``x`` and ``t``, else None.

    The variables of all calls read on the way are put into ``taken``.
    """
    if expr.same_as(x):
        return {(1, 0): 1.0}
    if t is not None and expr.same_as(t):
        return {(0, 1): 1.0}
    number = number_of(view, expr)
    if number is not None:
        return {(0, 0): number}
    value = view.value(expr)
    name = op_name(value)
    if name not in _ARITHMETIC or depth > _MAX_DEPTH:
        return None
    if taken is not None:
        taken.add(expr)
    parts = [read(view, a, x, t, taken, depth + 1) for a in value.args]
    return None if any(p is None for p in parts) else _combine(name, parts)


def _combine(name: str, parts: list[Polynomial]) -> Polynomial | None:
    first, second = parts[0], parts[-1]
    if name in ("relax.add", "relax.subtract"):
        sign = 1.0 if name == "relax.add" else -1.0
        return _sum(first, {key: sign * c for key, c in second.items()})
    if name == "relax.multiply":
        return _product(first, second)
    if name == "relax.negative":
        return {key: -c for key, c in first.items()}
    if name == "relax.square":
        return _product(first, first)
    constant = second.get((0, 0)) if set(second) == {(0, 0)} else None
    if name == "relax.divide":
        return {key: c / constant for key, c in first.items()} if constant else None
    if constant is None or constant != int(constant) or not 1 <= constant <= _MAX_POWER:
        return None
    result = first
    for _ in range(int(constant) - 1):
        result = _product(result, first)
    return result


def _sum(a: Polynomial, b: Polynomial) -> Polynomial:
    result = dict(a)
    for key, c in b.items():
        result[key] = result.get(key, 0.0) + c
    return {key: c for key, c in result.items() if c != 0.0}


def _product(a: Polynomial, b: Polynomial) -> Polynomial:
    result: Polynomial = {}
    for (i, j), c in a.items():
        for (k, m), d in b.items():
            result[i + k, j + m] = result.get((i + k, j + m), 0.0) + c * d
    return result


def variables_below(view: FunctionView, expr, limit: int = 12) -> list[relax.Var]:
    """Return the variables in the tree under ``expr``, nearest first."""
    found: dict[relax.Var, None] = {}
    queue = [expr]
    while queue and len(found) < limit:
        current = queue.pop(0)
        if not isinstance(current, relax.Var) or current in found:
            continue
        found[current] = None
        value = view.value(current)
        if op_name(value) in _ARITHMETIC:
            queue.extend(value.args)
    return list(found)


def readers_above(view: FunctionView, var, limit: int = 12) -> Iterator[relax.Var]:
    """Yield the arithmetic that depends on ``var``, in program order."""
    found: set = set()
    queue = [var]
    while queue and len(found) < limit:
        for user in view.users.get(queue.pop(0), ()):
            if user not in found and view.op(user) in _ARITHMETIC:
                found.add(user)
                queue.append(user)
    return iter(sorted(found, key=lambda v: view.order[v]))


def close(found: Polynomial, expected: Polynomial, dtype: str) -> bool:
    """Return True where the coefficients agree as closely as ``dtype`` can write them."""
    tolerance = 2e-6 if dtype in ("float32", "float64") else 2e-3
    return set(found) == set(expected) and all(
        abs(found[key] - c) <= tolerance * abs(c) for key, c in expected.items()
    )


def text(polynomial: Polynomial) -> str:
    """Return the polynomial for messages, highest power first."""
    terms = [
        f"{c:.7g}" + f"*x^{i}" * (i > 0) + f"*t^{j}" * (j > 0)
        for (i, j), c in sorted(polynomial.items())[::-1]
    ]
    return " + ".join(terms)
