"""Give every kernel its schedule: the first recipe that applies, or the fallback.

One `Scheduler` serves pricing and building, so that a kernel priced for a
decision is the very kernel that is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvmpass.catalogue import apply_recipe, finish, parse_recipe, recipes
from tvmpass.core.decision import Estimate, Refusal
from tvmpass.core.errors import TvmpassError, last_line
from tvmpass.core.kernels import Kernel, classify
from tvmpass.core.options import Options
from tvmpass.core.rule import ScheduleRule

from .grouping import GROUP_ATTR, PACKED_ATTR
from .kernel_key import kernel_key
from .latency import Latency
from .record_files import TuningRecord
from .records import Records
from .tuned import STEP_RAISED, apply_candidate, fallback_kernel, is_schedulable

__all__ = ["STEP_RAISED", "ScheduledKernel", "Scheduler", "canonical_kernel", "is_schedulable"]

TUNED = "tuned"
"""How the report calls the schedule of a kernel that a tuning record gave."""


@dataclass
class ScheduledKernel:
    """A kernel before and after scheduling, with what the cost model says of it."""

    key: str
    kernel: Kernel
    function: tirx.PrimFunc
    schedule: str
    features: Any
    estimate: Estimate
    refused: list[tuple[str, Refusal]] = field(default_factory=list)
    alternatives: list[dict[str, Any]] = field(default_factory=list)
    note: str | None = None
    """How a kernel without a recipe was scheduled, where there is a choice."""
    record: TuningRecord | None = None
    """What it was scheduled by, where that is a tuning record."""


def canonical_kernel(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the PrimFunc without our attributes and its name."""
    for attr in (GROUP_ATTR, PACKED_ATTR, "global_symbol"):
        if function.attrs and attr in function.attrs:
            function = function.without_attr(attr)
    return function


def structural_key(function: tirx.PrimFunc) -> str:
    """Hash the unscheduled kernel up to renaming; for memos within one process."""
    return f"{tvm_ffi.structural_hash(canonical_kernel(function)) & 0xFFFFFFFFFFFFFFFF:016x}"


class Scheduler:
    """Schedules PrimFuncs for one target and options, each distinct one once."""

    def __init__(self, target: tvm.target.Target, options: Options, latency: Latency):
        self.target, self.options, self.latency = target, options, latency
        self._memo: dict[str, list[tuple[tirx.PrimFunc, ScheduledKernel]]] = {}

    def schedule(self, function: tirx.PrimFunc) -> ScheduledKernel:
        """Return ``function`` scheduled; equal kernels share one result."""
        plain = canonical_kernel(function)
        key = structural_key(function)
        for known, result in self._memo.get(key, ()):
            if tvm_ffi.structural_equal(known, plain):
                return result
        result = self._schedule(plain, key)
        self._memo.setdefault(key, []).append((plain, result))
        return result

    def fallback(self, function: tirx.PrimFunc) -> ScheduledKernel:
        """Return ``function`` with only the mandatory steps: for a recipe found wrong."""
        plain = canonical_kernel(function)
        return self._fallback(plain, classify(plain), structural_key(function))

    def price_alternative(self, function: tirx.PrimFunc, made: ScheduledKernel) -> bool:
        """Put an estimate on the next recipe that applies; return whether there was one.

        The library's first choice is built in any case: for the report.
        """
        plain = canonical_kernel(function)
        for alternative in made.alternatives:
            if alternative["estimate"] is None:
                result = self._apply(parse_recipe(alternative["recipe"]), plain)
                if not isinstance(result, Refusal):
                    estimate = self.latency.kernel(self.latency.features(result), made.kernel.kind)
                    alternative["estimate"] = estimate.to_json()
                    return True
        return False

    def _schedule(self, function: tirx.PrimFunc, key: str) -> ScheduledKernel:
        kernel = classify(function)
        if not is_schedulable(function):
            # Written as plain loops (sorting, scatter): there is no block to schedule.
            return self._fallback(function, kernel, key)
        refused: list[tuple[str, Refusal]] = []
        made, used = None, None
        choices = [] if _is_empty(function) else recipes(kernel, self.target, self.options)
        for recipe in choices:
            result = self._apply(recipe, function)
            if isinstance(result, Refusal):
                refused.append((str(recipe), result))
                continue
            made, used = result, recipe
            break
        if made is None:
            result = self._fallback(function, kernel, key)
        else:
            result = self._result(kernel, key, made, f"library:{used}")
        result.refused = refused
        result.alternatives = [{"recipe": str(r), "estimate": None} for r in choices if r is not used]
        return result

    def best(self, function: tirx.PrimFunc, records: Records) -> ScheduledKernel:
        """Return ``function`` scheduled by its tuning record if it can be, else by the library."""
        library = self.schedule(function)
        if not records:
            return library
        record = records.best(kernel_key(function, self.latency.device_class, self.options))
        made = None if record is None else self.tuned(function, library, record)
        return made if isinstance(made, ScheduledKernel) else library

    def tuned(
        self,
        function: tirx.PrimFunc,
        library: ScheduledKernel,
        record: TuningRecord,
        steps: Sequence[ScheduleRule] = (),
    ) -> ScheduledKernel | Refusal:
        """Return ``function`` scheduled as a tuning record says, or why it cannot be.

        ``library`` is what `schedule` gave for it; it becomes the first of the
        alternatives.  ``steps`` are rules that a recipe may name beside the
        built-in ones.
        """
        plain = canonical_kernel(function)
        made = apply_candidate(plain, record.recipe, record.trace, self.target, self.options, steps)
        if isinstance(made, Refusal):
            return made
        first = {"recipe": library.schedule.removeprefix("library:"), "estimate": library.estimate.to_json()}
        others = [a for a in (first, *library.alternatives) if a["recipe"] != record.recipe]
        time = 0.0 if record.median_us is None else record.median_us
        return replace(
            library,
            function=made,
            schedule=TUNED,
            features=self.latency.features(made),
            estimate=Estimate.exact("measured", time),
            alternatives=[dict(a) for a in others],
            refused=[],
            note=None,
            record=record,
        )

    def _fallback(self, function: tirx.PrimFunc, kernel: Kernel, key: str) -> ScheduledKernel:
        made, note = fallback_kernel(function, self.target, self.options)
        result = self._result(kernel, key, made, "fallback")
        result.note = note
        return result

    def _apply(self, recipe, function: tirx.PrimFunc) -> tirx.PrimFunc | Refusal:
        try:
            made = apply_recipe(recipe, function, self.target)
            return made if isinstance(made, Refusal) else finish(made, self.target, self.options)
        except TvmpassError:
            raise
        except Exception as error:  # a step's fault costs the recipe, not the build, and is reported
            return STEP_RAISED(error=f"{type(error).__name__}: {last_line(error)}")

    def _result(self, kernel: Kernel, key: str, function: tirx.PrimFunc, schedule: str) -> ScheduledKernel:
        features = self.latency.features(function)
        estimate = self.latency.kernel(features, kernel.kind)
        return ScheduledKernel(key, kernel, function, schedule, features, estimate)


def _is_empty(function: tirx.PrimFunc) -> bool:
    """Return True where some tensor has no elements: there is nothing to tile."""
    return any(
        isinstance(dim, (int, tirx.IntImm)) and int(dim) == 0
        for param in function.params
        for dim in getattr(param.ty, "shape", ())
    )
