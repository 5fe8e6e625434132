"""Barriers dropped and waits loosened in emitted kernels: which change results, and which are caught.

Whether a mutation is *harmful* is found without the emulator's checks: the
kernel runs in many orders, threads switched between single accesses and
asynchronous copies landing early or late, and its results are compared with
those of the kernel as emitted.  *Caught* is what `emulate` refuses, or computes
wrongly, in its usual three orders.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from . import cuda_families

SUBJECTS = {
    "matmul-fp32": ("matmul", "float32", 2),
    "matmul-fp16": ("matmul", "float16", 2),
    "matmul-fp16-odd": ("matmul", "float16", 1),
    "matmul-bf16": ("matmul", "bfloat16", 0),
    "batched-matmul-fp32": ("batched-matmul", "float32", 2),
    "batched-matmul-fp16": ("batched-matmul", "float16", 0),
    "conv3x3-fp32": ("conv3x3", "float32", 0),
    "conv3x3-fp16": ("conv3x3", "float16", 0),
    "conv1x1-fp32": ("conv1x1", "float32", 2),
    "conv-strided-fp32": ("conv-strided", "float32", 1),
    "depthwise-fp32": ("depthwise", "float32", 0),
    "reduce-rows-fp32": ("reduce-rows", "float32", 0),
    "reduce-columns-fp32": ("reduce-columns", "float32", 0),
    "reduce-all-fp32": ("reduce-all", "float32", 0),
    "softmax-fp32": ("softmax", "float32", 2),
    "layer-norm-fp16": ("layer-norm", "float16", 2),
    "movement-fp32": ("movement", "float32", 0),
    "scan-fp32": ("scan", "float32", 2),
}
"""The cases whose kernels are mutated: family, dtype, shape."""

BARRIER = "__syncthreads();"
_WAIT = re.compile(r"tvm_builtin_ptx_cp_async_wait_group\w*?_(\d+)\(\);")
_SHARED = re.compile(r"__shared__[^;]*?(\w+)\s*(?:\[[^\]]*\])+;")
_KERNEL = 'extern "C" __global__'


@dataclass(frozen=True)
class Mutation:
    """A change of a source: its kind, its line, the whole changed text, what lies around it."""

    kind: str
    line: int
    text: str
    around: str


def mutations(source: str) -> Iterator[Mutation]:
    """Drop each barrier in turn; let each wait leave one group more."""
    start = source.index(_KERNEL)
    for match in re.finditer(re.escape(BARRIER), source):
        if match.start() > start:
            text = source[: match.start()] + ";" + source[match.end() :]
            yield Mutation("barrier", _line(source, match), text, _around(source, match))
    for match in _WAIT.finditer(source):
        if match.start() > start:
            looser = f'asm volatile("cp.async.wait_group {int(match.group(1)) + 1};" : : : "memory");'
            text = source[: match.start()] + looser + source[match.end() :]
            yield Mutation("wait", _line(source, match), text, _around(source, match))


def _line(source: str, match: re.Match) -> int:
    return source.count("\n", 0, match.start()) + 1


def _around(source: str, match: re.Match) -> str:
    """Say why leaving out a barrier, or loosening a wait, may not matter: what the text shows."""
    if match.group() != BARRIER and "ptx_cp_async" not in source[source.index(_KERNEL) :]:
        return "no copy of the kernel is asynchronous"
    names = "|".join(dict.fromkeys(_SHARED.findall(source))) or "(?!)"
    before = re.split(r"__syncthreads\(\);|__global__", source[: match.start()])[-1]
    after = re.split(r"__syncthreads\(\);|__global__", source[match.end() :])[0]
    used = [bool(re.search(rf"\b(?:{names})\b", part)) for part in (before, after)]
    if all(used):
        return "shared memory is used on both sides, at places that no two threads share"
    side = "before" if used[1] else "after"
    return f"no shared memory is used {side} it, up to the next barrier"


def check(subject: str) -> dict[str, Any]:
    """Mutate every kernel of a case, in each of its recipes' forms."""
    import numpy as np

    from tvmpass.compile.cuda_source import emit_cuda
    from tvmpass.testing.cuda_emulator import emulate

    from .cuda_kernels import forms, lower, numpy_array, steps

    case = cuda_families.case(*SUBJECTS[subject])
    job, _ = lower(case.module())
    found: list[dict[str, Any]] = []
    faults: list[str] = []
    for name, plain in job.unscheduled.items():
        functions = {job.scheduled[name].schedule: job.scheduled[name].function, **forms(job, name)}
        generator = np.random.default_rng(1)
        arrays = [numpy_array(generator, parameter) for parameter in plain.params]
        for recipe, function in functions.items():
            source = emit_cuda(function, job.target, "kernel")
            baseline = emulate(source, arrays)
            if not baseline.stable:
                faults.append(f"{recipe}: orders differ")
            for mutation in mutations(source.source):
                changed = replace(source, source=mutation.text)
                row = {"kind": mutation.kind, "line": mutation.line, "recipe": steps(recipe)}
                row["harm"] = harm(changed, arrays, baseline)
                row["caught"] = catch(changed, arrays, baseline)
                if not row["harm"] and not row["caught"]:
                    # The emulator found no two accesses that only this kept in order.
                    row["why"] = mutation.around
                found.append(row)
    return {"faults": faults, "mutations": found, **Counter(outcome(row) for row in found)}


def harm(changed: Any, arrays: list, baseline: Any) -> str:
    """Return in which order the results change, the checks switched off; nothing where in none."""
    from tvmpass.testing.cuda_emulator import EmulationError, Order, emulate

    plain = [Order(min(seed, 2), seed, check=False) for seed in range(8)]
    switched = [Order(2, 100 + s, preempt=(2, 12, 80)[s % 3], check=False) for s in range(15)]
    for order in (*plain, *switched):
        try:
            result = emulate(changed, arrays, orders=(order,))
        except EmulationError as error:
            return error.fault
        if not same(result, baseline):
            return f"policy {order.policy}, seed {order.seed}, preempt {order.preempt}"
    return ""


def catch(changed: Any, arrays: list, baseline: Any) -> str:
    """Return how the emulator tells, used as always; nothing where it does not."""
    from tvmpass.testing.cuda_emulator import EmulationError, emulate

    try:
        result = emulate(changed, arrays)
    except EmulationError as error:
        return error.fault
    return "" if same(result, baseline) and result.stable else "results"


def same(result: Any, baseline: Any) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(result.arrays, baseline.arrays))


def outcome(row: dict[str, Any]) -> str:
    """Name what became of a mutation."""
    if row["harm"]:
        return "caught" if row["caught"] else "missed"
    return "flagged" if row["caught"] else "harmless"


def share_caught(results: dict[str, dict]) -> float:
    """Return which share of the harmful mutations was caught."""
    caught, missed = (sum(r.get(key, 0) for r in results.values()) for key in ("caught", "missed"))
    return caught / (caught + missed) if caught + missed else 0.0


def summary(results: dict[str, dict]) -> str:
    """Return the figures of all mutations in a few words."""
    rows = [row for r in results.values() for row in r.get("mutations", ())]
    count = Counter(map(outcome, rows))
    reasons = Counter(row["why"] for row in rows if "why" in row)
    why = ", ".join(f"{n} where {reason}" for reason, n in reasons.most_common())
    return (
        f"{len(rows)} mutations: {count['caught'] + count['missed']} change results, "
        f"{count['caught']} of them caught; "
        f"{count['flagged']} more are refused though no order tried shows a difference; "
        f"{count['harmless']} harmless ({why or 'none'})"
    )
