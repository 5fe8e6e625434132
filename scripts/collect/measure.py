"""Cut graphs into kernels as the fusion rules propose, and time every kernel."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import tvm
from tvm import tirx

from relay_passes import fusion
from schedules.cpu.pack import packing
from tir_passes.recipes import RECIPE_VERSION, apply_recipe, finish, recipes
from tvmpass import catalogue
from tvmpass.compile.canonical import canonicalize
from tvmpass.compile.kernel_key import kernel_key, record_key
from tvmpass.compile.latency import Latency
from tvmpass.compile.schedule import Scheduler, is_schedulable
from tvmpass.core.decision import Refusal
from tvmpass.core.engine import Sites, simplify
from tvmpass.core.kernels import classify
from tvmpass.core.options import Options
from tvmpass.core.report import Ledger
from tvmpass.core.site import FunctionView
from tvmpass.cost.device import device_class
from tvmpass.cost.features import INDEX
from tvmpass.tune.fusion_alternatives import (
    MAX_CANDIDATES,
    Cut,
    alternative_line,
    chains_of,
    cut,
    few,
    group_key,
    lower_parts,
)

from .graphs import make_graph

BATCH = 6
"""Graphs lowered and compiled together."""

EXTRA_RECIPES = 0.3
"""Share of the kernels of which another recipe than the library's choice is measured too."""

SLOT_US = 400.0
ROUNDS = 7
MAX_US = 30_000.0
MAX_WRITTEN = 3_000.0
"""Nodes of one value, repeats written out, above which code generation may take minutes."""

MAX_NOISE = 0.25
"""Half the spread between quartiles over the median, above which a time is thrown away."""


@dataclass
class Measured:
    """One scheduled form of a kernel and its times per run in µs."""

    kernel_key: str
    kind: str
    recipe: str
    function: tirx.PrimFunc
    features: np.ndarray
    samples: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return float(np.median(self.samples))


class Collector:
    """Makes graphs, measures them, writes lines; knows every kernel it has written."""

    extra_recipes: float = EXTRA_RECIPES
    """Other recipes of a kernel measured beside the library's choice, on average."""

    scale: float = 1.0
    """Of the graphs, against those that suit one core of a CPU."""

    written: int = INDEX["written"]
    """Where the feature vector says how large the largest value is, repeats written out."""

    def __init__(self, target, options: Options):
        self.target, self.options = target, options
        self.device_class = device_class(target, 1)
        self.rules = [rule() for rule in fusion.RULES]
        self.simplify_rules = catalogue.of_kind(catalogue.rules(), "simplify")
        self.scheduler = Scheduler(target, options, Latency(target, options))
        self.rng = np.random.default_rng()
        self.times: dict[str, float] = {}
        self.counts: Counter[str] = Counter()
        self.lines: list[str] = []
        self.name = ""

    def batch(self, seed: tuple[int, int]) -> tuple[list[str], Counter[str]]:
        """Collect `BATCH` graphs; return the lines to write and what was counted.

        A graph that cannot be lowered is counted and left out.
        """
        self.rng, self.counts, self.lines = np.random.default_rng(seed), Counter(), []
        self.name = "-".join(map(str, seed))
        graphs, functions, palette = [], {}, {}
        for _ in range(BATCH):
            family, mod = make_graph(self.rng, palette, self.scale)
            mod = simplify(canonicalize(mod), self.simplify_rules, Sites(Ledger()), None)
            view = FunctionView(mod, "main")
            cuts, made = self.cuts(view)
            if len(cuts) > 1:
                graphs.append((family, cuts))
                functions.update(made)
        lowered = self.lower(functions)
        kernels: dict[str, Measured] = {}
        chosen: dict[str, str] = {}
        for key, function in lowered.items():
            for measured in self.forms(function):
                name = f"{measured.kernel_key}/{measured.recipe}"
                kernels.setdefault(name, measured)
                chosen.setdefault(key, measured.kernel_key)
        self.measure(kernels)
        for family, cuts in graphs:
            self.write_graph(family, cuts, chosen)
        return self.lines, self.counts

    def cuts(self, view: FunctionView):
        """Return the alternatives of a graph and the group functions they need."""
        return cut(view, list(view.bindings), self.candidates(view))

    def candidates(self, view: FunctionView) -> list[tuple]:
        """Return what the fusion rules propose: the longest, the shortest, some between."""
        found = dict.fromkeys(c for rule in self.rules for chains in chains_of(view, rule) for c in chains)
        ordered = sorted(found, key=len, reverse=True)
        return few(ordered, lambda count: sorted(self.rng.permutation(count)[: MAX_CANDIDATES - 2].tolist()))

    def lower(self, functions) -> dict[str, tirx.PrimFunc]:
        """Lower group functions together; one that cannot be lowered is counted and left out."""
        return lower_parts(functions, self.target, self.options, lambda error: self.fail("lower", error))

    def forms(self, function: tirx.PrimFunc) -> Iterator[Measured]:
        """Yield a kernel as the library schedules it, with other recipes, and with its weight packed."""
        yield from self.recipes_of(function)
        if is_schedulable(function) and (packed := packing(classify(function), self.target)) is not None:
            yield from self.recipes_of(packed.pack_function(function))

    def recipes_of(self, function: tirx.PrimFunc) -> Iterator[Measured]:
        try:
            made = self.scheduler.schedule(function)
        except Exception as error:  # a schedule that raises is a fault to count, not the end
            self.fail("schedule", error)
            return
        key = kernel_key(function, self.device_class, self.options)
        used = made.schedule.removeprefix("library:")
        yield Measured(key, made.kernel.kind, used, made.function, made.features)
        others = [r for r in recipes(made.kernel, self.target, self.options) if str(r) != used]
        plain = made.kernel.func
        extra = int(self.extra_recipes)
        extra += int(self.rng.random() < self.extra_recipes - extra)
        for index in self.rng.permutation(len(others))[:extra].tolist():
            try:
                result = apply_recipe(others[index], plain, self.target)
                if isinstance(result, Refusal):
                    continue
                scheduled = finish(result, self.target, self.options)
                features = self.scheduler.latency.features(scheduled)
            except Exception as error:  # as above
                self.fail("recipe", error)
                continue
            yield Measured(key, made.kernel.kind, str(others[index]), scheduled, features)

    def measure(self, kernels: dict[str, Measured]) -> None:
        """Compile all kernels into one module, time each, write the good ones."""
        fresh = {n: k for n, k in kernels.items() if n not in self.times and not self.too_large(k)}
        if not fresh:
            return
        runtime = self.compile({f"k{i}": k.function for i, k in enumerate(fresh.values())})
        for i, (name, kernel) in enumerate(fresh.items()):
            if runtime is None:
                alone = self.compile({f"k{i}": kernel.function})
            else:
                alone = runtime
            if alone is None:
                continue
            try:
                kernel.samples = time_kernel(alone, f"k{i}", kernel.function, self.rng)
            except Exception as error:  # as above
                self.fail("run", error)
                continue
            if kernel.samples:
                self.times[name] = kernel.median
                self.times.setdefault(kernel.kernel_key, kernel.median)
                self.write_kernel(kernel)
            else:
                self.counts["too noisy or slow"] += 1

    def too_large(self, kernel: Measured) -> bool:
        """Return True where inlining repeats values so often that compiling would not end."""
        large = math.expm1(float(kernel.features[self.written])) > MAX_WRITTEN
        self.counts["too large to compile"] += large
        return large

    def compile(self, functions):
        """Return a runtime module, or None where code generation fails."""
        mod = tvm.IRModule({n: f.with_attr("global_symbol", n) for n, f in functions.items()})
        try:
            return tvm.compile(mod, self.target).jit()
        except Exception as error:  # as above
            if len(functions) == 1:
                self.fail("compile", error)
            return None

    def fail(self, where: str, error: Exception) -> None:
        """Count and show a fault."""
        lines = [line for line in str(error).strip().splitlines() if line.strip()]
        text = f"{where}: {type(error).__name__}: {lines[-1][:160] if lines else ''}"
        print(f"\n{text}", file=sys.stderr)
        self.counts[f"fault: {where}"] += 1

    def write_kernel(self, kernel: Measured) -> None:
        version = self.recipe_version(kernel.kind)
        self.counts[kernel.kind] += 1
        self.line(
            {
                "key": record_key(kernel.kernel_key, kernel.recipe, version),
                "kernel_key": kernel.kernel_key,
                "kind": kernel.kind,
                "recipe": kernel.recipe,
                "trace": None,
                "recipe_version": version,
                "role": "train",
                "status": "ok",
                "median_us": _round(kernel.median),
                "samples_us": [_round(min(kernel.samples)), _round(max(kernel.samples))],
                "candidate0_us": None,
                "features": [_short(v) for v in kernel.features.tolist()],
            }
        )

    def recipe_version(self, kind: str) -> int:
        return RECIPE_VERSION.get(kind, 0)

    def write_graph(self, family: str, cuts: list[Cut], chosen: dict[str, str]) -> None:
        """Write the alternatives whose kernels were all measured, if two or more were."""
        lines = []
        off = cuts[0].parts
        key = group_key(chosen.get(p, p) for p in off)
        for way in cuts:
            keys = [chosen.get(part) for part in way.parts]
            if all(k in self.times for k in keys):
                total = sum(self.times[k] for k in keys)
                lines.append({**alternative_line(key, way.name, keys, _round(total)), "family": family})
        if len(lines) > 1 and lines[0]["alternative"] == "off":
            self.counts["graphs"] += 1
            for line in lines:
                self.line(line)

    def line(self, entry: dict) -> None:
        self.lines.append(json.dumps(entry, separators=(",", ":")) + "\n")


def time_kernel(runtime, name: str, function: tirx.PrimFunc, rng) -> list[float]:
    """Return the times of `ROUNDS` slots in µs per run, none where noisy or slow."""
    device = tvm.cpu()
    arguments = [argument(p, rng, device) for p in function.params]
    once = runtime.time_evaluator(name, device, number=1, repeat=3)(*arguments)
    first = min(once.results) * 1e6
    if first > MAX_US:
        return []
    number = int(min(2000, max(1, math.ceil(SLOT_US / max(first, 0.05)))))
    timer = runtime.time_evaluator(name, device, number=number, repeat=ROUNDS)
    for _ in range(2):
        samples = sorted(s * 1e6 for s in timer(*arguments).results)
        median = samples[len(samples) // 2]
        quarter = len(samples) // 4
        if (samples[-1 - quarter] - samples[quarter]) / 2 <= MAX_NOISE * median:
            return samples
    return []


def argument(param, rng, device):
    """Return a tensor on ``device`` that suits a parameter: values in 0.5 .. 1.5, small indices."""
    shape = [int(d) for d in param.ty.shape]
    dtype = str(param.ty.dtype)
    if dtype.startswith("float"):
        values = rng.random(shape, dtype=np.float32).astype(dtype) + np.array(0.5, dtype)
        return tvm.runtime.tensor(values, device)
    if dtype == "bool":
        return tvm.runtime.tensor(rng.random(shape) < 0.5, device)
    return tvm.runtime.tensor(rng.integers(0, 2, shape).astype(dtype), device)


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def _short(value: float) -> float | int:
    rounded = round(value, 3)
    return int(rounded) if rounded == int(rounded) else rounded
