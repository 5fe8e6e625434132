"""The public calls: load, optimize, build."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from tvmpass import catalogue
from tvmpass.compile.context import read_options, usual_tvm_passes
from tvmpass.core.errors import TvmpassError, UsageError, last_line, nearest
from tvmpass.core.options import Options
from tvmpass.core.report import Ledger, Report
from tvmpass.core.rule import Rule
from tvmpass.core.site import dtype_of, shape_of
from tvmpass.version import VERSION

from .artifact import Artifact, InputInfo, Metadata
from .branches import outline_branches
from .codegen import compile_model, kernel_context
from .compile_cache import CompileCache
from .exact_floats import guard_module
from .pipeline import Job, run_pipeline
from .target import describe_target, parse_target, required_features


def load(model: Any, shapes: Mapping[str, Sequence[int | str]] | None = None, params: Any = None):
    """Read a model and return it as a Relax IRModule.

    ``model`` is the path of an ONNX file, of a Relay program (the text of
    ``mod.astext()`` or the JSON of ``tvm.ir.save_json``), or of a Relax module
    as JSON (``tvmpass convert``); or an ONNX ``ModelProto``, or Relay text itself.
    ``shapes`` fixes inputs, a word leaves a dim open: ``{"x": ("n", 3, 224, 224)}``.
    ``params`` gives parameters that Relay keeps apart: arrays by name, or the path
    of a file of ``relay.save_param_dict`` or an ``.npz``; ONNX holds its own.
    Raises `UsageError` for a wrong shape or name, `TvmpassError` for a model
    that cannot be read or uses operators that are not supported.
    """
    from tvmpass.frontends import formats
    from tvmpass.frontends.sizes import plain_shapes

    if isinstance(model, (bytes, bytearray, int, tvm.IRModule)):
        raise UsageError(
            f"the path of a model or the text of a program is needed, not {type(model).__name__}"
        )
    shapes = plain_shapes(shapes)
    kind = formats.model_format(model)
    if kind == formats.TORCH:
        raise UsageError(f"{model}: reading .pt2 files is not available in this version; use ONNX or Relay")
    if kind in formats.RELAY_FORMATS:
        from tvmpass.frontends.relay.load import load_relay

        mod = load_relay(model, shapes, params)
    elif kind == formats.RELAX_JSON:
        from tvmpass.frontends.relax_json import load_relax

        mod = load_relax(model, shapes, params)
    else:
        from tvmpass.frontends.onnx import load_onnx

        if params is not None:
            raise UsageError("params= belongs to formats that keep parameters apart; ONNX holds its own")
        mod = load_onnx(model, shapes)
    if isinstance(model, (str, os.PathLike)) and not formats.is_text(model):
        mod.update_func(mod.get_global_var("main"), mod["main"].with_attr("tvmpass.model", Path(model).name))
    return mod


def optimize(
    mod,
    target: Any = "llvm",
    *,
    params: Mapping[str, Any] | None = None,
    rules: Sequence[Rule] | None = None,
    without: Iterable[str] = (),
):
    """Run the pipeline up to scheduled kernels; return ``(IRModule, Report)``."""
    options, notes = read_options()
    resolved = parse_target(target, options.threads)
    lowered, report, _, _ = _optimize(mod, resolved, options, notes, params, rules, without, None, None)
    return lowered, report


def build(
    mod,
    target: Any = "llvm",
    *,
    params: Mapping[str, Any] | None = None,
    rules: Sequence[Rule] | None = None,
    without: Iterable[str] = (),
    dump_ir: str | os.PathLike | None = None,
    timings: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Artifact:
    """Compile ``mod`` for ``target`` and return an `Artifact`.

    ``params`` binds parameters by name; ``rules`` replaces the rule tuple
    (``tvmpass.rules() + (Mine(),)``), ``without`` leaves rules out by name.
    ``dump_ir`` is a folder for numbered IR files.  Options come from the
    current `tvmpass.PassContext`, read once here.
    """
    options, notes = read_options()
    resolved = parse_target(target, options.threads)
    _check_tools(resolved)
    lowered, report, job, plain = _optimize(
        mod, resolved, options, notes, params, rules, without, dump_ir, progress
    )
    if progress is not None:
        progress("generating code")
    begin = time.perf_counter()
    with usual_tvm_passes():
        compiled = compile_model(
            lowered,
            job.target,
            CompileCache(),
            job.plainer,
            fast_math=options.fast_math,
            progress=progress,
        )
    job.stage_ms["codegen"] = (time.perf_counter() - begin) * 1e3
    for entry in report.kernels:
        entry.code_bytes = compiled.code_bytes.get(entry.name)
        entry.symbol = compiled.symbols.get(entry.name)
        if compiled.cuda is not None:
            entry.cuda = compiled.cuda.reports.get(entry.symbol or "")
    report.records = job.records_used()  # one that did not compile is not used
    artifact = Artifact(_metadata(mod, params, job.target), report, compiled=compiled)
    if options.verify == "numeric":
        from .verify_numeric import verify_model

        begin = time.perf_counter()
        with usual_tvm_passes():
            verify_model(plain, artifact, job)
        job.stage_ms["verify"] = (time.perf_counter() - begin) * 1e3
    report.verify = _verify_summary(options, job)
    if timings:
        report.timings = {name: {"compile_ms": ms, "measured_us": None} for name, ms in job.stage_ms.items()}
    return artifact


def _check_tools(target: tvm.target.Target) -> None:
    """Raise `TvmpassError` now for a missing compiler, not after the work before it."""
    if target.kind.name == "cuda":
        from .cuda_build import find_tools

        find_tools(target)


def compile_vm(mod, target: tvm.target.Target):
    """Compile a module of scheduled kernels to a VM executable."""
    try:
        with kernel_context():
            pipeline = relax.pipeline.default_build_pipeline()
            return tvm.compile(outline_branches(guard_module(mod)), target, relax_pipeline=pipeline)
    except Exception as error:  # TVM raises several classes
        raise TvmpassError(f"code generation failed: {last_line(error)}") from error


def _optimize(mod, target, options: Options, notes, params, rules, without, dump_ir, progress):
    every = catalogue.check_unique(tuple(rules) if rules is not None else catalogue.rules())
    active, disabled = catalogue.select(every, options, without)
    ledger = Ledger(disabled=disabled, notes=list(notes))
    verifier = None
    if options.verify == "numeric":
        from .verify_cuda import make_verifier

        verifier = make_verifier(target, options)
    folder = _dump_folder(dump_ir)
    job = Job(target, options, active, ledger, verifier, folder, progress)
    plain = bind_parameters(mod, params)
    with usual_tvm_passes():
        lowered = run_pipeline(plain, job)
    ledger.assert_sum()
    report = Report(
        target=describe_target(target),
        model=_model_name(mod),
        tvmpass_version=VERSION,
        tvm_version=tvm.__version__,
        ledger=ledger,
        kernels=job.kernels,
        cost_model=job.latency.source,
        records=job.records_used(),
    )
    report.verify = _verify_summary(options, job)
    return lowered, report, job, plain


def bind_parameters(mod, params: Mapping[str, Any] | None):
    """Return a fresh module with ``params`` bound by name; checks that ``main`` exists."""
    if not isinstance(mod, tvm.IRModule):
        raise UsageError(f"expected an IRModule, got {type(mod).__name__}; tvmpass.load reads model files")
    names = [gv.name_hint for gv in mod.get_global_vars()]
    if "main" not in names:
        raise UsageError(f"the module has no function 'main', only: {', '.join(sorted(names)) or 'none'}")
    if not params:
        return mod
    known = [p.name for p in mod["main"].params]
    for name in params:
        if name not in known:
            raise UsageError(f"params: unknown parameter {name!r}{nearest(name, known)}")
    return relax.transform.BindParams("main", dict(params))(mod)


def _dump_folder(dump_ir) -> Path | None:
    if dump_ir is None:
        return None
    folder = Path(dump_ir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TvmpassError(f"cannot write IR to {folder}: {error.strerror}") from None
    return folder


def _model_name(mod) -> str:
    attrs = mod["main"].attrs
    return str(attrs["tvmpass.model"]) if attrs and "tvmpass.model" in attrs else "module"


def _verify_summary(options: Options, job: Job) -> dict[str, Any]:
    if job.verifier is None:
        return {"level": options.verify, "checked": 0, "not_checked": 0}
    reasons: dict[str, int] = {}
    for note in job.verifier.notes:
        reasons[note] = reasons.get(note, 0) + 1
    summary = {
        "level": options.verify,
        "checked": job.verifier.checked,
        "not_checked": job.verifier.not_checked,
    }
    return {**summary, "reasons": reasons} if reasons else summary


def _metadata(mod, params, target: tvm.target.Target) -> Metadata:
    main = mod["main"]
    bound = set(params or ())
    attrs = dict(main.attrs or {})
    free = [p for p in main.params if p.name not in bound]
    names = json.loads(attrs["tvmpass.inputs"]) if "tvmpass.inputs" in attrs else [p.name for p in free]
    if len(names) != len(free):
        names = [p.name for p in free]
    inputs = tuple(InputInfo(n, _shape(p), dtype_of(p)) for n, p in zip(names, free))
    outputs = json.loads(attrs["tvmpass.outputs"]) if "tvmpass.outputs" in attrs else _output_names(main)
    return Metadata(
        inputs,
        tuple(outputs),
        describe_target(target),
        target.kind.name,
        tuple(required_features(target)),
        tvm.__version__,
        recursive="tvmpass.recursive" in attrs,
    )


def _shape(param) -> tuple[int | str, ...] | None:
    dims = shape_of(param)
    return None if dims is None else tuple(d if isinstance(d, int) else str(d) for d in dims)


def _output_names(main) -> list[str]:
    def count(ty) -> int:
        return sum(count(f) for f in ty.fields) if isinstance(ty, relax.TupleType) else 1

    total = count(main.ret_ty)
    return ["output"] if total == 1 else [f"output{i}" for i in range(total)]
