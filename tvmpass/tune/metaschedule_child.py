"""The child's side of `metaschedule`: one batch of MetaSchedule's evolutionary search.

TVM's own set-up imports every tensor intrinsic, which takes most of a minute and
none of which the rules below use; so the tuning context is made here by hand.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule import _ffi_api
from tvm.s_tir.meta_schedule.logging import get_logging_func
from tvm.s_tir.meta_schedule.tune_context import TuneContext

from tvmpass.catalogue import finish, parse_recipe
from tvmpass.compile.latency import Latency
from tvmpass.compile.trace import renamed, trace_text
from tvmpass.compile.tuned import apply_candidate
from tvmpass.core.decision import Refusal
from tvmpass.core.errors import TvmpassError
from tvmpass.core.kernels import classify
from tvmpass.core.options import Options

from .refit import SessionModel

POPULATION = 48
GENERATIONS = 3
SPARE = 2
"""Candidates asked of the search for each that is wanted: some were measured before."""

MAX_VECTOR = 16
UNROLL = [0, 16, 64, 256]
_TILE, _CHOICE, _PLACE = "SamplePerfectTile", "SampleCategorical", "SampleComputeLocation"
_INLINE = -2
"""The decision for a block's place that means: wherever it is used."""
_SEEDS = 6
"""Schedules near a recipe's tiles, of each kind."""
_FEW_ROWS, _WINDOW = 6, 7
"""Rows that may be taken together, and the longest row of a window that is unrolled."""


def warm_up() -> None:
    """Import and touch what every batch uses, before the children are forked."""
    import xgboost  # noqa: F401 - refitted models are read with it

    _cpu_rules(1)
    logging.getLogger(__name__).setLevel(logging.ERROR)


def propose(
    function: str,
    target: str,
    options: dict[str, Any],
    kind: str,
    candidate0: list[str | None],
    recipe: str | None,
    measured: list[list[Any]],
    seen: list[str],
    count: int,
    seed: int,
    model: dict[str, Any],
) -> list[str]:
    """Return up to ``count`` new traces for a kernel, the most promising first.

    ``measured`` lists traces with their time over candidate 0's (None: failed),
    ``seen`` further ones not to be proposed; ``recipe`` is the best recipe known.
    """
    parts: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in options.items()}
    batch = _Batch(
        tvm.ir.load_json(function), tvm.target.Target(json.loads(target)), Options(**parts), kind, model
    )
    batch.compare_with(*candidate0)
    return batch.run(recipe, measured, seen, count, seed)


class _Batch:
    """One kernel and what its candidates are judged by."""

    def __init__(
        self,
        function: tirx.PrimFunc,
        target: tvm.target.Target,
        options: Options,
        kind: str,
        model: dict[str, Any],
    ):
        self.function, self.target, self.options, self.kind = function, target, options, kind
        self.latency = Latency(target, options)
        self.model = SessionModel.from_json(self.latency, model)
        # Equal kernels share traces, whatever their blocks are called.
        self.module = tvm.IRModule({"main": renamed(function).with_attr("global_symbol", "main")})
        self.base = np.zeros(0, dtype=np.float32)

    def compare_with(self, recipe: str | None, trace: str | None) -> None:
        """Set candidate 0; the fallback stands for one that needs a rule file's steps."""
        made = apply_candidate(self.function, recipe, trace, self.target, self.options)
        if isinstance(made, Refusal):
            made = apply_candidate(self.function, None, None, self.target, self.options)
        self.base = self.latency.features(made)

    def run(
        self, recipe: str | None, measured: list[list[Any]], seen: list[str], count: int, seed: int
    ) -> list[str]:
        space = self._space(seed)
        database = ms.database.MemoryDatabase()
        workload = database.commit_workload(self.module)
        arguments = ms.arg_info.ArgInfo.from_prim_func(self.module["main"])

        def keep(schedule: s_tir.Schedule, ratio: float) -> None:
            database.commit_tuning_record(
                ms.database.TuningRecord(schedule.trace, workload, [ratio * 1e-3], self.target, arguments)
            )

        known: set[int] = set()
        for text, ratio in [*measured, *([text, None] for text in seen)]:
            made = apply_candidate(self.function, None, text, self.target, self.options)
            if isinstance(made, Refusal):  # of a file of others: nothing of it is run
                continue
            known.add(tvm_ffi.structural_hash(made))
            if ratio is not None:
                schedule = s_tir.Schedule(self.module)
                s_tir.schedule.Trace.apply_json_to_schedule(json.loads(text), schedule)
                keep(schedule, ratio)
        designs = list(space.generate_design_space())
        seeds = [] if measured else self._seeds(space, designs, recipe)
        for schedule in seeds:
            keep(schedule, float(1.0 / self._scores([schedule])[0]))
        wanted = SPARE * count
        space.pre_tuning(wanted, wanted, designs, database, _model(self._scores))
        found = [candidate.sch for candidate in space.generate_measure_candidates() or ()]
        return self._choose(seeds, found, known, count)

    def _space(self, seed: int) -> TuneContext:
        strategy = ms.search_strategy.EvolutionarySearch(
            population_size=POPULATION,
            init_measured_ratio=0.4,
            init_min_unmeasured=POPULATION // 3,
            genetic_num_iters=GENERATIONS,
            eps_greedy=0.1,
        )
        context = TuneContext.__new__(TuneContext)
        log = get_logging_func(logging.getLogger(__name__))
        context.__init_handle_by_constructor__(
            _ffi_api.TuneContext,
            self.module,
            self.target,
            _rules(self.target, self.options.threads),
            strategy,
            "main",
            1,
            seed,
            log,
        )
        _ffi_api.TuneContextInitialize(context)
        return context

    def _scores(self, schedules: list[s_tir.Schedule]) -> np.ndarray:
        """Return how many times as fast as candidate 0 each is expected to be, 0 where that fails."""
        rows: list[np.ndarray] = []
        places: list[int] = []
        for place, schedule in enumerate(schedules):
            try:
                made = finish(schedule.mod["main"], self.target, self.options)
                rows.append(self.latency.features(made))
                places.append(place)
            except Exception as error:  # one candidate of TVM's making; the search goes on without it
                logging.getLogger(__name__).debug("not priced: %s", error)
        scores = np.zeros(len(schedules), dtype=np.float64)
        for place, comparison in zip(places, self.model.compare(rows, self.base, self.kind)):
            scores[place] = np.exp(-comparison.mean)
        return scores

    def _choose(
        self, seeds: list[s_tir.Schedule], found: list[s_tir.Schedule], known: set[int], count: int
    ) -> list[str]:
        """Return texts that make, from the text alone, kernels that are new.

        Half of the first ones are seeds; the rest come in the
        search's own order, which keeps some chosen by chance: what the cost model
        cannot see is found by these.
        """
        texts = self._new(seeds, known, max(1, count // 2))
        texts += self._new(found, known, count - len(texts))
        return texts + self._new(seeds, known, count - len(texts))

    def _new(self, schedules: list[s_tir.Schedule], known: set[int], count: int) -> list[str]:
        texts: list[str] = []
        for schedule in schedules:
            if len(texts) >= count:
                break
            text = trace_text(schedule)
            made = apply_candidate(self.function, None, text, self.target, self.options)
            if isinstance(made, Refusal):
                continue
            mark = tvm_ffi.structural_hash(made)
            if mark not in known:
                known.add(mark)
                texts.append(text)
        return texts

    def _seeds(
        self, space: TuneContext, designs: list[s_tir.Schedule], recipe: str | None
    ) -> list[s_tir.Schedule]:
        """Return schedules whose tiles are near those of the recipe, as far as extents divide.

        They come in turns of kinds, the best of each kind first: what stands
        before the anchor computed where it is used or apart, the image's rows
        one by one or together.  The cost model cannot see that conditions on
        unrolled loops go away.
        """
        tile = _tile_of(recipe)
        kernel = classify(self.function)
        if tile is None or not kernel.static:
            return []
        sizes = [(i.size or 1, i.reduce) for i in kernel.iterations]
        kinds: dict[tuple[bool, bool], list[s_tir.Schedule]] = {}
        for design in designs:
            splits = [inst for inst in design.trace.insts if inst.kind.name == _TILE]
            if len(splits) < len(sizes):
                continue
            for whole, factors in _decisions(sizes, *tile):
                for inlined in (True, False):
                    made = self._decided(space, design, splits, factors, inlined)
                    if made is not None:
                        kinds.setdefault((whole, inlined), []).append(made)
        ranked = []
        for schedules in kinds.values():
            order = np.argsort(-self._scores(schedules), kind="stable").tolist()
            ranked.append([schedules[place] for place in order[:_SEEDS]])
        turns = itertools.zip_longest(*ranked)
        return [schedule for turn in turns for schedule in turn if schedule is not None]

    def _decided(
        self,
        space: TuneContext,
        design: s_tir.Schedule,
        splits: list[Any],
        factors: list[list[int]],
        inlined: bool,
    ) -> s_tir.Schedule | None:
        """Return a design with these tiles, as far unrolled as may be; None where TVM refuses."""
        trace = design.trace
        decided: dict[Any, Any] = dict(zip(splits, factors))
        for inst in trace.insts:
            if inst.kind.name == _CHOICE and len(inst.attrs[0]) == len(UNROLL):
                decided[inst] = len(UNROLL) - 1
            elif inst.kind.name == _PLACE and inlined:
                decided[inst] = _INLINE
        for inst, decision in decided.items():
            trace = trace.with_decision(inst, decision, remove_postproc=True)
        schedule = s_tir.Schedule(self.module)
        try:
            trace.apply_to_schedule(schedule, remove_postproc=True)
            schedule.enter_postproc()
            fits = all(post.apply(schedule) for post in space.space_generator.postprocs)
        except Exception as error:  # tiles that TVM cannot make of this kernel
            logging.getLogger(__name__).debug("no such tiles: %s", error)
            return None
        return schedule if fits else None


def _rules(target: tvm.target.Target, threads: int) -> Any:
    """Return the generator of schedules for a target."""
    if target.kind.name != "cuda":
        return _cpu_rules(threads)
    # Those without tensor cores: they need no intrinsics, and recipes have tensor cores.
    return ms.space_generator.PostOrderApply(sch_rules="cuda", postprocs="cuda", mutator_probs="cuda")


def _cpu_rules(threads: int) -> Any:
    """Return the generator of schedules for CPUs.

    As TVM's for LLVM, but: vectors of at most 16 elements; no re-laid weights
    (they belong to the caller); threads only where there are several.
    """
    rule, post, mutate = ms.schedule_rule, ms.postproc, ms.mutator
    jobs = 4 if threads > 1 else -1
    inline = rule.AutoInline(
        into_producer=False,
        into_consumer=True,
        inline_const_tensor=True,
        disallow_if_then_else=True,
        require_injective=True,
        require_ordered=True,
        disallow_op=["tirx.exp"],
    )
    tiling = rule.MultiLevelTiling(
        structure="SSRSRS",
        max_innermost_factor=64,
        reuse_write=rule.ReuseType(req="may", levels=[1, 2], scope="global"),
    )
    rules = [
        rule.InlineConstantScalars(),
        inline,
        rule.AddRFactor(max_jobs_per_core=jobs, max_innermost_factor=64),
        tiling,
        rule.ParallelizeVectorizeUnroll(jobs, MAX_VECTOR, UNROLL, True),
        rule.RandomComputeLocation(),
    ]
    posts = [post.DisallowDynamicLoop(), post.RewriteParallelVectorizeUnroll(), post.RewriteReductionBlock()]
    mutators = {
        mutate.MutateTileSize(): 0.85,
        mutate.MutateComputeLocation(): 0.1,
        mutate.MutateUnroll(): 0.05,
    }
    return ms.space_generator.PostOrderApply(sch_rules=rules, postprocs=posts, mutator_probs=mutators)


def _model(scores) -> Any:
    """Return ``scores`` as a cost model of MetaSchedule's."""

    @derived_object
    class Model(ms.cost_model.PyCostModel):
        def load(self, path: str) -> None:
            raise NotImplementedError("it is made from the session's")

        def save(self, path: str) -> None:
            raise NotImplementedError("the session keeps it")

        def update(self, context, candidates, results) -> None:
            """Nothing: the session learns, and gives what it learned with the next batch."""

        def predict(self, context, candidates) -> np.ndarray:
            return scores([candidate.sch for candidate in candidates])

    return Model()


def _tile_of(recipe: str | None) -> tuple[int, int, int] | None:
    """Return rows, lanes and vectors of the recipe's tile step, None where it has none."""
    if recipe is None:
        return None
    try:
        steps = parse_recipe(recipe).steps
    except TvmpassError:
        return None  # steps of a rule file
    for step in steps:
        n, lanes = getattr(step, "n", None), getattr(step, "lanes", None)
        if isinstance(n, int) and isinstance(lanes, int) and lanes:
            return max(1, getattr(step, "m", 1)), lanes, max(1, n // lanes)
    return None


def _decisions(
    sizes: list[tuple[int, bool]], m: int, lanes: int, vectors: int
) -> Iterator[tuple[bool, list[list[int]]]]:
    """Yield the factors of every loop, and whether the rows of an image are taken together.

    Tiles are near m x vectors x lanes; the window is walked inside them or outside.
    """
    spatial = [size for size, reduce in sizes if not reduce]
    n = spatial[-1]
    wide = [place for place, size in enumerate(spatial[:-1]) if size > 1]
    row = wide[-1] if wide else None
    high = wide[-2] if len(wide) > 1 and spatial[wide[-2]] <= _FEW_ROWS else None
    widths = [w for w in (lanes, lanes // 2) if w and n % w == 0] or [_near(n, lanes)]
    for whole in (False, True) if high is not None else (False,):
        target = max(1, m // spatial[high]) if whole and high is not None else m
        rows = [1] if row is None else sorted({_near(spatial[row], target), _near(spatial[row], target // 2)})
        for width, tall, inner in itertools.product(widths, rows, (False, True)):
            groups = _near(n // width, vectors)
            last = [n // width // groups, 1, groups, width]
            spatial_factors = [[size, 1, 1, 1] for size in spatial[:-1]] + [last]
            if row is not None:
                spatial_factors[row] = [spatial[row] // tall, 1, tall, 1]
            if whole and high is not None:
                spatial_factors[high] = [1, 1, spatial[high], 1]
            places = iter(spatial_factors)
            yield (
                whole,
                [
                    ([1, size] if (inner or whole) and size <= _WINDOW else [size, 1])
                    if reduce
                    else next(places)
                    for size, reduce in sizes
                ],
            )


def _near(size: int, wanted: int) -> int:
    """Return the divisor of ``size`` that is nearest to ``wanted``, the smaller of two."""
    return min((d for d in range(1, size + 1) if size % d == 0), key=lambda d: (abs(d - wanted), d))
