"""Arguments that show what a kernel did to them, and comparison with the reference."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from tvmpass.compile.verify_inputs import difference

from .drawing import INOUT, INPUT, OUTPUT, SCALAR, Argument, item_bytes

CASES = "cases.json"
GUARD_BYTES = 4096
"""On each side of an argument; what a kernel writes beyond its array lands there."""
_ALIGNMENT = 64
_FILL = 0xFF
"""NaN in every float type: an output that is not written shows, and so does a read of a guard."""


@dataclass(frozen=True)
class Case:
    """One set of arguments and what the kernel must make of them.

    The arrays are raw files in ``folder``: ``NAME-in-3.bin`` for argument 3,
    ``NAME-out-5.bin`` for a result.  Without ``expected`` candidate 0 is the
    reference.  ``thorough`` cases are left out of a first look.
    """

    name: str
    arguments: tuple[Argument, ...]
    expected: bool
    thorough: bool
    tolerance_scale: float
    folder: Path

    def input(self, position: int) -> np.ndarray:
        return _read(self.folder / f"{self.name}-in-{position}.bin", self.arguments[position])

    def results(self) -> list[np.ndarray]:
        """Return what is expected of each output, in order."""
        return [_read(self.folder / f"{self.name}-out-{i}.bin", self.arguments[i]) for i in self.outputs]

    @property
    def outputs(self) -> list[int]:
        """Return the positions of the arguments that the kernel writes."""
        return [i for i, a in enumerate(self.arguments) if a.role in (OUTPUT, INOUT)]

    def to_json(self) -> dict[str, Any]:
        kept = ("name", "expected", "thorough", "tolerance_scale")
        made: dict[str, Any] = {name: getattr(self, name) for name in kept}
        return {**made, "arguments": [asdict(a) for a in self.arguments]}

    @classmethod
    def from_json(cls, document: dict[str, Any], folder: Path) -> Case:
        arguments = tuple(Argument(**{**a, "shape": tuple(a["shape"])}) for a in document["arguments"])
        return cls(**{**document, "arguments": arguments, "folder": folder})


def write_inputs(case: Case, drawn: Sequence[np.ndarray | None]) -> None:
    """Write the arrays that the kernel reads."""
    for position, array in enumerate(drawn):
        if array is not None:
            array.tofile(case.folder / f"{case.name}-in-{position}.bin")


def write_results(case: Case, results: Sequence[np.ndarray]) -> None:
    """Write what the reference made of the case."""
    for position, array in zip(case.outputs, results):
        array.tofile(case.folder / f"{case.name}-out-{position}.bin")


def write_cases(cases: Sequence[Case], folder: Path) -> None:
    """Write the list of cases; their arrays are there already."""
    (folder / CASES).write_text(json.dumps([case.to_json() for case in cases]))


def read_cases(folder: Path) -> list[Case]:
    """Read what `write_cases` wrote."""
    return [Case.from_json(document, folder) for document in json.loads((folder / CASES).read_text())]


def _read(path: Path, argument: Argument) -> np.ndarray:
    return np.fromfile(path, np.uint8).view(numpy_dtype(argument.dtype)).reshape(argument.shape)


def numpy_dtype(dtype: str) -> np.dtype:
    """Return numpy's dtype; those that numpy lacks come from ml_dtypes."""
    try:
        return np.dtype(dtype)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, dtype))


class Arguments:
    """The arguments of one case on a device, outputs filled with NaN.

    ``guarded`` puts guards around each array, aligned as the virtual machine aligns:
    before and after it on this machine's CPU, after it on other devices.
    ``values`` are what a kernel is called with.
    """

    def __init__(self, case: Case, device: Any, guarded: bool):
        self.case = case
        self._guards: dict[int, Callable[[], tuple[np.ndarray, np.ndarray]]] = {}
        self._inputs: dict[int, np.ndarray] = {}
        self.values: list[Any] = []
        for position, argument in enumerate(case.arguments):
            if argument.role == SCALAR:
                self.values.append(argument.value)
                continue
            reads = argument.role in (INPUT, INOUT)
            content = case.input(position) if reads else _unwritten(argument)
            if reads:
                self._inputs[position] = content
            if not guarded:
                self.values.append(tvm.runtime.tensor(content, device))
                continue
            make = _between_guards if device == tvm.cpu() else _before_guard
            tensor, self._guards[position] = make(argument, content, device)
            self.values.append(tensor)

    def outputs(self) -> list[np.ndarray]:
        """Return copies of what the outputs hold now."""
        return [np.array(self.values[i].numpy()) for i in self.case.outputs]

    def damage(self) -> str | None:
        """Return one line on what the kernel wrote that is not its to write, else None."""
        for position, guards in self._guards.items():
            before, after = guards()
            if (before != _FILL).any():
                return f"wrote before the start of argument {position}"
            if (after != _FILL).any():
                return f"wrote beyond the end of argument {position}"
        for position, content in self._inputs.items():
            if self.case.arguments[position].role == INPUT:
                if self.values[position].numpy().tobytes() != content.tobytes():
                    return f"changed argument {position}, which is an input"
        return None


def _unwritten(argument: Argument) -> np.ndarray:
    raw = np.full(argument.bytes, _FILL, np.uint8)
    return raw.view(numpy_dtype(argument.dtype)).reshape(argument.shape)


def _between_guards(argument: Argument, content: np.ndarray, device: Any):
    """Return a tensor on memory of numpy's, and what gives the guards on both sides."""
    raw = np.full(argument.bytes + 2 * GUARD_BYTES + _ALIGNMENT, _FILL, np.uint8)
    before, inside, after = _parts(raw, argument.bytes)
    inside[:] = _bytes(content)
    flat = tvm_ffi.from_dlpack(inside) if argument.bytes else tvm.runtime.empty((0,), "uint8", device)
    return tvm.runtime.Tensor._create_view(flat, argument.shape, argument.dtype), lambda: (before, after)


def _before_guard(argument: Argument, content: np.ndarray, device: Any):
    """Return a tensor on a device, and what fetches the guard behind it."""
    raw = np.full(argument.bytes + GUARD_BYTES, _FILL, np.uint8)
    raw[: argument.bytes] = _bytes(content)
    flat = tvm.runtime.tensor(raw, device)
    tensor = tvm.runtime.Tensor._create_view(flat, argument.shape, argument.dtype)
    return tensor, lambda: (raw[:0], flat.numpy()[argument.bytes :])


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _parts(raw: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split a buffer into the guard before, the aligned array, and the guard after."""
    start = GUARD_BYTES + (-(raw.ctypes.data + GUARD_BYTES)) % _ALIGNMENT
    return raw[:start], raw[start : start + size], raw[start + size :]


def compare(case: Case, expected: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> str | None:
    """Return None where results agree, else one line."""
    gap = difference(expected, found, loose=False, tolerance_scale=case.tolerance_scale)
    return None if gap is None else f"{case.name} inputs: {gap}"


__all__ = ("Arguments", "Case", "compare", "item_bytes", "read_cases", "write_cases")
