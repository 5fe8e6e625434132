"""What to try next on one kernel: recipes in the order of their price, then traces.

The order: recipes of ``--rules`` files, since the user asks for them; one recipe
of each family (the same steps with other options), since prices err by family;
the library's other recipes and changes of single options around the best one,
the most promising first; MetaSchedule's search.  Nothing is proposed twice, and the
same measurements give the same proposals.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tvm_ffi

from tvmpass.catalogue import parse_recipe, recipes
from tvmpass.compile.latency import Latency
from tvmpass.compile.tuned import apply_candidate, is_schedulable
from tvmpass.core.decision import Refusal
from tvmpass.core.errors import TvmpassError
from tvmpass.core.kernels import classify

from .neighbours import neighbours
from .refit import Comparison, SessionModel
from .work import Candidate, Measurement, Workload, ratio_of

HOPELESS = 0.45
"""A recipe whose expected ratio is e to this times the best's waits until all else is tried."""

PATIENCE = 3
"""Batches of traces without a better one, after which a kernel's trace search ends."""

MAX_TRACES = 96

TRACE_MEAN, TRACE_SD = {"matmul": 0.35, "conv": 0.3}, 0.2
"""What to expect of a trace beside candidate 0, in log space, before any was measured.

Measured: traces come near recipes on products only where these are small.
"""


class TraceSource(Protocol):
    """Where traces come from: MetaSchedule's search in a process of its own."""

    def propose(
        self, workload: Workload, measured: Sequence[Measured], count: int, seed: int, model: SessionModel
    ) -> list[str]:
        """Return up to ``count`` new traces; [] where the search finds no more."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Measured:
    """A candidate that was measured, with its time over candidate 0's (None: it failed)."""

    candidate: Candidate
    ratio: float | None


@dataclass
class _Option:
    """A recipe that may be proposed, with the features of what it makes."""

    candidate: Candidate
    features: np.ndarray
    family: str
    guess: float
    comparison: Comparison


class TaskSearch:
    """Proposes candidates for one workload and learns from their measurements."""

    def __init__(
        self,
        workload: Workload,
        latency: Latency,
        model: SessionModel,
        done: Collection[str] = (),
        *,
        rule_files: Sequence[str | Path] = (),
        traces: TraceSource | None = None,
    ):
        """Prepare the search; nothing is scheduled or priced before it is asked.

        ``done`` holds the `Candidate.text` of what needs no proposal.  What
        earlier sessions measured is best told (`tell`), which implies it.
        ``rule_files`` may define ``recipes(kernel, target, options)``.  Where
        ``traces`` is None there are none; whoever gives it closes it.
        """
        self.workload, self.latency, self.model = workload, latency, model
        self._seen = {*done, workload.candidate0.text}
        self._rule_files, self._traces = tuple(map(str, rule_files)), traces
        self._options: dict[str, _Option] = {}
        self._asked: list[str] = []
        self._hashes: set[int] = set()
        self._around: set[str] = set()
        self._measured: dict[str, Measured] = {}
        self._families = {family_of(t) for t in (workload.candidate0.recipe, *done)}
        self._best, self._best_recipe = 1.0, workload.candidate0.recipe
        self._base: np.ndarray | None = None
        self._ready = False
        self._priced_by = -1
        self._traces_given, self._idle = 0, 0
        self._traces_left = traces is not None and is_schedulable(workload.function)

    def propose(self, count: int) -> list[Candidate]:
        """Return up to ``count`` candidates never proposed before; [] = nothing is left."""
        self._prepare()
        found = [Candidate(recipe=text) for text in self._take_asked(count)]
        found += self._take_options(count - len(found), self._limit())
        if len(found) < count:
            found += self._take_traces(count - len(found))
        if not found:
            found = self._take_options(count, math.inf)
        self._seen.update(candidate.text for candidate in found)
        return found

    def tell(self, candidate: Candidate, measurement: Measurement) -> None:
        """Learn how a candidate went; also for records of earlier sessions."""
        text = candidate.text
        self._seen.add(text)
        self._families.add(family_of(candidate.recipe))
        self._options.pop(text, None)
        if text == self.workload.candidate0.text:
            return
        ratio = ratio_of(measurement)
        self._measured[text] = Measured(candidate, ratio)
        better = False
        if ratio is not None and ratio < self._best:
            better, self._best = True, ratio
            self._best_recipe = candidate.recipe or self._best_recipe
        if candidate.trace is not None:
            self._idle = 0 if better else self._idle + 1
        if ratio is not None and measurement.features is not None:
            self._prepare()
            if self._base is not None and len(measurement.features) == len(self._base):
                self.model.add(
                    np.array(measurement.features, dtype=np.float32),
                    self._base,
                    self.workload.kind,
                    ratio,
                    self.workload.kernel_key,
                    family_of(candidate.recipe),
                )

    def expected(self) -> float:
        """Return what the next candidate makes of the time, over candidate 0's; at most 1.

        This is the expected value of the smaller of the best ratio so far and
        the next candidate's: ``best - expected()`` is what a trial may gain.
        """
        self._prepare()
        self._reprice()
        best = min(self._best, 1.0)
        values = [option.comparison.below(best) for option in self._options.values()]
        if self._asked:
            values.append(Comparison(0.0, TRACE_SD).below(best))
        if self._traces_left:
            mean = TRACE_MEAN.get(self.workload.kind, 0.1) + 0.05 * self._idle
            values.append(Comparison(mean, TRACE_SD).below(best))
        return min([best, *values])

    @property
    def best(self) -> float:
        """Return the best measured time over candidate 0's, at most 1."""
        return min(self._best, 1.0)

    def close(self) -> None:
        """Forget what is left; the source of traces belongs to whoever made it."""
        self._options.clear()
        self._asked, self._traces_left = [], False

    def _prepare(self) -> None:
        """Schedule and price what the generator lists; once."""
        if self._ready:
            return
        self._ready = True
        work = self.workload
        self._asked = [t for t in _asked_for(self._rule_files, work) if t not in self._seen]
        made = self._apply(work.candidate0.recipe, work.candidate0.trace)
        if made is None:
            return
        self._base = self.latency.features(made)
        self._hashes.add(tvm_ffi.structural_hash(made))
        kernel = classify(work.function)
        listed = recipes(kernel, work.target, work.options) if is_schedulable(work.function) else []
        self._offer(str(recipe) for recipe in listed)

    def _apply(self, recipe: str | None, trace: str | None = None):
        """Return the scheduled kernel, None where the recipe does not fit."""
        work = self.workload
        made = apply_candidate(work.function, recipe, trace, work.target, work.options)
        return None if isinstance(made, Refusal) else made

    def _offer(self, texts: Iterable[str]) -> None:
        """Price recipes by text; one that makes a kernel already known is left out."""
        new: list[tuple[str, np.ndarray]] = []
        for text in texts:
            if text in self._options:
                continue
            made = self._apply(text)
            if made is None:
                continue
            known = tvm_ffi.structural_hash(made)
            if known in self._hashes:
                continue
            self._hashes.add(known)
            if text not in self._seen:
                new.append((text, self.latency.features(made)))
        assert self._base is not None
        for text, x in new:
            guess = self.model.guess(x, self._base, self.workload.kind)
            unjudged = Comparison(guess, self.model.sd)
            self._options[text] = _Option(Candidate(recipe=text), x, family_of(text), guess, unjudged)
        self._priced_by = -1

    def _reprice(self) -> None:
        """Price what is left anew, where the model has learned since."""
        if self._priced_by == self.model.version or not self._options:
            return
        self._priced_by = self.model.version
        options = list(self._options.values())
        assert self._base is not None
        compared = self.model.compare(
            [option.features for option in options],
            self._base,
            self.workload.kind,
            [option.family for option in options],
            self.workload.kernel_key,
            [option.guess for option in options],
        )
        for option, comparison in zip(options, compared):
            option.comparison = comparison

    def _limit(self) -> float:
        return math.log(min(self._best, 1.0)) + HOPELESS

    def _take_asked(self, count: int) -> list[str]:
        taken, self._asked = self._asked[:count], self._asked[count:]
        return taken

    def _take_options(self, count: int, limit: float) -> list[Candidate]:
        if count <= 0 or self._base is None:
            return []
        self._look_around()
        self._reprice()
        order = sorted(self._options.items(), key=lambda item: (item[1].comparison.mean, item[0]))
        taken: list[Candidate] = []
        for text, option in order:  # of each way to make the kernel one, whatever its price
            if len(taken) < count and option.family not in self._families:
                self._families.add(option.family)
                taken.append(self._options.pop(text).candidate)
        for text, option in order:
            if len(taken) < count and text in self._options and option.comparison.mean <= limit:
                taken.append(self._options.pop(text).candidate)
        return taken

    def _look_around(self) -> None:
        """Offer the neighbours of the best recipe, once for each that was the best."""
        text = self._best_recipe
        if text is None or text in self._around:
            return
        self._around.add(text)
        try:
            recipe = parse_recipe(text)
        except TvmpassError:
            return  # of a rule file: its steps are not run in this process
        self._offer(map(str, neighbours(recipe)))

    def _take_traces(self, count: int) -> list[Candidate]:
        if self._traces is None or not self._traces_left:
            return []
        if self._idle >= PATIENCE * count or self._traces_given >= MAX_TRACES:
            self._traces_left = False
            return []
        measured = list(self._measured.values())
        texts = self._traces.propose(self.workload, measured, count, self._seed(), self.model)
        found = [Candidate(trace=text) for text in texts if text not in self._seen]
        self._traces_given += len(found)
        self._traces_left = bool(found)
        return found

    def _seed(self) -> int:
        """Return a seed from the options, the kernel and how far the search is."""
        tried = sum(m.candidate.trace is not None for m in self._measured.values())
        text = f"{self.workload.options.seed} {self.workload.kernel_key} {tried}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % (2**31 - 2) + 1


def family_of(recipe: str | None) -> str:
    """Return the steps of a recipe without their options, "" for anything else."""
    if recipe is None:
        return ""
    return " ".join(step.partition("{")[0] for step in recipe.split())


def _asked_for(rule_files: Sequence[str], workload: Workload) -> list[str]:
    """Return what the ``recipes`` functions of rule files list for a kernel, in order."""
    if not rule_files:
        return []
    from .rule_files import recipes_of

    kernel = classify(workload.function)
    found: dict[str, Any] = {}
    for path in rule_files:
        for recipe in recipes_of(path, kernel, workload.target, workload.options):
            found.setdefault(recipe)
    return list(found)
