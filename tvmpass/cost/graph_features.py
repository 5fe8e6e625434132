"""What a group of operators costs, told from the graph alone: no lowering, about 0.1 ms.

Good enough to drop candidates that could never pay, such as an expensive value
recomputed for every element of a large one; not to choose among the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import relax

from tvmpass.core.site import FunctionView, op_name, operands, shape_of

from .device import Device
from .extents import EXAMPLE_EXTENT

_CURVES = frozenset(
    f"relax.{name}"
    for name in (
        *(
            "exp",
            "log",
            "tanh",
            "sigmoid",
            "erf",
            "power",
            "sin",
            "cos",
            "tan",
            "sinh",
            "cosh",
            "log_add_exp",
        ),
        *("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2"),
        *("nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.softplus", "nn.selu", "nn.softmax", "nn.log_softmax"),
    )
)
_REDUCTIONS = frozenset(
    f"relax.{name}"
    for name in (
        "sum",
        "mean",
        "max",
        "min",
        "prod",
        "variance",
        "std",
        "argmax",
        "argmin",
        "cumsum",
        "cumprod",
    )
)
_READ_AGAIN = {
    "relax.nn.softmax": 3,
    "relax.nn.log_softmax": 3,
    "relax.nn.layer_norm": 3,
    "relax.nn.group_norm": 3,
    "relax.nn.instance_norm": 3,
    "relax.nn.rms_norm": 2,
}
"""Passes over its operand that an operator makes."""

_CONTRACTIONS = ("relax.matmul", "relax.nn.conv")
_CURVE_CYCLES = 16.0
_SIMPLE_CYCLES = 0.5


@dataclass(frozen=True)
class GraphFeatures:
    """Totals of a group computed as one kernel; counts are scalar elements.

    ``recompute`` is the number of evaluations over the number of values, 1.0
    where nothing is computed twice.
    """

    bytes_in: float
    bytes_out: float
    flops: float
    curves: float
    simple: float
    recompute: float
    operators: int


def graph_features(
    view: FunctionView, bindings: Sequence[relax.Var], example_extents: Mapping[str, int] | None = None
) -> GraphFeatures:
    """Return the features of ``bindings`` (program order) as one kernel.

    What a group's operator reads from another of the group counts as computed
    where it is read, as inlining does it; what a contraction reads counts once.
    """
    inside = set(bindings)
    size = _Sizes(example_extents or {})
    bytes_in: dict = {}
    evaluations: dict = {}
    flops = curves = simple = evaluated = values = 0.0
    for var in reversed(bindings):
        elements = size.elements(var)
        evaluations[var] = times = max(evaluations.get(var, 0.0), elements)
        value = view.bindings[var]
        name = op_name(value) or ""
        sources = list(operands(value))
        largest = max((size.elements(s) for s in sources), default=0.0)
        work = max(times, largest) if _repeats(name) else times
        if name.startswith(_CONTRACTIONS):
            flops += 2.0 * elements * _depth(name, value, size)
        elif name in _CURVES:
            curves += work
        else:
            simple += work
        evaluated += times
        values += elements
        for source in sources:
            if source in inside:
                demand = _demand(name, value, times, elements, size.elements(source))
                evaluations[source] = max(evaluations.get(source, 0.0), demand)
            else:
                bytes_in[source] = size.bytes(source)
    out = sum(size.bytes(v) for v in bindings if view.escapes(v, inside))
    return GraphFeatures(
        sum(bytes_in.values()), out, flops, curves, simple, evaluated / max(values, 1.0), len(bindings)
    )


def graph_cost_us(
    view: FunctionView,
    bindings: Sequence[relax.Var],
    device: Device,
    example_extents: Mapping[str, int] | None = None,
) -> float:
    """Return a roofline price in µs of ``bindings`` as one kernel call."""
    found = graph_features(view, bindings, example_extents)
    lanes = device.vector_bytes / 4
    cycles = (found.curves * _CURVE_CYCLES + found.simple * _SIMPLE_CYCLES) / lanes
    compute = cycles / (device.ghz * 1e3) + found.flops / (device.gflops * 0.6 * 1e3)
    moved = found.bytes_in + found.bytes_out
    rate = device.l2_gbps if moved <= device.l2_bytes else device.l3_gbps
    rate = rate if moved <= device.l3_bytes else device.dram_gbps
    return max(compute, moved / rate / 1e3) / max(1, device.threads) + device.launch_us


def _repeats(name: str) -> bool:
    """Return True where the work of an operator follows what it reads, not what it makes."""
    return name in _REDUCTIONS or name in _READ_AGAIN or "_pool" in name


def _demand(name: str, value, times: float, elements: float, source: float) -> float:
    """Return how often the elements of an operand are evaluated when inlined."""
    if name.startswith(_CONTRACTIONS):
        return source
    if name in _REDUCTIONS:
        return source * max(1.0, times / max(elements, 1.0))
    if name in _READ_AGAIN:
        return source * _READ_AGAIN[name]
    if "_pool2d" in name and hasattr(value.attrs, "pool_size"):
        return times * math.prod(int(p) for p in value.attrs.pool_size)
    return times


def _depth(name: str, value, size: _Sizes) -> float:
    """Return the multiply-adds per output element of a contraction."""
    if name == "relax.matmul":
        dims = size.dims(value.args[0])
        return dims[-1] if dims else 1.0
    weight = size.elements(value.args[1])
    layout = str(value.attrs.kernel_layout)
    dims = size.dims(value.args[1])
    outputs = dims[layout.index("O")] if "O" in layout and len(dims) == len(layout) else 1.0
    return weight / max(outputs, 1.0)


class _Sizes:
    """Element and byte counts of expressions, symbolic dims by example."""

    def __init__(self, examples: Mapping[str, int]):
        self.examples = examples
        self.known: dict = {}

    def dims(self, expr) -> tuple[float, ...]:
        if expr not in self.known:
            shape = shape_of(expr) or ()
            self.known[expr] = tuple(
                float(d)
                if isinstance(d, int)
                else float(self.examples.get(getattr(d, "name", ""), EXAMPLE_EXTENT))
                for d in shape
            )
        return self.known[expr]

    def elements(self, expr) -> float:
        return math.prod(self.dims(expr))

    def bytes(self, expr) -> float:
        digits = "".join(c for c in str(getattr(expr.ty, "dtype", "")) if c.isdigit())
        return self.elements(expr) * (int(digits) / 8 if digits else 1.0)
