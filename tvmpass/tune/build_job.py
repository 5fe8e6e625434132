"""Build one candidate to a library, in a child: as a build would, and no further."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from tvmpass.catalogue import rules_from_file
from tvmpass.compile.codegen import Linker, compile_object
from tvmpass.compile.compile_cache import CompileCache
from tvmpass.compile.host_compiler import host_compiler
from tvmpass.core.decision import Refusal
from tvmpass.core.rule import ScheduleRule
from tvmpass.cost.extents import extent_value
from tvmpass.cost.hardware import hardware_of

from .drawing import item_bytes
from .workload_file import Unit, read_workload

SYMBOL = "tvmpass_candidate"
"""What the kernel is called in every library; two loaded at once do not meet."""


def build_candidate(
    folder: str,
    output: str,
    recipe: str | None,
    trace: str | None,
    rule_files: list[str],
    memory_bytes: int,
) -> dict[str, Any]:
    """Schedule the workload in ``folder`` and compile it to the library ``output``.

    Returns ``features``, or ``refused`` or ``memory`` with why it was not compiled.
    """
    from tvmpass.compile.tuned import apply_candidate

    unit = read_workload(Path(folder))
    steps = schedule_rules(rule_files)
    with unit.context():
        made = apply_candidate(unit.function, recipe, trace, unit.target, unit.options, steps)
        if isinstance(made, Refusal):
            return {"refused": f"{made.code}: {made.text()}".splitlines()[0][:300]}
        needed = intermediate_bytes(made)
        if needed > memory_bytes:
            return {"memory": f"its intermediate buffers take {needed / (1 << 30):.1f} GiB"}
        features = hardware_of(unit.device_class).features(made, unit.target)
        compile_library(made, unit, Path(output))
    return {"features": [float(x) for x in features]}


def schedule_rules(rule_files: list[str]) -> list[ScheduleRule]:
    """Return the scheduling steps that rule files add; runs their code."""
    return [rule for path in rule_files for rule in rules_from_file(path) if isinstance(rule, ScheduleRule)]


def compile_library(function: tirx.PrimFunc, unit: Unit, output: Path) -> None:
    """Compile a scheduled kernel under `SYMBOL` and link it."""
    named = function.with_attr("global_symbol", SYMBOL)
    with tempfile.TemporaryDirectory() as text:
        scratch = Path(text)
        if unit.target.kind.name == "cuda":
            objects = _compile_cuda(named, unit, scratch)
        else:
            objects = [compile_object(SYMBOL, named, unit.target, scratch / "kernel.o")]
        whole = scratch / "whole.so"
        Linker(host_compiler())(str(whole), [str(path) for path in objects])
        whole.replace(output)


def _compile_cuda(function: tirx.PrimFunc, unit: Unit, scratch: Path) -> list[Path]:
    from tvmpass.compile.cuda_build import compile_cuda
    from tvmpass.compile.cuda_pack import BLOCK_SYMBOL, CUDA, LIBRARY, Module, embed, write_tree

    nothing_kept = CompileCache(size_limit=0)
    made = compile_cuda(
        {SYMBOL: function},
        {SYMBOL: "candidate"},
        unit.target,
        nothing_kept,
        scratch,
        lambda symbol, error: None,
        unit.options.fast_math,
    )
    root = Module(LIBRARY, None, list(range(1, len(made.modules) + 1)))
    block = write_tree([root, *(Module(CUDA, module.to_bytes()) for module in made.modules)])
    return [*made.objects.values(), embed(block, BLOCK_SYMBOL, scratch)]


def intermediate_bytes(function: tirx.PrimFunc) -> float:
    """Return the bytes of a scheduled kernel's buffers in main memory, symbolic dims by example."""
    total = 0.0

    def note(buffer) -> None:
        nonlocal total
        if str(buffer.scope()) in ("", "global"):
            elements = math.prod(extent_value(dim, {}) for dim in buffer.shape)
            total += elements * item_bytes(str(buffer.dtype))

    def block(node) -> None:
        for buffer in node.alloc_buffers:
            note(buffer)

    visitors = [(s_tir.SBlock, block), (tirx.AllocBuffer, lambda node: note(node.buffer))]
    tvm_ffi.structural_walk(function.body, visitors)
    return total


def warm_up() -> None:
    """Import what children need and compile a kernel, so that each does not do it anew."""
    from tvm import te

    from tvmpass.compile import tuned  # noqa: F401
    from tvmpass.compile.target import parse_target

    from . import reference, run_job  # noqa: F401

    a = te.placeholder((16,), name="a")
    function = te.create_prim_func([a, te.compute((16,), lambda i: a[i] + 1.0)])
    with tempfile.TemporaryDirectory() as folder:
        named = function.with_attr("global_symbol", SYMBOL)
        compile_object(SYMBOL, named, parse_target("llvm", 1), Path(folder) / "kernel.o")
