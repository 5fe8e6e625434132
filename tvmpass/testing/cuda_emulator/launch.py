"""One launch of a device kernel in the emulator's runtime."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvmpass.core.cuda_arch import MAX_BLOCK_DIM, MAX_GRID_DIM, MAX_THREADS_PER_BLOCK

from .errors import EmulationError, Unmodelled
from .native import Library

FORWARD, REVERSED, RANDOM = 0, 1, 2

GRANULE = "granule"
"""The fault that asks for a run with shadow cells of one byte."""

FAULTS = {
    1: "diverged barrier",
    2: "diverged warp operation",
    3: "out of bounds",
    4: "misaligned",
    5: "uninitialised",
    6: "race",
    7: "async copy in flight",
    8: "no end",
    9: "unmodelled",
    10: GRANULE,
    11: "race in global memory",
}


class _Report(ctypes.Structure):
    _fields_ = [
        ("fault", ctypes.c_int32),
        ("line", ctypes.c_int32),
        ("last_line", ctypes.c_int32),
        ("pc", ctypes.c_uint64),
        ("thread", ctypes.c_int32 * 3),
        ("block", ctypes.c_int32 * 3),
        ("accesses", ctypes.c_int64),
        ("barriers", ctypes.c_int64),
        ("text", ctypes.c_char * 400),
    ]


class _Array(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("granule", ctypes.c_uint64),
        ("written", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
    ]


class _Launch(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_int32 * 3),
        ("block", ctypes.c_int32 * 3),
        ("dynamic_bytes", ctypes.c_uint64),
        ("blocks", ctypes.c_void_p),
        ("block_count", ctypes.c_int64),
        ("policy", ctypes.c_int32),
        ("check", ctypes.c_int32),
        ("preempt", ctypes.c_int32),
        ("granule", ctypes.c_int32),
        ("seed", ctypes.c_uint64),
        ("seconds", ctypes.c_double),
        ("arrays", ctypes.c_void_p),
        ("array_count", ctypes.c_int64),
    ]


class DeviceArray:
    """Memory of the emulated device: aligned as a device's allocator aligns it.

    ``values`` is a view of the memory; ``written`` says of each element whether
    a kernel stored to it.
    """

    def __init__(self, name: str, shape: Sequence[int], dtype: np.dtype):
        self.name = name
        count = math.prod(shape)
        self._memory = np.empty(max(1, count) * dtype.itemsize + 256, "uint8")
        start = -self._memory.ctypes.data % 256
        self.bytes = self._memory[start : start + count * dtype.itemsize]
        self.values = self.bytes.view(dtype).reshape(tuple(shape))
        self.written = np.zeros(count, "uint8")

    def described(self) -> _Array:
        """Return what the runtime is told of the array."""
        size, marks = self.values.itemsize, self.written.ctypes.data
        return _Array(self.bytes.ctypes.data, self.bytes.nbytes, size, marks, self.name.encode())


@dataclass(frozen=True)
class Order:
    """In which order threads and blocks run: a policy, and the seed of a random one.

    ``preempt`` n switches threads also between two memory accesses, on average
    once per n of them; ``check`` False leaves out all checks but bounds and
    alignment, so that a wrong kernel shows in its results alone.
    """

    policy: int = FORWARD
    seed: int = 0
    preempt: int = 0
    check: bool = True


@dataclass(frozen=True)
class Counts:
    """What a launch did."""

    accesses: int
    barriers: int


@dataclass(frozen=True)
class Call:
    """A launch: the kernel's name, its arguments, its dimensions in blocks and threads."""

    kernel: str
    arguments: tuple[Any, ...]
    grid: tuple[int, ...]
    block: tuple[int, ...]
    dynamic_bytes: int = 0


def launch(
    library: Library,
    call: Call,
    *,
    blocks: Sequence[int],
    order: Order,
    memory: Sequence[DeviceArray],
    seconds: float,
) -> Counts:
    """Run the given blocks (linear numbers) of a kernel; raises `EmulationError`.

    The kernel may reach ``memory``, and nothing else.
    """
    threads = math.prod(call.block)
    if not 0 < threads <= MAX_THREADS_PER_BLOCK:
        text = f"launch limits: {call.kernel} asks for {threads} threads in a block"
        raise EmulationError(text, "launch limits")
    for what, shape, most in (("grid", call.grid, MAX_GRID_DIM), ("block", call.block, MAX_BLOCK_DIM)):
        if any(extent > limit for extent, limit in zip(shape, most)):
            text = f"launch limits: {call.kernel} asks for a {what} of {tuple(shape)}, at most {most}"
            raise EmulationError(text, "launch limits")
    values = [_value(a) for a in call.arguments]
    pointers = (ctypes.c_void_p * max(1, len(values)))(*[ctypes.addressof(v) for v in values])
    described = [a.described() for a in memory if a.bytes.nbytes]
    arrays = (_Array * max(1, len(described)))(*described)
    numbers = np.ascontiguousarray(_arranged(blocks, order), "int64")
    given = _Launch(
        (ctypes.c_int32 * 3)(*call.grid),
        (ctypes.c_int32 * 3)(*call.block),
        call.dynamic_bytes,
        numbers.ctypes.data,
        len(numbers),
        order.policy,
        int(order.check),
        order.preempt,
        library.granule,
        order.seed + 1,
        seconds,
        ctypes.addressof(arrays),
        len(described),
    )
    report = _Report()
    with library.lock:
        library.handle.emu_launch(
            ctypes.c_void_p(library.entry(call.kernel)), pointers, ctypes.byref(given), ctypes.byref(report)
        )
    if report.fault:
        raise _error(library, call.kernel, report)
    return Counts(report.accesses, report.barriers)


def _error(library: Library, kernel: str, report: _Report) -> EmulationError:
    fault = FAULTS[report.fault]
    line = report.line or library.line(report.pc) or report.last_line
    text = report.text.decode(errors="replace")
    where = f"{kernel}, block {tuple(report.block)}, thread {tuple(report.thread)}"
    if line:
        where += f", line {line}: {library.source.splitlines()[line - 1].strip()[:160]}"
    message = f"{fault}: {text} ({where})"
    return Unmodelled(message, line) if fault == "unmodelled" else EmulationError(message, fault, line)


def _arranged(blocks: Sequence[int], order: Order) -> np.ndarray:
    numbers = np.asarray(blocks, "int64")
    if order.policy == REVERSED:
        return numbers[::-1]
    return np.random.default_rng(order.seed).permutation(numbers) if order.policy == RANDOM else numbers


_SCALARS = {
    "int64": ctypes.c_int64, "int32": ctypes.c_int32, "int16": ctypes.c_int16, "int8": ctypes.c_int8,
    "uint64": ctypes.c_uint64, "uint32": ctypes.c_uint32, "uint16": ctypes.c_uint16, "uint8": ctypes.c_uint8,
    "float64": ctypes.c_double, "float32": ctypes.c_float, "bool": ctypes.c_bool,
}  # fmt: skip


def scalar(value: Any, dtype: str) -> Any:
    """Return a number as a kernel takes it, of TVM's type ``dtype``."""
    if dtype not in _SCALARS:
        raise Unmodelled(f"the emulator passes no scalar of type {dtype} to a kernel")
    return _SCALARS[dtype](value)


def _value(argument: Any) -> Any:
    if isinstance(argument, DeviceArray):
        return ctypes.c_void_p(argument.bytes.ctypes.data)
    if isinstance(argument, np.generic):
        return scalar(argument.item(), argument.dtype.name)
    if isinstance(argument, (int, float)):
        return scalar(argument, "int32" if isinstance(argument, int) else "float32")
    return argument
