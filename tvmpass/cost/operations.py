"""What the walk over a kernel counts: classes of operations, loops, arrays, totals."""

from __future__ import annotations

from dataclasses import dataclass, field

from tvm import tirx

SERIAL, PARALLEL, VECTORIZED, UNROLLED, THREAD = range(5)
"""TIR's loop kinds; THREAD is a loop bound to a CUDA axis."""

ARITHMETIC = {
    tirx.Add: "add",
    tirx.Sub: "add",
    tirx.Mul: "mul",
    tirx.Div: "div",
    tirx.FloorDiv: "idiv",
    tirx.FloorMod: "idiv",
    tirx.Mod: "idiv",
    tirx.Max: "select",
    tirx.Min: "select",
    tirx.LT: "select",
    tirx.LE: "select",
    tirx.GT: "select",
    tirx.GE: "select",
    tirx.EQ: "select",
    tirx.NE: "select",
    tirx.And: "select",
    tirx.Or: "select",
}

INTRINSICS = {
    "exp": "exp",
    "exp2": "exp",
    "exp10": "exp",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "erf": "erf",
    "log": "log",
    "log2": "log",
    "log10": "log",
    "log1p": "log",
    "pow": "pow",
    "sqrt": "root",
    "rsqrt": "root",
    "sin": "trig",
    "cos": "trig",
    "tan": "trig",
    "sinh": "trig",
    "cosh": "trig",
    "asin": "trig",
    "acos": "trig",
    "atan": "trig",
    "atan2": "trig",
    "asinh": "trig",
    "acosh": "trig",
    "atanh": "trig",
}

INTRINSIC_CLASSES = ("exp", "tanh", "sigmoid", "erf", "log", "pow", "root", "trig")

CHEAP_CALLS = frozenset(
    {
        *("floor", "ceil", "round", "nearbyint", "trunc", "fabs", "abs", "fma", "copysign", "ldexp"),
        *("isnan", "isinf", "isfinite", "reinterpret", "likely", "clz", "popcount"),
        *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right"),
    }
)
"""Calls that are an instruction or two."""


@dataclass
class Loop:
    """One loop around a statement; ``reduces`` where it feeds a reduction axis.

    ``tag`` names the CUDA axis that a `THREAD` loop is bound to.
    """

    extent: float
    kind: int
    reduces: bool = False
    tag: str = ""


@dataclass
class Array:
    """One buffer of the function: a parameter or an intermediate."""

    shape: tuple[float, ...]
    item_bytes: float
    strides: tuple[float, ...]
    parameter: bool
    local: bool
    loaded: bool = False
    stored: bool = False

    @property
    def bytes(self) -> float:
        size = self.item_bytes
        for extent in self.shape:
            size *= extent
        return size


@dataclass
class Work:
    """Totals over a function; ``counts`` are executions of scalar elements.

    Keys of ``counts`` are ``<what>`` or ``<what>.v`` (inside a vectorised loop
    and depending on it): operation and intrinsic classes, ``load.*`` and
    ``store.*`` by stride class, ``guard``, ``iterations``, ``fma``, ``chain``.
    ``written`` is the size of the largest value as a tree, repeats written out.
    """

    counts: dict[str, float] = field(default_factory=dict)
    arrays: dict[int, Array] = field(default_factory=dict)
    statements: int = 0
    depth: int = 0
    parallel: float = 1.0
    lanes: float = 1.0
    tile: float = 1.0
    unrolled: float = 1.0
    reduction: float = 1.0
    code: float = 0.0
    written: float = 1.0
    moved: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])

    def count(self, what: str, times: float) -> None:
        self.counts[what] = self.counts.get(what, 0.0) + times
