"""Apply a MetaSchedule trace from a file, which may come from anyone.

A trace is a list of scheduling instructions with the decisions that a search
made.  TVM reads any instruction with any arguments; some of them run code of
the trace's author (an annotation can have C or LLVM text compiled in), others
end the process where their arguments are of a wrong kind.  So a trace is read
here first: known instructions only, their arguments of the right kinds, known
annotations, every number bounded, every sampled value decided.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.schedule import Trace

from tvmpass.core.decision import Refusal, RefusalKind
from tvmpass.core.errors import last_line

from .kernel_key import plain_kernel
from .record_files import BadLine, dump_trace

TRACE_UNREADABLE = RefusalKind("trace-unreadable", "the trace cannot be read: {reason}")
TRACE_REFUSED = RefusalKind("trace-refused", "TVM's schedule refused the trace: {message}")

FUNCTION = "main"
"""What a kernel is called while it is scheduled."""

MAX_INSTRUCTIONS = 2000
MAX_ARGUMENTS = 64
MAX_NUMBER = 1 << 31
MAX_STEP = 1024
"""The largest value of an annotation, a sampled choice or an alignment: unroll steps, threads."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_VARIABLE = re.compile(r"([blv])[0-9]{1,6}")
_WORD = re.compile(r'"[A-Za-z0-9_.]{0,64}"')
_THREADS = re.compile(r"(blockIdx|threadIdx)\.[xyz]|vthread(\.[xyz])?")
_SCOPES = ("global", "local", "shared", "shared.dyn")

ANNOTATIONS = frozenset(
    (
        *("parallel", "vectorize", "unroll_explicit", "unroll_implicit", "tiling_structure"),
        *("random_compute_producer", "inline_rule", "cooperative_fetch", "thread_extent_low_inclusive"),
        *("thread_extent_high_inclusive", "cache_type"),
    )
)
"""Annotations that MetaSchedule leaves for its own later steps, without ``meta_schedule.``."""

PRAGMAS = frozenset(("pragma_auto_unroll_max_step", "pragma_unroll_explicit"))
"""Annotations that reach code generation: how far loops are unrolled."""

# Per instruction: its inputs, attributes and outputs.  Inputs and outputs are variables of
# blocks (b), loops (l), places (p) or values (v), an empty list ([), whole numbers (i), the word
# None (n), a quoted word (s); several letters are a choice, a star is any number of the last.  A
# place is a loop or one of two marks that stand for none: taken for a loop, the marks end the
# process.  Attributes: whole numbers and truth values (i), small ones (step), an unset truth
# value (unset), and what has a check of its own.  Split's second says that the factors are not
# to be guarded by a condition: where they do not divide the loop, it would leave the arrays.
_FORMS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "GetSBlock": ((), ("name", "function"), ("b",)),
    "GetLoops": (("b",), (), ("l*",)),
    "GetChildBlocks": (("bl",), (), ("b*",)),
    "GetProducers": (("b",), (), ("b*",)),
    "GetConsumers": (("b",), (), ("b*",)),
    "GetOutputBlocks": (("b",), (), ("b*",)),
    "SamplePerfectTile": (("l",), ("i", "i"), ("v*",)),
    "SampleCategorical": ((), ("choices", "chances"), ("v",)),
    "SampleComputeLocation": (("b",), (), ("p",)),
    "Split": (("l", "vin*"), ("i", "unset"), ("l*",)),
    "Fuse": (("l*",), ("i",), ("l",)),
    "Reorder": (("l*",), (), ()),
    "AddUnitLoop": (("bl",), (), ("l",)),
    "Parallel": (("l",), (), ()),
    "Vectorize": (("l",), (), ()),
    "Unroll": (("l",), (), ()),
    "Bind": (("l",), ("thread",), ()),
    "CacheRead": (("b", "["), ("i", "scope"), ("b",)),
    "CacheWrite": (("b", "["), ("i", "scope"), ("b",)),
    "ComputeAt": (("b", "lp"), ("i", "i"), ()),
    "ReverseComputeAt": (("b", "lp"), ("i", "i"), ()),
    "ComputeInline": (("b",), (), ()),
    "ReverseComputeInline": (("b",), (), ()),
    "DecomposeReduction": (("b", "l"), (), ("b",)),
    "RFactor": (("l",), ("i",), ("b",)),
    "StorageAlign": (("b",), ("i", "i", "step", "step"), ()),
    "SetScope": (("b",), ("i", "scope"), ()),
    "Annotate": (("bl", "vis"), ("annotation",), ()),
    "Unannotate": (("bl",), ("annotation",), ()),
    "EnterPostproc": ((), (), ()),
}


def apply_trace(function: tirx.PrimFunc, text: str) -> tirx.PrimFunc | Refusal:
    """Return the kernel as the trace schedules it, or why it cannot be applied.

    ``function`` is unscheduled; its blocks are found by position where the trace
    was made on `renamed`, else by their names.  Attributes are kept.
    """
    try:
        trace = read_trace(text)
    except BadLine as problem:
        return TRACE_UNREADABLE(reason=str(problem))
    plain = renamed(function) if is_positional(trace) else plain_kernel(function)
    # The seed is for nothing: every sampled value is decided.
    schedule = s_tir.Schedule(tvm.IRModule({FUNCTION: plain}), seed=1, error_render_level="fast")
    try:
        Trace.apply_json_to_schedule(trace, schedule)
        made = schedule.mod[FUNCTION]
    except Exception as error:  # ScheduleError, and TVM's own checks, which raise several classes
        return TRACE_REFUSED(message=last_line(error))
    return made.with_attrs(function.attrs) if function.attrs else made


def trace_text(schedule: s_tir.Schedule) -> str:
    """Return the trace of a schedule as the JSON text that records hold.

    Instructions without an effect are left out, so that two searches that came
    to one schedule have one text.
    """
    return dump_trace(_plain(schedule.trace.simplified(remove_postproc=False).as_json()))


def renamed(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the plain kernel with its blocks called ``b0``, ``b1``, ... in program order.

    Its buffers are called ``t0``, ``t1``, ...  Traces name blocks, and those that
    a step adds are called after a block or a buffer (``b0_rf``, ``t3_global``).
    Made on this form a trace fits every equal kernel, whatever its blocks are
    called.
    """
    graph = json.loads(tvm.ir.save_json(plain_kernel(function)))
    nodes = graph["nodes"]
    counts = {"b": 0, "t": 0}

    def rename(node: dict[str, Any], field: str, letter: str) -> None:
        nodes.append({"type": "ffi.String", "data": f"{letter}{counts[letter]}"})
        node["data"][field] = len(nodes) - 1
        counts[letter] += 1

    for node in list(nodes):  # parts stand before what they are part of, and in program order
        if node["type"] == "s_tir.SBlock" and nodes[node["data"]["name_hint"]]["data"] != "root":
            rename(node, "name_hint", "b")
        elif node["type"] == "ir.Var" and nodes[node["data"]["ty"]]["type"] == "tirx.BufferType":
            rename(node, "name", "t")
    return tvm.ir.load_json(json.dumps(graph))


def is_positional(trace: list[Any]) -> bool:
    """Return True for a trace made on `renamed`: it fits every equal kernel."""
    names = {attrs[0] for name, _, attrs, _ in trace[0] if name == "GetSBlock"} - {"root"}
    return all(re.fullmatch(r"[bt][0-9]+(_\w+)?", name) for name in names)


def _plain(value: Any) -> Any:
    """Return TVM's JSON-like value as JSON: whole numbers and floats are objects in it."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, tirx.IntImm):
        return int(value.value)
    if isinstance(value, tirx.FloatImm):
        return float(value.value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return str(value)


def read_trace(text: str) -> list[Any]:
    """Return a trace's JSON value once it is known to be harmless; `BadLine` says why not."""
    try:
        trace = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"not JSON ({str(error)[:80]})") from None
    if not _is_list(trace, 2) or not isinstance(trace[0], list) or not isinstance(trace[1], list):
        raise BadLine("expected instructions and decisions")
    instructions, decisions = trace
    if not 0 < len(instructions) <= MAX_INSTRUCTIONS:
        raise BadLine(f"{len(instructions)} instructions; from 1 to {MAX_INSTRUCTIONS} are read")
    defined: dict[str, str] = {}
    for number, instruction in enumerate(instructions):
        try:
            _check_instruction(instruction, defined)
        except BadLine as problem:
            raise BadLine(f"instruction {number}: {problem}") from None
    _check_decisions(instructions, decisions)
    return trace


def _check_instruction(instruction: Any, defined: dict[str, str]) -> None:
    if not _is_list(instruction, 4) or not isinstance(instruction[0], str):
        raise BadLine("expected a name, inputs, attributes and outputs")
    name, inputs, attrs, outputs = instruction
    if name not in _FORMS:
        raise BadLine(f"{name[:40]!r} is not known here")
    if not all(isinstance(part, list) and len(part) <= MAX_ARGUMENTS for part in (inputs, attrs, outputs)):
        raise BadLine(f"{name}: expected lists of at most {MAX_ARGUMENTS} values")
    wanted_inputs, wanted_attrs, wanted_outputs = _FORMS[name]
    for value, kinds in _matched(f"{name}: inputs", inputs, wanted_inputs):
        if not _is_input(value, kinds, defined):
            raise BadLine(f"{name}: the input {_shown(value)} is not possible there")
    for value, kind in _matched(f"{name}: attributes", attrs, wanted_attrs):
        if not _is_attribute(value, kind):
            raise BadLine(f"{name}: the attribute {_shown(value)} is not possible there")
    for value, kinds in _matched(f"{name}: outputs", outputs, wanted_outputs):
        found = _VARIABLE.fullmatch(value) if isinstance(value, str) else None
        if found is None or found[1] != kinds.replace("p", "l") or value in defined:
            raise BadLine(f"{name}: the output {_shown(value)} is not possible there")
        defined[value] = kinds
    if name == "Annotate":
        _check_annotation(inputs[1], attrs[0])


def _matched(what: str, values: Sequence[Any], kinds: Sequence[str]) -> Iterator[tuple[Any, str]]:
    """Pair values with what is wanted there; a starred kind takes all that are left."""
    least = sum(not kind.endswith("*") for kind in kinds)
    if len(values) < least or (len(values) > least and not (kinds and kinds[-1].endswith("*"))):
        raise BadLine(f"{what}: found {len(values)}")
    for index, value in enumerate(values):
        yield value, kinds[min(index, len(kinds) - 1)].rstrip("*")


def _is_input(value: Any, kinds: str, defined: dict[str, str]) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return "i" in kinds and 0 <= value <= MAX_NUMBER
    if isinstance(value, list):  # the blocks that a copy is for; none stands for all
        named = all(isinstance(v, str) and defined.get(v) == "b" for v in value)
        return "[" in kinds and len(value) <= MAX_ARGUMENTS and named
    if not isinstance(value, str):
        return False
    if value in defined:
        return defined[value] in kinds
    if value == "None":
        return "n" in kinds
    return "s" in kinds and _WORD.fullmatch(value) is not None


def _is_attribute(value: Any, kind: str) -> bool:
    if kind == "i":
        return isinstance(value, int) and -1 <= value <= MAX_NUMBER
    if kind == "step":
        return isinstance(value, int) and 0 <= value <= MAX_STEP
    if kind == "unset":
        return isinstance(value, int) and value == 0
    if kind == "choices":
        return _are_numbers(value) and all(isinstance(v, int) and 0 <= v <= MAX_STEP for v in value)
    if kind == "chances":
        return _are_numbers(value)
    if not isinstance(value, str):
        return False
    if kind == "name":
        return _NAME.fullmatch(value) is not None
    if kind == "function":
        return value == FUNCTION
    if kind == "thread":
        return _THREADS.fullmatch(value) is not None
    if kind == "scope":
        return value in _SCOPES
    return value in PRAGMAS or value.removeprefix("meta_schedule.") in ANNOTATIONS


def _check_annotation(value: Any, key: str) -> None:
    if isinstance(value, int) and value > MAX_STEP:
        raise BadLine(f"Annotate: {key}={value} is above {MAX_STEP}")
    if key in PRAGMAS and isinstance(value, str) and not _VARIABLE.fullmatch(value):
        raise BadLine(f"Annotate: {key} takes a number, not {_shown(value)}")


def _check_decisions(instructions: list[Any], decisions: list[Any]) -> None:
    """Require one decision of the right form for each sampled value, and no others."""
    found: dict[int, Any] = {}
    for pair in decisions:
        if not _is_list(pair, 2) or isinstance(pair[0], bool) or not isinstance(pair[0], int):
            raise BadLine("decisions: expected pairs of an instruction and a value")
        found[pair[0]] = pair[1]
    sampled = {i for i, instruction in enumerate(instructions) if instruction[0].startswith("Sample")}
    if set(found) != sampled or len(found) != len(decisions):
        raise BadLine("decisions: expected one for each sampled value and no others")
    for index, value in found.items():
        name, _, attrs, outputs = instructions[index]
        if not _is_decision(name, attrs, outputs, value):
            raise BadLine(f"decisions: {_shown(value)} is none of {name} (instruction {index})")


def _is_decision(name: str, attrs: list[Any], outputs: list[Any], value: Any) -> bool:
    if name == "SamplePerfectTile":
        whole = _are_numbers(value) and all(isinstance(v, int) and 1 <= v <= MAX_NUMBER for v in value)
        return whole and len(value) == len(outputs) == attrs[0]
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    if name == "SampleCategorical":
        return 0 <= value < len(attrs[0]) == len(attrs[1])
    return -2 <= value <= MAX_ARGUMENTS


def _is_list(value: Any, length: int) -> bool:
    return isinstance(value, list) and len(value) == length


def _are_numbers(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 0 < len(value) <= MAX_ARGUMENTS
        and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in value)
    )


def _shown(value: Any) -> str:
    return repr(value)[:60] if isinstance(value, (str, int)) else type(value).__name__
