"""What the threads of one block touch at once: memory sectors and bank conflicts.

Index expressions are evaluated for every thread of one block with numpy, so
that coalescing is counted, not guessed from strides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from tvmpass.core.analysis.types import EXAMPLE_EXTENT
from tvmpass.core.cuda_arch import WARP

SECTOR_BYTES = 32
"""The least that an SM fetches from L2."""

BANKS = 32
BANK_BYTES = 4
WIDEST_BYTES = 16
"""The widest load or store of one thread."""


class Irregular(Exception):
    """An index depends on loaded data or on what is not evaluated."""


class LaneReader:
    """Evaluates integer expressions for all threads of a block at once.

    ``values`` maps the address of a variable to a number, or to an array over
    the block's threads (x fastest); variables it lacks are symbolic dimensions
    with the value that ``examples`` gives by name.  ``steps`` counts the
    operations on arrays, ``divisions`` those that divide by no power of two;
    what was divided once (since `forget`) is not divided again.
    """

    def __init__(self, values: Mapping[int, int | np.ndarray], examples: Mapping[str, int]):
        self.values, self.examples = values, examples
        self.steps = self.divisions = 0
        self._divided: dict[int, int | np.ndarray] = {}

    def forget(self) -> None:
        """Begin anew, as with the next device launch."""
        self._divided.clear()

    def read(self, expr) -> int | np.ndarray:
        """Return the value of ``expr`` per thread; raises `Irregular`."""
        kind = type(expr)
        if kind is tirx.Var:
            found = self.values.get(hash(expr))
            return self.examples.get(expr.name, EXAMPLE_EXTENT) if found is None else found
        if kind is tirx.IntImm:
            return int(expr.value)
        if kind in _DIVIDING:
            return self._division(kind, expr)
        apply = _BINARY.get(kind)
        if apply is not None:
            a, b = self.read(expr.a), self.read(expr.b)
            self.steps += isinstance(a, np.ndarray) or isinstance(b, np.ndarray)
            return apply(a, b)
        if kind is tirx.Cast:
            return self.read(expr.value)
        if kind is tirx.Not:
            return np.logical_not(self.read(expr.a))
        if kind is tirx.Select:
            return self._choose(expr.condition, expr.true_value, expr.false_value)
        if kind is tvm.ir.Call:
            return self._call(expr)
        raise Irregular(kind.__name__)

    def _division(self, kind: type, expr):
        key = tvm_ffi.structural_hash(expr)
        found = self._divided.get(key)
        if found is None:
            a, b = self.read(expr.a), self.read(expr.b)
            if isinstance(b, np.ndarray) or b == 0:
                raise Irregular("division by what is no constant")
            if isinstance(a, np.ndarray):
                self.steps += 1
                self.divisions += b & (b - 1) != 0
            found = self._divided[key] = _BINARY[kind](a, b)
        return found

    def _choose(self, condition, true_value, false_value):
        return np.where(self.read(condition), self.read(true_value), self.read(false_value))

    def _call(self, call):
        name = str(getattr(call.op, "name", "")).rsplit(".", 1)[-1]
        if name == "if_then_else":
            return self._choose(*call.args[:3])
        if name == "likely":
            return self.read(call.args[0])
        if name == "shift_left":
            return self.read(call.args[0]) << self.read(call.args[1])
        if name == "shift_right":
            return self.read(call.args[0]) >> self.read(call.args[1])
        raise Irregular(name)


_BINARY: dict[type, Callable] = {
    tirx.Add: lambda a, b: a + b,
    tirx.Sub: lambda a, b: a - b,
    tirx.Mul: lambda a, b: a * b,
    tirx.FloorDiv: lambda a, b: a // b,
    tirx.FloorMod: lambda a, b: a % b,
    tirx.Div: lambda a, b: a // b,
    tirx.Mod: lambda a, b: a % b,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.LT: lambda a, b: a < b,
    tirx.LE: lambda a, b: a <= b,
    tirx.GT: lambda a, b: a > b,
    tirx.GE: lambda a, b: a >= b,
    tirx.EQ: lambda a, b: a == b,
    tirx.NE: lambda a, b: a != b,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
}
_DIVIDING = frozenset({tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod})


def sectors(addresses: np.ndarray, active: np.ndarray) -> int:
    """Return the memory sectors that the warps of a block touch, summed over warps.

    ``addresses`` in bytes, one per thread; threads that are not ``active`` touch none.
    """
    wanted = np.where(active, addresses // SECTOR_BYTES, -1)
    return int(_distinct(_rows(wanted, WARP)).sum())


def conflicts(addresses: np.ndarray, active: np.ndarray, width: int) -> tuple[int, int]:
    """Return the passes that shared memory makes over a block's access, and the fewest possible.

    ``width`` is what one thread moves, in bytes.  Threads that want the same word
    share a pass; different words of one bank take turns.
    """
    words = max(1, width // BANK_BYTES)
    first = np.where(active, addresses // BANK_BYTES, -1)
    wanted = first[:, None] + np.where(first[:, None] >= 0, np.arange(words), 0)
    phases = np.sort(_rows(wanted.reshape(-1), WARP), axis=1)
    fresh = phases >= 0
    fresh[:, 1:] &= phases[:, 1:] != phases[:, :-1]
    rows = np.repeat(np.arange(len(phases)), WARP)[fresh.reshape(-1)]
    taken = rows * BANKS + phases.reshape(-1)[fresh.reshape(-1)] % BANKS
    per_bank = np.bincount(taken, minlength=len(phases) * BANKS).reshape(len(phases), BANKS)
    passes = per_bank.max(axis=1)
    return int(passes.sum()), int((passes > 0).sum())


def _rows(values: np.ndarray, width: int) -> np.ndarray:
    """Split values into rows, the last one filled up with -1."""
    missing = -len(values) % width
    if missing:
        values = np.concatenate([values, np.full(missing, -1, values.dtype)])
    return values.reshape(-1, width)


def _distinct(rows: np.ndarray) -> np.ndarray:
    """Count the distinct values of each row, -1 left out."""
    ordered = np.sort(rows, axis=1)
    fresh = ordered >= 0
    fresh[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    return fresh.sum(axis=1)
