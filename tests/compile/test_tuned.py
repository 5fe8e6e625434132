"""Candidates: recipes, traces and the fallback, applied in one way; absurd ones refused."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import tvm
import tvm_ffi
from tvm import s_tir

from tests.tir_passes.cases import KERNELS, OPTIONS, TARGET, matmul
from tir_passes.recipes import apply_recipe, finish, recipes
from tvmpass.compile.schedule import Scheduler
from tvmpass.compile.target import parse_target
from tvmpass.compile.trace import renamed, trace_text
from tvmpass.compile.tuned import MAX_COPIES, MAX_LANES, apply_candidate
from tvmpass.core.decision import Refusal
from tvmpass.core.kernels import classify
from tvmpass.core.rule import ScheduleRule


@pytest.fixture(scope="module")
def product():
    return KERNELS["matmul"][0]()


@pytest.mark.parametrize("name", KERNELS)
def test_the_first_recipe_gives_what_a_build_makes(name):
    func = KERNELS[name][0]()
    first = recipes(classify(func), TARGET, OPTIONS)[0]
    wanted = apply_recipe(first, func, TARGET)
    made = apply_candidate(func, str(first), None, TARGET, OPTIONS)
    if isinstance(wanted, Refusal):
        assert isinstance(made, Refusal) and made.code == wanted.code
    else:
        assert tvm_ffi.structural_equal(made, finish(wanted, TARGET, OPTIONS))


def test_neither_recipe_nor_trace_is_the_fallback(product):
    made = apply_candidate(product, None, None, TARGET, OPTIONS)
    assert tvm_ffi.structural_equal(made, finish(product, TARGET, OPTIONS))


def test_a_trace_is_finished_as_well(product):
    schedule = s_tir.Schedule(tvm.IRModule({"main": renamed(product)}))
    schedule.compute_inline(schedule.get_sblock("b1"))
    made = apply_candidate(product, None, trace_text(schedule), TARGET, OPTIONS)
    assert "T.init()" not in made.script()  # reductions are started outside of their loops


@dataclass(frozen=True)
class SwapOuter(ScheduleRule):
    """Swap the two outer loops of the anchor, as a rule of a user's."""

    times: int = 1

    def rewrite(self, schedule, kernel):
        for _ in range(self.times):
            first, second = schedule.get_loops(schedule.get_sblock(kernel.anchor))[:2]
            schedule.reorder(second, first)


def test_steps_of_a_rules_file(product):
    unknown = apply_candidate(product, "swap-outer", None, TARGET, OPTIONS)
    assert isinstance(unknown, Refusal) and unknown.code == "recipe-unreadable"
    once = apply_candidate(product, "swap-outer", None, TARGET, OPTIONS, steps=(SwapOuter(),))
    twice = apply_candidate(product, "swap-outer{times=2}", None, TARGET, OPTIONS, steps=(SwapOuter(),))
    plain = apply_candidate(product, None, None, TARGET, OPTIONS)
    assert not isinstance(once, Refusal) and not isinstance(twice, Refusal)
    assert tvm_ffi.structural_equal(twice, plain) and not tvm_ffi.structural_equal(once, plain)


@dataclass(frozen=True)
class Raise(ScheduleRule):
    """Fail in a way that no step should."""

    def rewrite(self, schedule, kernel):
        raise ZeroDivisionError("a fault\nover two lines")


def test_a_step_that_raises_is_a_refusal(product):
    made = apply_candidate(product, "raise", None, TARGET, OPTIONS, steps=(Raise(),))
    assert isinstance(made, Refusal) and made.code == "step-raised"
    assert "ZeroDivisionError" in made.text() and "\n" not in made.text()


@dataclass(frozen=True)
class UnrollAll(ScheduleRule):
    """Unroll or vectorise every loop of the anchor, split by ``n``."""

    vector: bool = False

    def rewrite(self, schedule, kernel):
        loops = schedule.get_loops(schedule.get_sblock(kernel.anchor))
        if self.vector:
            schedule.vectorize(schedule.fuse(*loops[:2]))
            return
        for loop in loops:
            schedule.unroll(loop)


@pytest.mark.parametrize("text", ["unroll-all", "unroll-all{vector=true}"])
def test_code_without_end_is_refused(text):
    assert MAX_LANES < 64 * 64 and MAX_COPIES < 64**3
    func = matmul(64, 64, 64)
    made = apply_candidate(func, text, None, TARGET, OPTIONS, steps=(UnrollAll(),))
    assert isinstance(made, Refusal) and made.code == "code-too-large"


ABSURD = {
    "m=10**9": ("tile-matmul{m=1000000000}", "code-too-large"),
    "m=10**5000": ("tile-matmul{m=1" + "0" * 1500 + "}", "code-too-large"),
    "m=0": ("tile-matmul{m=0}", "bad-option"),
    "m=-5": ("tile-matmul{m=-5}", "bad-option"),
    "lanes=3": ("tile-matmul{lanes=3}", "bad-option"),
    "no number": ("tile-matmul{m=x}", "recipe-unreadable"),
    "an unknown step": ("rm -rf", "recipe-unreadable"),
    "a long text": ("vectorize-inner " * 1000, "code-too-large"),
    "braces": ("tile-matmul{m={}}", "recipe-unreadable"),
    "no text": ("\x00", "recipe-unreadable"),
    "a step for others": ("tile-conv", "wrong-kernel-kind"),
}


@pytest.mark.parametrize("case", ABSURD)
def test_absurd_recipes_are_refused(case, product):
    text, code = ABSURD[case]
    made = apply_candidate(product, text, None, TARGET, OPTIONS)
    assert isinstance(made, Refusal) and made.code == code
    assert "\n" not in made.text() and len(made.text()) < 5000


def test_a_step_twice_costs_only_the_candidate(product):
    text = str(recipes(classify(product), TARGET, OPTIONS)[0])
    made = apply_candidate(product, f"{text} {text}", None, TARGET, OPTIONS)
    assert isinstance(made, Refusal) or made.attrs is not None


def test_loops_without_blocks_have_no_candidates():
    from tvm.script import tirx as T

    @T.prim_func
    def plain(x: T.Buffer((4,), "float32")):
        for i in range(4):
            x[i] = T.float32(0)

    made = apply_candidate(plain, "vectorize-inner", None, TARGET, OPTIONS)
    assert isinstance(made, Refusal) and made.code == "not-schedulable"
    assert not isinstance(apply_candidate(plain, None, None, TARGET, OPTIONS), Refusal)


def test_cuda_candidates(product):
    target = parse_target("cuda:sm_80", 1)
    first = recipes(classify(product), target, OPTIONS)[0]
    made = apply_candidate(product, str(first), None, target, OPTIONS)
    assert not isinstance(made, Refusal) and "threadIdx.x" in made.script()
    assert not isinstance(apply_candidate(product, None, None, target, OPTIONS), Refusal)


def test_a_scheduler_takes_a_record(product):
    from tests.compile.record_lines import record
    from tvmpass.compile.latency import Latency

    scheduler = Scheduler(TARGET, OPTIONS, Latency(TARGET, OPTIONS))
    library = scheduler.schedule(product)
    other = library.alternatives[0]["recipe"]
    made = scheduler.tuned(product, library, record(recipe=other, median_us=4.0, candidate0_us=8.0))
    assert made.schedule == "tuned" and made.record.recipe == other
    assert (made.estimate.source, made.estimate.mean) == ("measured", 4.0)
    assert made.alternatives[0]["recipe"] == library.schedule.removeprefix("library:")
    assert other not in [a["recipe"] for a in made.alternatives]
    assert scheduler.schedule(product) is library and library.schedule.startswith("library:")
    refused = scheduler.tuned(product, library, record(recipe="tile-conv"))
    assert isinstance(refused, Refusal) and refused.code == "wrong-kernel-kind"
