"""B: every family of CUDA schedules is right in the emulator, and mutations of kernels are caught."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from . import cuda_families, cuda_mutations, models
from .bench import Bench, Verdict

TARGET = "cuda:sm_80,sm_90"
ORDERS = 3
SAMPLED_BLOCKS = 6
EPSILON = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
CHOSEN = "chosen"
CAUGHT = 0.9
"""The share of harmful mutations that must be caught."""


def point(bench: Bench) -> Verdict:
    names = [f"{family}.{dtype}" for family in cuda_families.FAMILIES for dtype in cuda_families.DTYPES]
    families = bench.items(
        "B", names, lambda n: bench.child("cuda_kernels:check_family", *n.split("."), timeout=1800)
    )
    path = str(bench.root / "examples" / "models" / models.MODELS["cls"][0])
    whole = bench.items(
        "B", ("cls",), lambda _: bench.child("cuda_kernels:check_model", "cls", path, timeout=3600)
    )
    mutated = bench.items(
        "B",
        [f"mutate.{name}" for name in cuda_mutations.SUBJECTS],
        lambda n: bench.child("cuda_mutations:check", n.partition(".")[2], timeout=3600),
    )
    results = {**families, **whole, **mutated}
    faults = [f"{name}: {r.get('error') or r['faults']}" for name, r in results.items() if bad(r)]
    texts = [_families_text(families), _model_text(whole), cuda_mutations.summary(mutated) if mutated else ""]
    good = not faults and (not mutated or cuda_mutations.share_caught(mutated) >= CAUGHT)
    return Verdict(good, "; ".join([*faults, *filter(None, texts)])[:2000], results)


def bad(result: dict) -> bool:
    return "error" in result or bool(result["faults"])


def _families_text(results: dict[str, dict]) -> str:
    runs = [run for r in results.values() for run in r.get("runs", ())]
    recipes = Counter(run["steps"] for run in runs)
    return f"{len(runs)} graphs in {ORDERS} orders, {len(recipes)} forms of recipe" if runs else ""


def _model_text(results: dict[str, dict]) -> str:
    return "; ".join(f"{name}: {r['kernels']} kernels" for name, r in results.items() if "kernels" in r)


def lower(module) -> Any:
    """Run the pipeline; return its job, which keeps kernels before and after scheduling, and the module."""
    from tvmpass import catalogue
    from tvmpass.compile.context import read_options, usual_tvm_passes
    from tvmpass.compile.pipeline import Job, run_pipeline
    from tvmpass.compile.target import parse_target
    from tvmpass.core.report import Ledger

    options, _ = read_options()
    active, disabled = catalogue.select(catalogue.rules(), options, ())
    job = Job(parse_target(TARGET, 1), options, active, Ledger(disabled=disabled))
    with usual_tvm_passes():
        made = run_pipeline(module, job)
    return job, made


def forms(job, name: str, every: bool = False) -> dict[str, Any]:
    """Return a kernel by its other recipes: one for each sequence of steps, or ``every`` one."""
    from tvmpass.catalogue import parse_recipe
    from tvmpass.core.decision import Refusal

    made, function = job.scheduled[name], job.unscheduled[name]
    seen = {steps(made.schedule)}
    found: dict[str, Any] = {}
    for alternative in made.alternatives:
        form = steps(alternative["recipe"])
        if form in seen and not every:
            continue
        result = job.scheduler._apply(parse_recipe(alternative["recipe"]), function)
        if not isinstance(result, Refusal):
            seen.add(form)
            found[alternative["recipe"]] = result
    return found


def steps(schedule: str) -> str:
    """Return a recipe without its options."""
    import re

    return re.sub(r"\{[^}]*\}", "", schedule.removeprefix("library:"))


def tolerance(dtype: str, terms: int) -> float:
    """Return the error allowed, over the largest value wanted.

    A few roundings to the result's type, and sums of ``terms`` in float32.
    """
    return 4 * EPSILON[dtype] + 2 * EPSILON["float32"] * math.sqrt(terms)


def check_family(family: str, dtype: str) -> dict[str, Any]:
    """Run a family in its shapes and recipes, in several thread orders, against float64.

    The library's choice is compared in each order; of the other recipes each
    order is run, which finds conflicts, and the first is compared.
    """
    from tvmpass.core.errors import last_line
    from tvmpass.testing.cuda_emulator import standard_orders
    from tvmpass.testing.cuda_model import emulate_model

    runs: list[dict[str, Any]] = []
    faults: list[str] = []
    for shape in range(cuda_families.SHAPES):
        case = cuda_families.case(family, dtype, shape)
        job, module = lower(case.module())
        arrays = case.arrays(shape)
        inputs = dict(zip([p.name for p in module["main"].params], arrays))
        wanted, allowed = case.wanted(arrays), tolerance(dtype, cuda_families.depth(case))
        orders = standard_orders(ORDERS, shape)
        for recipe, form, built in variants(job, module, every=shape == cuda_families.ODD):
            errors: list[float] = []
            try:
                for group in [(order,) for order in orders] if recipe == CHOSEN else [orders]:
                    (got,) = emulate_model(built, TARGET, inputs, orders=group)
                    errors.append(difference(got, wanted))
            except Exception as error:  # an emulation's, TVM's: all are this variant's fault
                faults.append(f"shape {shape}, {recipe}: {last_line(error)}")
            if errors and not max(errors) <= allowed:
                faults.append(f"shape {shape}, {recipe}: off by {max(errors):.2e}, allowed {allowed:.2e}")
            runs.append({"shape": shape, "recipe": recipe, "steps": form, "errors": errors})
    worst = max((error for run in runs for error in run["errors"]), default=None)
    return {"faults": faults, "runs": runs, "worst": worst}


def variants(job, module, every: bool) -> list[tuple[str, str, Any]]:
    """Return the module as made, and with each kernel by another recipe: recipe, its steps, module."""
    import tvm

    made = [(CHOSEN, "+".join(steps(kernel.schedule) for kernel in job.kernels), module)]
    for name in job.unscheduled:
        for recipe, function in forms(job, name, every).items():
            other = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
            attrs = {**dict(function.attrs or {}), **dict(module[name].attrs or {})}
            other.update_func(module.get_global_var(name), function.with_attrs(attrs))
            made.append((recipe, steps(recipe), other))
    return made


def numpy_array(generator, parameter):
    """Draw an array for a parameter of a PrimFunc; whole numbers are small, as indices are."""
    from scripts.cuda.cases import numpy_dtype

    shape, dtype = [int(d) for d in parameter.ty.shape], str(parameter.ty.dtype)
    if "float" in dtype:
        return generator.standard_normal(shape).astype(numpy_dtype(dtype))
    return generator.integers(0, 2, shape).astype(dtype)


def difference(got, wanted) -> float:
    """Return the largest error over the largest value wanted; inf for NaN or another shape."""
    import numpy as np

    got = np.asarray(got).astype("float64")
    if got.shape != wanted.shape or not np.isfinite(got).all():
        return math.inf
    return float(np.abs(got - wanted).max(initial=0)) / (float(np.abs(wanted).max(initial=0)) or 1.0)


def check_model(name: str, path: str) -> dict[str, Any]:
    """Run every kernel of a model on sampled blocks, against its unscheduled form on the CPU."""
    import numpy as np
    import tvm

    import tvmpass
    from tvmpass.catalogue import finish
    from tvmpass.compile.codegen import kernel_context
    from tvmpass.compile.cuda_source import emit_cuda
    from tvmpass.compile.exact_floats import guard
    from tvmpass.compile.target import parse_target
    from tvmpass.core.errors import last_line
    from tvmpass.testing.cuda_emulator import emulate, standard_orders

    job, _ = lower(tvmpass.load(path, shapes={"x": models.MODELS[name][1]}))
    host = parse_target("llvm", 1)
    generator = np.random.default_rng(0)
    faults, worst, blocks = [], 0.0, [0, 0]
    for kernel, plain in job.unscheduled.items():
        arrays = [numpy_array(generator, parameter) for parameter in plain.params]
        unscheduled = guard(finish(plain, host, job.options)).with_attr("global_symbol", "main")
        with kernel_context():
            built = tvm.tirx.build(tvm.IRModule({"main": unscheduled}), host)
        tensors = [tvm.runtime.tensor(a) for a in arrays]
        built["main"](*tensors)
        wanted = [t.numpy() for t in tensors]
        try:
            source = emit_cuda(job.scheduled[kernel].function, job.target, kernel)
            result = emulate(source, arrays, orders=ORDERS, sample_blocks=SAMPLED_BLOCKS)
        except Exception as error:  # an emulation's, TVM's: all are this kernel's fault
            faults.append(f"{kernel} ({job.scheduled[kernel].schedule}): {last_line(error)}")
            continue
        blocks = [a + b for a, b in zip(blocks, result.blocks)]
        if not any(mask.any() for mask in result.masks):
            faults.append(f"{kernel}: the sampled blocks store nothing")
        for run in result.runs:
            for mask, expected, found in zip(result.masks, wanted, run.arrays):
                scale = float(np.abs(expected).max(initial=0)) or 1.0
                gap = float(np.abs(np.where(mask, found - expected, 0)).max(initial=0)) / scale
                worst = max(worst, gap)
                if not gap <= tolerance("float32", max(a.size for a in arrays)):
                    faults.append(f"{kernel} ({job.scheduled[kernel].schedule}): off by {gap:.2e}")
    orders = [f"policy {o.policy}, seed {o.seed}" for o in standard_orders(ORDERS)]
    schedules = Counter(steps(made.schedule) for made in job.scheduled.values())
    return {
        "faults": faults,
        "kernels": len(job.unscheduled),
        "blocks": blocks,
        "worst": worst,
        "orders": orders,
        "schedules": schedules,
    }
