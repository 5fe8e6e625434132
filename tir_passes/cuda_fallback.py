"""A CUDA kernel for every PrimFunc that no recipe takes.

Tried in order: TVM's dlight rules, one thread per result, parallel loops in
threads, and at last everything in one thread.  What comes first and lowers is
taken; the note says which it was.
"""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx
from tvm.tirx.build import codegen_build, split_host_device_mods

from schedules.cuda.finish import finish_function
from schedules.cuda.launch import (
    has_too_large_a_grid,
    is_wholly_bound,
    launch_in_one_thread,
    launch_nothing,
    launch_plain_loops,
    launches_itself,
)
from schedules.cuda.plain import one_thread_per_result
from tvmpass.core.kernels import classify
from tvmpass.core.nest import as_int, root_block

_RULES = {
    "matmul": ("Matmul", "Reduction"),
    "conv": (),
    "depthwise": (),
    "pool": (),
    "reduce": ("Reduction", "GeneralReduction"),
    "norm-softmax": ("GeneralReduction",),
    "movement": ("Transpose",),
}
"""Which of dlight's rules are asked for a kernel kind, before its own fallback.

Not GEMV: it stores past its output where the rows are no multiple of 16.
"""


def cuda_fallback(func: tirx.PrimFunc, target: tvm.target.Target) -> tuple[tirx.PrimFunc, str]:
    """Return ``func`` as a valid CUDA kernel, attributes kept, and a note how.

    Total: the last resort, one thread, takes any code.
    """
    made, note = _choose(func, target)
    return (made.with_attrs(func.attrs) if func.attrs else made), note


def _choose(func: tirx.PrimFunc, target: tvm.target.Target) -> tuple[tirx.PrimFunc, str]:
    if _has_no_elements(func):
        return launch_nothing(func), "no elements to compute"
    if launches_itself(func) and is_wholly_bound(func):
        return func, "TVM's own threads"
    if root_block(func) is not None:
        for name in (*_RULES.get(classify(func).kind, ()), "Fallback"):
            made = _dlight(name, func, target)
            if made is not None and lowers(made, target):
                return made, f"dlight {name}"
        plain = one_thread_per_result(func)
        if plain is not None and lowers(plain, target):
            return plain, "one thread per result"
    else:
        loops = launch_plain_loops(func)
        if loops is not None and lowers(loops[0], target):
            return loops
    return launch_in_one_thread(func), "one thread"


def _has_no_elements(func: tirx.PrimFunc) -> bool:
    """Is the last parameter, the output, known to be empty?"""
    buffers = [p for p in func.params if tirx.buffer.is_buffer_var(p)]
    return bool(buffers) and any(as_int(dim) == 0 for dim in buffers[-1].shape)


def _dlight(rule: str, func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
    """Return what one of dlight's rules makes of ``func``, None where it does not fit."""
    from tvm.s_tir import dlight

    with target:
        try:
            made = getattr(dlight.gpu, rule)().apply(func, target, False)
        except Exception:  # a rule may trip over what it does not expect; others are asked
            return None
    if isinstance(made, list):
        made = made[0] if made else None
    return finish_function(made.mod["main"]) if isinstance(made, s_tir.Schedule) else None


def lowers(func: tirx.PrimFunc, target: tvm.target.Target) -> bool:
    """Return True where TVM makes CUDA text of all of ``func`` without an error.

    A launch that no device takes is one.
    """
    if not is_wholly_bound(func) or has_too_large_a_grid(func):
        return False
    pipeline, _, finish_device = tirx.get_tir_pipeline("s_tir")
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    with tvm.transform.PassContext(opt_level=3), target:
        try:
            _, devices = split_host_device_mods(pipeline(tirx.transform.BindTarget(target)(module)))
            for device_target, device in devices.items():
                codegen_build(finish_device()(device), device_target)
        except Exception:  # TVM raises several classes; the next form is tried
            return False
    return True
