"""Read one workload of a MetaSchedule database, in a process that may die of it.

The database is somebody's file: the module in it is looked at before TVM builds
it, traces are read before they are applied, and what still goes wrong ends this
child alone.
"""

from __future__ import annotations

import base64
import binascii
import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir.schedule import Trace

from tvmpass.catalogue import recipe_version
from tvmpass.compile.kernel_key import kernel_key, plain_kernel, record_key
from tvmpass.compile.record_files import dump_trace
from tvmpass.compile.trace import FUNCTION, apply_trace, read_trace, renamed, trace_text
from tvmpass.compile.tuned import apply_candidate
from tvmpass.core.decision import Refusal
from tvmpass.core.kernels import classify
from tvmpass.core.nest import walk_blocks
from tvmpass.core.options import Options
from tvmpass.cost.device import device_class
from tvmpass.cost.hardware import hardware_of

from .work import CANDIDATE

_PREFIX = 8
"""Bytes before the module's text that say how long it is."""

MAX_SECONDS = 1e3
"""A longer time stands for a failure: MetaSchedule writes 1e10 s for one."""

_KNOWN = ("ir.", "prim.", "tirx.", "s_tir.")
"""How the kinds of nodes begin that a kernel is made of."""

_PLAIN = frozenset(
    (
        *("None", "int", "float", "bool", "ffi.Array", "ffi.Map", "ffi.String"),
        *("relax.FuncType", "relax.ShapeType", "relax.TensorType", "relax.expr.ShapeExpr"),
    )
)
"""Further kinds: values, and the types of functions."""

_OF_BLOCKS = ("_rf", "_init", "_update")
"""How the names end that steps give to the parts of a block."""

NOT_TIMED = "from MetaSchedule: not timed against the library's own choice"


def convert(
    module: str, records: Sequence[Sequence[Any]], target: str, options: Mapping[str, Any], named: str
) -> dict[str, Any]:
    """Return the record lines of one workload, and how many were left out for which reason.

    ``module`` is the workload as the database holds it, ``records`` lists trace,
    times in s and target of each.  ``named`` is the class of devices wanted.
    Raises ValueError for what is no module of one kernel.
    """
    parts: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in options.items()}
    own, chosen = tvm.target.Target(json.loads(target)), Options(**parts)
    function = plain_kernel(read_module(module))
    key, kind = kernel_key(function, named, chosen), classify(function).kind
    version = recipe_version(kind, own.kind.name)
    lines: dict[str, dict[str, Any]] = {}
    left_out: Counter[str] = Counter()
    for trace, seconds, found in records:
        times = _times_us(seconds)
        if times is None:
            left_out["failed"] += 1
            continue
        if not _is_of(found, named, chosen.threads):
            left_out["other-target"] += 1
            continue
        text = positional(function, trace)
        if text is None:
            left_out["trace-not-accepted"] += 1
            continue
        made = apply_candidate(function, None, text, own, chosen)
        if isinstance(made, Refusal):
            left_out[made.code] += 1
            continue
        features = hardware_of(named).features(made, own)
        line = {
            "key": record_key(key, text, version),
            "kernel_key": key,
            "kind": kind,
            "recipe": None,
            "trace": json.loads(text),
            "recipe_version": version,
            "role": CANDIDATE,
            "status": "ok",
            "median_us": float(f"{statistics.median(times):.5g}"),
            "samples_us": [float(f"{time:.5g}") for time in times],
            "candidate0_us": None,
            "wins": None,
            "features": [round(float(value), 3) for value in features],
            "host": None,
            "mcpu": str(found.get("mcpu") or found.get("arch") or "")[:100] or None,
            "cause": NOT_TIMED,
            "spent_s": 0.0,
            "worker": None,
            "checked": None,
        }
        if line["key"] in lines:
            left_out["duplicate"] += 1
        else:
            lines[line["key"]] = line
    return {"lines": list(lines.values()), "left_out": dict(left_out)}


def read_module(text: str) -> tirx.PrimFunc:
    """Return the one kernel of a workload's module; ValueError says what it is instead."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the module is not in base64") from None
    graph = json.loads(data[_PREFIX:])
    nodes = graph.get("nodes") if isinstance(graph, dict) else None
    if not isinstance(nodes, list):
        raise ValueError("the module is no graph of nodes")
    for node in nodes:
        kind = node.get("type") if isinstance(node, dict) else None
        if not isinstance(kind, str) or not (kind in _PLAIN or kind.startswith(_KNOWN)):
            raise ValueError(f"the module holds {str(kind)[:40]!r}, which is no part of a kernel")
    module = tvm.ir.load_json(data[_PREFIX:].decode())
    functions = list(module.functions.values()) if isinstance(module, tvm.IRModule) else []
    if len(functions) != 1 or not isinstance(functions[0], tirx.PrimFunc):
        raise ValueError(f"the module has {len(functions)} functions, not one kernel")
    return functions[0]


def positional(function: tirx.PrimFunc, trace: Any) -> str | None:
    """Return a trace's text in the form that fits every equal kernel, None for a bad trace.

    Its own names of blocks are replaced by their places.  Where the outcome is not
    the same, the text keeps its names, and fits kernels of those names alone.
    """
    try:
        value = read_trace(dump_trace(trace))
        schedule = s_tir.Schedule(tvm.IRModule({FUNCTION: function}), seed=1)
        Trace.apply_json_to_schedule(value, schedule)
        text = trace_text(schedule)
    except Exception:  # BadLine; TVM raises several classes for what does not fit
        return None
    try:
        moved = s_tir.Schedule(tvm.IRModule({FUNCTION: renamed(function)}), seed=1)
        Trace.apply_json_to_schedule(_moved(json.loads(text), names(function)), moved)
        other = trace_text(moved)
    except Exception:  # as above
        return text
    made = apply_trace(function, other)
    same = not isinstance(made, Refusal) and tvm_ffi.structural_equal(
        plain_kernel(made), plain_kernel(schedule.mod[FUNCTION])
    )
    return other if same else text


def names(function: tirx.PrimFunc) -> tuple[dict[str, str], dict[str, str]]:
    """Map the names of a kernel's blocks, and of its buffers, to those of their places."""
    other = renamed(function)
    blocks, buffers = {}, {}
    for parameter, at in zip(function.params, other.params):
        buffers[str(parameter.name)] = str(at.name)
    for block, place in zip(_blocks(function), _blocks(other)):
        blocks[block.name_hint] = place.name_hint
        for buffer, at in zip(block.alloc_buffers, place.alloc_buffers):
            buffers[str(buffer.name)] = str(at.name)
    return blocks, buffers


def _blocks(function: tirx.PrimFunc) -> list[Any]:
    """Return the blocks of a kernel, the one around them all first."""
    outer = [function.body.block] if isinstance(function.body, s_tir.SBlockRealize) else []
    return [*outer, *walk_blocks(function)]


def _moved(trace: list[Any], mapped: tuple[dict[str, str], dict[str, str]]) -> list[Any]:
    for name, _, attrs, _ in trace[0]:
        if name == "GetSBlock":
            attrs[0] = _place(attrs[0], *mapped)
    return trace


def _place(name: str, blocks: Mapping[str, str], buffers: Mapping[str, str]) -> str:
    """Return a block's name by place.

    One that a step added is called after a block that it splits (``C_rf``), else
    after the buffer that it copies (``C_global``).
    """
    if name in blocks:
        return blocks[name]
    for mapped, endings in ((blocks, _OF_BLOCKS), (buffers, None)):
        for stem in sorted(mapped, key=len, reverse=True):
            rest = name[len(stem) :]
            if name.startswith(stem + "_") and (endings is None or rest.startswith(endings)):
                return mapped[stem] + rest
    return name


def _times_us(seconds: Any) -> list[float] | None:
    if not isinstance(seconds, list) or not 0 < len(seconds) <= 1000:
        return None
    if not all(isinstance(s, (int, float)) and 0.0 < s < MAX_SECONDS for s in seconds):
        return None
    return [s * 1e6 for s in seconds]


def _is_of(found: Any, named: str, threads: int) -> bool:
    """Return True for the target of a record that is of the class of devices wanted."""
    if not isinstance(found, dict):
        return False
    try:
        return device_class(tvm.target.Target(found), threads) == named
    except Exception:  # no target at all: TVM raises several classes
        return False


def warm_up() -> None:
    """Import what every call uses; the imports above do."""
