"""E: the modules of the stock-fault scripts, built with tvmpass, against numpy.

Where a script can judge by itself it is executed with its ``run`` replaced by
ours; its own verdict (FIXED or BROKEN) then speaks of tvmpass.  The scripts that
speak of passes or of the whole process are judged by code here.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .bench import Bench, Verdict

SCRIPTS = {
    "r01": "r01_fuseops_match_cast_order",
    "r02": "r02_fusetir_tuple_group",
    "r03": "r03_foldconstant_runtime_shape",
    "r05": "r05_onnx_runtime_reshape",
    "r08": "r08_nan_max_min_relu_clip",
    "r09": "r09_int_div_zero_kills_process",
    "r12": "r12_passcontext_config_names",
    "r19": "r19_cse",
    "r21": "r21_overfusion_recompute",
    "r26": "r26_empty_reduction_garbage",
}
# What of a script calls a stock pass directly, and what stands in for it here.
REPLACED = {
    "r01": {"relax.transform.FuseOps()(mod)": "mod"},
    "r03": {"relax.transform.FoldConstant()(build(True))": "build(True)"},
    "r19": {"relax.transform.EliminateCommonSubexpr()": "tvmpass_cse"},
}


def point(bench: Bench) -> Verdict:
    folder = str(bench.shared / "cases" / "stock_faults")
    results = bench.items("E", SCRIPTS, lambda name: bench.child("stock_faults:check", folder, name))
    bad = [f"{n}: {r.get('error') or r.get('text')}" for n, r in results.items() if not r.get("ok")]
    return Verdict(not bad, "; ".join(bad) or f"none of {len(results)} shows", results)


def check(folder: str, name: str) -> dict:
    """Judge one script's module under tvmpass."""
    own: dict[str, Callable[[str], dict]] = {
        "r09": integer_division,
        "r12": config_names,
        "r21": over_fusion,
        "r26": empty_reductions,
    }
    return own.get(name, run_script(name))(folder)


def build_and_run(mod, arguments, pipe="default", fn="main"):
    """Stand in for the scripts' ``run``."""
    import tvm

    import tvmpass

    library = tvmpass.build(mod, target="llvm")
    out = library.vm()[fn](*[tvm.runtime.tensor(a) if isinstance(a, np.ndarray) else a for a in arguments])
    return to_numpy(out)


def to_numpy(out):
    return out.numpy() if hasattr(out, "numpy") else [to_numpy(item) for item in out]


def load_script(folder: str, name: str) -> dict:
    """Execute a script without its last line, with our ``run``; return its names."""
    import tvmpass

    sys.path.insert(0, folder)
    source = (Path(folder) / f"{SCRIPTS[name]}.py").read_text()
    source = source.replace("guard(main)", "")
    for theirs, ours in REPLACED.get(name, {}).items():
        if theirs not in source:
            raise ValueError(f"{SCRIPTS[name]} no longer holds {theirs!r}")
        source = source.replace(theirs, ours)
    # TVMScript reads the source of a module from its file, so it needs one.
    path = Path(tempfile.mkdtemp()) / f"{SCRIPTS[name]}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(SCRIPTS[name], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[SCRIPTS[name]] = module
    spec.loader.exec_module(module)
    names = vars(module)
    names["tvmpass_cse"] = common_subexpressions
    names["run"] = build_and_run
    if "from_onnx" in names:
        names["from_onnx"] = lambda model: tvmpass.load(model)
    return names


def run_script(name: str) -> Callable[[str], dict]:
    def judge(folder: str) -> dict:
        names = load_script(folder, name)
        said: list[tuple[str, str]] = []
        names["verdict"] = lambda kind, note="": said.append((kind, note))
        with contextlib.redirect_stdout(io.StringIO()) as out:
            names["main"]()
        kind, note = said[-1]
        return {"ok": kind == "FIXED", "text": f"{kind} {note}", "printed": out.getvalue()[-2000:]}

    return judge


def common_subexpressions(mod):
    """Apply our rule for common subexpressions as a pass."""
    from relay_passes.simplify.common_subexpressions import CommonSubexpressions
    from tvmpass.core.engine import run_rule

    return run_rule(CommonSubexpressions(), mod)[0]


def integer_division(folder: str) -> dict:
    """Division by zero gives 0 and the least integer over -1 wraps; the process lives."""
    from tvm import relax

    least = np.iinfo("int32").min
    a = np.array([4, 9, least, -7, 7, 0], "int32")
    b = np.array([2, 0, -1, 2, -2, 0], "int32")
    wrong = {}
    with np.errstate(all="ignore"):
        safe = np.where(b == 0, 1, b)
        wide = a.astype("int64")
        truncated = np.trunc(wide / safe).astype("int64")
        wanted = {
            "divide": np.where(b == 0, 0, truncated.astype("int32")),
            "floor_divide": np.where(b == 0, 0, np.floor_divide(wide, safe).astype("int32")),
            "mod": np.where(b == 0, 0, np.mod(wide, safe).astype("int32")),
            "floor_mod": np.where(b == 0, 0, np.mod(wide, safe).astype("int32")),
        }
    for name, expected in wanted.items():
        op = getattr(relax.op, name, None)
        if op is None:
            continue
        got = build_and_run(_binary(op, "int32", len(a)), [a, b])
        fits = np.array_equal(got, expected)
        if not fits and name == "mod":
            # The sign of a remainder follows C (the dividend) or Python (the divisor).
            fits = np.array_equal(got, np.where(b == 0, 0, np.fmod(wide, safe).astype("int32")))
        if not fits:
            wrong[name] = {"got": got.tolist(), "wanted": expected.tolist()}
    return {"ok": not wrong, "text": "divisions by zero answered" if not wrong else f"wrong: {wrong}"}


def _binary(op, dtype: str, size: int):
    from tvm import relax

    builder = relax.BlockBuilder()
    a, b = (relax.Var(n, relax.TensorType([size], dtype)) for n in "ab")
    with builder.function("main", [a, b]):
        with builder.dataflow():
            out = builder.emit_output(op(a, b))
        builder.emit_func_output(out)
    return builder.get()


def config_names(folder: str) -> dict:
    """Unknown keys, names and levels are errors that name the nearest."""
    import tvmpass

    cases = {
        "tvmpass.fussion": ({"config": {"tvmpass.fussion": "never"}}, "tvmpass.fusion"),
        "tvmpass.fusion=nevr": ({"config": {"tvmpass.fusion": "nevr"}}, "never"),
        "tirx.disable_vectorise": ({"config": {"tirx.disable_vectorise": True}}, "tirx.disable_vectorize"),
        "disabled_pass": ({"disabled_pass": ["GrowEpilog"]}, "GrowEpilogue"),
        "required_pass": ({"required_pass": ["grow-epilog"]}, "grow-epilogue"),
        "opt_level": ({"opt_level": 99}, "0..3"),
    }
    wrong = {}
    for name, (arguments, needed) in cases.items():
        try:
            tvmpass.PassContext(**arguments)
            wrong[name] = "accepted"
        except tvmpass.UsageError as error:
            if needed not in str(error):
                wrong[name] = str(error)
    return {"ok": not wrong, "text": "each names the nearest" if not wrong else f"{wrong}"}


def over_fusion(folder: str) -> dict:
    """The modules of r21 give numpy's values (their speed is point G)."""
    names = load_script(folder, "r21")
    generator = np.random.default_rng(0)
    x = generator.uniform(-0.2, 0.2, (1, 1024)).astype("float32")
    b = generator.uniform(-0.2, 0.2, (512, 1024)).astype("float32")
    worst = 0.0
    for depth in (1, 4, 8):
        z = x.astype("float64")
        for _ in range(depth):
            z = np.exp(x.astype("float64") - z)
        wanted = b + z
        for split in (False, True):
            got = build_and_run(names["build"](depth, split), [x, b])
            worst = max(worst, float(np.abs(got - wanted).max() / np.abs(wanted).max()))
    return {"ok": worst <= 1e-5, "text": f"greatest relative difference {worst:.2g}"}


def empty_reductions(folder: str) -> dict:
    """A reduction over nothing gives its identity, never stale memory."""
    import tvm
    from tvm import relax, tirx

    import tvmpass

    names = load_script(folder, "r26")
    wanted = {"sum": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf, "mean": np.nan}
    wrong = {}

    def fits(got, name) -> bool:
        expected = np.full((2, 4), wanted[name], "float32")
        extreme = name in ("max", "min") and bool((np.abs(got) > 3e38).all())
        signed = not extreme or bool((np.sign(got) == np.sign(wanted[name])).all())
        return signed and (extreme or np.array_equal(got, expected, equal_nan=True))

    for name in wanted:
        got = build_and_run(names["mod_of"](name), [np.zeros((2, 0, 4), "float32")])
        if not fits(got, name):
            wrong[name] = got.ravel()[:4].tolist()
        n = tirx.Var("n", "int64")
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType([2, n, 4], "float32"))
        with builder.function("main", [x]):
            with builder.dataflow():
                out = builder.emit_output(getattr(relax.op, name)(x, axis=1))
            builder.emit_func_output(out)
        vm = tvmpass.build(builder.get(), target="llvm").vm()
        vm["main"](tvm.runtime.tensor(np.full((2, 3, 4), 5.0, "float32"))).numpy()  # leaves memory behind
        got = vm["main"](tvm.runtime.tensor(np.zeros((2, 0, 4), "float32"))).numpy()
        if not fits(got, name):
            wrong["symbolic " + name] = got.ravel()[:4].tolist()
    return {"ok": not wrong, "text": "identities" if not wrong else f"{wrong}"}
