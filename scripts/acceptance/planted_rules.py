"""A ``--rules`` file of bad candidates: they ask for 100 GB, never end, crash or are wrong.

``plant{fault=NAME}`` spoils a kernel that the library's fallback would make: while
it is scheduled, while it is compiled, or when it runs.  Every wrong one is faster
than the right one would be.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir.op import register_op_attr
from tvm.tirx.buffer import is_buffer_var

from tvmpass.core.rule import ScheduleRule

GIB_100 = 100 << 30

SCHEDULING = {"schedule-memory": "memory", "schedule-endless": "timeout", "schedule-crash": "crash"}
COMPILING = {"compile-memory": "memory", "compile-endless": "timeout", "compile-crash": "crash"}
RUNNING = {
    "run-memory": "memory",
    "run-endless": "timeout",
    "run-crash": "crash",
    "wrong-value": "wrong",
    "wrong-nan": "wrong",
    "wrong-unwritten": "wrong",
    "wrong-beyond": "wrong",
    "wrong-before": "wrong",
    "wrong-input": "wrong",
}
FAULTS = {**SCHEDULING, **COMPILING, **RUNNING}
"""Each fault and the status under which it must be recorded."""

_COMPILED = "tirx.tvmpass_planted"


@dataclass(frozen=True)
class Plant(ScheduleRule):
    """Spoil a kernel (on purpose)."""

    fault: str = "wrong-value"

    def rewrite(self, schedule, kernel):
        """Return a schedule of the spoilt kernel."""
        if self.fault in SCHEDULING:
            _do(self.fault)
        function = schedule.mod["main"]
        make = _at_compilation if self.fault in COMPILING else _RUNS[self.fault]
        return s_tir.Schedule(make(function, self.fault))


RULES = (Plant(),)


def recipes(kernel, target, options):
    """Return one candidate for each fault, for kernels that can be spoilt."""
    func = kernel.func
    sizes = [_size(p) for p in func.params if is_buffer_var(p)]
    spoils = len(sizes) >= 2 and all(sizes) and len(sizes) == len(func.params)
    return [f"plant{{fault={fault}}}" for fault in FAULTS] if spoils else []


def _size(parameter) -> int:
    total = 1
    for dim in parameter.ty.shape:
        total *= int(dim) if isinstance(dim, tirx.IntImm) else 0
    return total


def _do(fault: str) -> None:
    if fault.endswith("memory"):
        bytearray(GIB_100)
    elif fault.endswith("crash"):
        os.kill(os.getpid(), signal.SIGSEGV)
    while True:
        pass


def _at_compilation(function, fault: str):
    """Return the kernel with a call whose lowering does the mischief."""
    register_op_attr(_COMPILED, "TCallEffectKind", 1)
    register_op_attr(_COMPILED, "TScriptPrinterName", "tvmpass_planted")
    tirx.op.register_intrin_lowering(_COMPILED, "default", f=lambda call: _do(fault))

    def spoil(store):
        value = store.value
        return tirx.BufferStore(
            store.buffer, tirx.call_intrin(str(value.ty.dtype), _COMPILED, value), store.indices
        )

    return function.with_body(
        tvm_ffi.structural_map(function.body, [(tirx.BufferStore, spoil)], order="post")
    )


def _buffers(function):
    return [p for p in function.params if is_buffer_var(p)]


def _int(value: int):
    return tirx.const(value, "int64")


def _place(buffer, linear: int) -> list:
    """Return the indices of an element by its place in memory; outside the array too."""
    shape = [int(dim) for dim in buffer.ty.shape]
    inner = 1
    for extent in shape[1:]:
        inner *= extent
    first, rest = divmod(linear, inner)
    place = []
    for extent in reversed(shape[1:]):
        rest, at = divmod(rest, extent)
        place.append(_int(at))
    return [_int(first), *reversed(place)]


def _value(buffer, number: float):
    return tirx.const(number, str(buffer.ty.dtype))


def _in_block(statement, name: str, allocated=()):
    block = s_tir.SBlock([], [], [], name, statement, alloc_buffers=list(allocated))
    return s_tir.SBlockRealize([], tirx.const(True, "bool"), block)


def _then(function, *statements, allocated=()):
    """Return the function with statements after its own."""
    root = function.body.block
    more = [_in_block(statement, f"planted{i}") for i, statement in enumerate(statements)]
    body = tirx.SeqStmt([root.body, *more])
    return _with_root(function, body, allocated)


def _with_root(function, body, allocated=()):
    root = function.body.block
    block = s_tir.SBlock([], [], [], "root", body, alloc_buffers=[*root.alloc_buffers, *allocated])
    return function.with_body(s_tir.SBlockRealize([], tirx.const(True, "bool"), block))


def _store(buffer, linear: int, number: float):
    return tirx.BufferStore(buffer, _value(buffer, number), _place(buffer, linear))


def _nothing(function, fault: str):
    return _with_root(function, _in_block(tirx.Evaluate(tirx.const(0, "int32")), "nothing"))


def _memory(function, fault: str):
    large = tirx.decl_buffer((GIB_100 // 4,), "float32", "large")
    out = _buffers(function)[-1]
    loop = tirx.Var("i", "int64")
    fill = tirx.For(
        loop, _int(0), _int(GIB_100 // 4), tirx.ForKind.SERIAL,
        tirx.BufferStore(large, tirx.const(1.0, "float32"), [loop]),
    )  # fmt: skip
    read = tirx.BufferLoad(large, [_int(7)])
    last = tirx.BufferStore(out, tirx.Cast(str(out.ty.dtype), read), _place(out, 0))
    return _then(function, fill, last, allocated=[large])


def _endless(function, fault: str):
    out = _buffers(function)[-1]
    loop = tirx.Var("i", "int64")
    at = _place(out, 0)
    value = tirx.BufferLoad(out, at) * _value(out, 0.5) + _value(out, 1.0)
    return _then(
        function,
        tirx.For(loop, _int(0), _int(1 << 60), tirx.ForKind.SERIAL, tirx.BufferStore(out, value, at)),
    )


def _crash(function, fault: str):
    return _then(function, _store(_buffers(function)[-1], 1 << 44, 1.0))


def _wrong(linear_of, number: float, buffer_at: int = -1):
    def make(function, fault: str):
        buffer = _buffers(function)[buffer_at]
        return _then(function, _store(buffer, linear_of(_size(buffer)), number))

    return make


_RUNS = {
    "run-memory": _memory,
    "run-endless": _endless,
    "run-crash": _crash,
    "wrong-value": _wrong(lambda size: size - 1, 77.0),
    "wrong-nan": _wrong(lambda size: size // 2, float("nan")),
    "wrong-unwritten": _nothing,
    "wrong-beyond": _wrong(lambda size: size, 0.0),
    "wrong-before": _wrong(lambda size: -1, 0.0),
    "wrong-input": _wrong(lambda size: 0, 77.0, buffer_at=0),
}
