"""tvmpass as TVM passes: for scripts that call `tvm.compile` themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tvm
from tvm import relax, tirx

from tvmpass import catalogue
from tvmpass.compile.context import read_options, usual_tvm_passes
from tvmpass.core.decision import Refusal
from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.core.options import Options
from tvmpass.core.report import Ledger
from tvmpass.core.rule import Rule

from .branches import outline_branches
from .codegen import NO_STORAGE_REWRITE, kernel_context, may_go_in_place
from .exact_floats import guard_module
from .latency import Latency
from .pipeline import Job, run_pipeline
from .records import Records
from .schedule import Scheduler
from .target import parse_target
from .verify_cuda import make_verifier


def pipeline(target: Any = None, *, rules: Sequence[Rule] | None = None, without: Iterable[str] = ()):
    """Return a TVM pass that runs tvmpass and lowers for the virtual machine.

    Use it as ``tvm.compile(mod, target, relax_pipeline=tvmpass.pipeline(target))``.
    Options are read from the current context here, once.  ``target`` defaults
    to the target in scope when the pass runs.  With ``tvmpass.verify=numeric``
    rewrites and kernels are checked; the whole model only by `tvmpass.build`.
    """
    options, notes = read_options()
    every = catalogue.check_unique(tuple(rules) if rules is not None else catalogue.rules())
    active, disabled = catalogue.select(every, options, without)

    def run(mod, _context):
        where = target if target is not None else tvm.target.Target.current(allow_none=True)
        if where is None:
            raise UsageError("tvmpass.pipeline: no target given and none in scope")
        resolved = parse_target(where, options.threads)
        ledger = Ledger(disabled=disabled, notes=list(notes))
        verifier = make_verifier(resolved, options) if options.verify == "numeric" else None
        job = Job(resolved, options, active, ledger, verifier)
        with usual_tvm_passes():
            scheduled = _safe_for_stock_lowering(run_pipeline(mod, job), job)
            return relax.pipeline.default_build_pipeline()(outline_branches(guard_module(scheduled)))

    return tvm.transform.module_pass(run, opt_level=0, name="tvmpass")


def _safe_for_stock_lowering(mod, job: Job):
    """Schedule plainly what TVM's StorageRewrite would break; see `codegen.NO_STORAGE_REWRITE`.

    Only kernels with several intermediate tensors are concerned.  With
    ``tirx.disable_storage_rewrite`` in the context all keep their schedule.
    """
    if tvm.transform.PassContext.current().config.get(NO_STORAGE_REWRITE, False):
        return mod
    result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for name, made in job.scheduled.items():
        if made.schedule != "fallback" and may_go_in_place(made.function):
            plain = job.scheduler.fallback(job.unscheduled[name]).function
            result.update_func(result.get_global_var(name), plain.with_attrs(dict(mod[name].attrs or {})))
    return result


def kernel_pipeline():
    """Return the TIR pipeline ``tvmpass``: schedule kernels, then TVM's own lowering.

    For modules of plain PrimFuncs: ``tvm.compile(mod, target, tir_pipeline="tvmpass")``.
    """
    from tvm.tirx import compilation_pipeline

    options, _ = read_options()
    lower, finalize_host, finalize_device = compilation_pipeline.get_tir_pipeline("s_tir")

    def run(mod, _context):
        scheduled = _schedule_module(mod, options)
        with kernel_context():
            return lower(guard_module(scheduled))

    return tvm.transform.module_pass(run, opt_level=0, name="tvmpass"), finalize_host, finalize_device


def _schedule_module(mod, options: Options):
    result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    schedulers: dict[str, Scheduler] = {}
    records: dict[str, Records] = {}
    for variable, function in mod.functions_items():
        if not isinstance(function, tirx.PrimFunc) or not _schedulable(function):
            continue
        target = parse_target(function.attrs.get("target", "llvm"), options.threads)
        name = str(target)
        if name not in schedulers:
            latency = Latency(target, options)
            schedulers[name] = Scheduler(target, options, latency)
            records[name] = Records.of(options, target, latency.device_class)
        made = schedulers[name].best(function, records[name]).function
        result.update_func(
            variable, made.with_attrs({**dict(made.attrs or {}), **dict(function.attrs or {})})
        )
    return result


def _schedulable(function: tirx.PrimFunc) -> bool:
    """Return True for a kernel in blocks that no schedule has touched yet."""
    attrs = function.attrs or {}
    return "s_tir" in attrs and not attrs.get("tirx.is_scheduled")


def apply_recipe(mod, text: str, target: Any = "llvm"):
    """Apply a recipe, as printed in a report, to every kernel of ``mod``.

    Raises `TvmpassError` with the refusal where a step may not be applied.
    """
    recipe = catalogue.parse_recipe(text)
    options, _ = read_options()
    resolved = parse_target(target, options.threads)
    result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for variable, function in mod.functions_items():
        if isinstance(function, tirx.PrimFunc):
            made = catalogue.apply_recipe(recipe, function, resolved)
            if isinstance(made, Refusal):
                raise TvmpassError(f"{variable.name_hint}: {made.code}: {made.text()}")
            result.update_func(variable, made)
    return result
