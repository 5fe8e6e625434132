"""What every scheduling step shares: refusal kinds, and its use as a TVM pass."""

from __future__ import annotations

import json
from typing import Any

import tvm
from tvm import s_tir, tirx

from tvmpass.core.decision import Refusal, RefusalKind
from tvmpass.core.kernels import Iteration, Kernel, classify
from tvmpass.core.nest import walk_blocks
from tvmpass.core.rule import ScheduleRule

WRONG_KIND = RefusalKind("wrong-kernel-kind", "{step} is for {wanted} kernels; this one is {kind}")
NO_BLOCK = RefusalKind("block-missing", "the kernel has no block {block!r} to work on")
NOT_CONSTANT = RefusalKind(
    "extent-not-constant", "loop {loop} of block {block!r} has the symbolic extent {extent}"
)
BAD_OPTION = RefusalKind("bad-option", "{step}: {option}={value} is not possible: {reason}")
PADDING_COUNTS = RefusalKind(
    "padding-counts",
    "{factors} may be NaN or infinite, and then a product with the padding is NaN: it must be computed",
)
SCHEDULE_ERROR = RefusalKind("schedule-error", "TVM's schedule refused {step}: {message}")

_MEMORY = "tvmpass.kernel"


class Step(ScheduleRule):
    """A `ScheduleRule` that can also be called like a TVM pass.

    ``TileMatmul(m=6)(mod)`` applies the step to every PrimFunc of ``mod`` that
    it fits and leaves the others as they are; ``Sequential([TileMatmul(m=6)])``
    works as well.  The kernel's facts travel in an attribute of the function
    from one step to the next.

    ``rewrite`` either changes the schedule it is given, or returns a new one
    where the step rebuilds the function.
    """

    def apply(self, schedule: s_tir.Schedule, kernel: Kernel) -> s_tir.Schedule | Refusal:
        """Check and run the step; a refusal leaves ``schedule`` unspecified."""
        return apply_step(self, schedule, kernel)

    def as_pass(self) -> tvm.transform.Pass:
        """Return the step as a TVM module pass."""
        return tvm.transform.module_pass(
            lambda mod, _ctx: self._on_module(mod), opt_level=0, name=type(self).__name__
        )

    __tvm_ffi_object__ = as_pass
    """TVM asks for this where a pass is wanted, as in ``Sequential``."""

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        return self.as_pass()(mod)

    def _on_module(self, mod: tvm.IRModule) -> tvm.IRModule:
        changed = {}
        for global_var, func in mod.functions.items():
            if not isinstance(func, tirx.PrimFunc):
                continue
            kernel = recall(func)
            result = self.apply(s_tir.Schedule(func), kernel)
            if not isinstance(result, Refusal):
                changed[global_var] = remember(result.mod["main"].with_attrs(func.attrs), kernel)
        made = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
        for global_var, func in changed.items():
            made.update_func(made.get_global_var(global_var.name_hint), func)
        return made


def apply_step(step: ScheduleRule, schedule: s_tir.Schedule, kernel: Kernel) -> s_tir.Schedule | Refusal:
    """Check and run any scheduling rule; a refusal leaves ``schedule`` unspecified."""
    refusal = step.check(schedule, kernel)
    if refusal is not None:
        return refusal
    try:
        made: s_tir.Schedule | None = step.rewrite(schedule, kernel)  # type: ignore[func-returns-value]
    except s_tir.ScheduleError as error:
        return SCHEDULE_ERROR(step=step.name, message=str(error))
    return schedule if made is None else made


def remember(func: tirx.PrimFunc, kernel: Kernel) -> tirx.PrimFunc:
    """Write the kernel's facts on a function that is scheduled in several passes."""
    facts = {
        "kind": kernel.kind,
        "anchor": kernel.anchor,
        "prologue": kernel.prologue,
        "epilogue": kernel.epilogue,
        "iterations": [[i.name, i.size, i.reduce] for i in kernel.iterations],
        "dtypes": kernel.dtypes,
        "static": kernel.static,
    }
    return func.with_attr(_MEMORY, json.dumps(facts))


def recall(func: tirx.PrimFunc) -> Kernel:
    """Return the facts an earlier step wrote, else classify the function."""
    if not func.attrs or _MEMORY not in func.attrs:
        return classify(func)
    facts: dict[str, Any] = json.loads(str(func.attrs[_MEMORY]))
    return Kernel(
        func,
        facts["kind"],
        facts["anchor"],
        tuple(facts["prologue"]),
        tuple(facts["epilogue"]),
        tuple(Iteration(*i) for i in facts["iterations"]),
        tuple(facts["dtypes"]),
        facts["static"],
    )


def require_kind(step: Step, kernel: Kernel, *kinds: str) -> Refusal | None:
    """Refuse a kernel of another kind, or one without an anchor block."""
    if kernel.kind not in kinds or kernel.anchor is None:
        return WRONG_KIND(step=step.name, wanted=" or ".join(kinds), kind=kernel.kind)
    return None


def require_block(schedule: s_tir.Schedule, name: str) -> Refusal | None:
    """Refuse where the schedule has no block of that name (any more)."""
    if any(block.name_hint == name for block in walk_blocks(schedule.mod["main"])):
        return None
    return NO_BLOCK(block=name)
