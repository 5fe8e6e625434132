"""Which accesses and choices are the same for a whole vector."""

from __future__ import annotations

import pytest
from tvm import tirx

from schedules.cuda.lanes import Lanes

LANE, GROUP = tirx.Var("lane", "int32"), tirx.Var("group", "int32")
FOUR = Lanes(LANE, 4)
PLACE = GROUP * 4 + LANE


def load(shape, *indices, dtype="float32"):
    return tirx.BufferLoad(tirx.decl_buffer(shape, dtype, "x"), list(indices))


@pytest.mark.parametrize(
    ("access", "contiguous"),
    [
        (load((64,), PLACE), True),
        (load((8, 64), GROUP, PLACE), True),
        (load((8, 66), GROUP, PLACE), False),
        (load((64,), PLACE + 1), False),
        (load((64,), PLACE * 2), False),
        (load((64, 4), PLACE, 0), False),
        (load((64,), PLACE, dtype="bool"), False),
    ],
)
def test_contiguous(access, contiguous):
    assert FOUR.is_contiguous(access) is contiguous


@pytest.mark.parametrize(
    ("condition", "uniform"),
    [
        (PLACE < 8, True),
        (PLACE < 6, False),
        (PLACE <= 7, True),
        (PLACE <= 8, False),
        (tirx.const(8, "int32") <= PLACE, True),
        (tirx.const(8, "int32") < PLACE, False),
        (tirx.const(7, "int32") < PLACE, True),
        (GROUP < 3, True),
        (tirx.all(PLACE < 8, GROUP < 3), True),
        (tirx.any(PLACE < 8, PLACE < 6), False),
        (PLACE * 2 < 8, True),
        (PLACE * 2 < 12, False),
        (tirx.EQ(PLACE, 4), False),
    ],
)
def test_uniform(condition, uniform):
    assert FOUR.is_uniform(condition) is uniform


def test_a_uniform_choice_between_loads_is_one_copy():
    a, b = load((64,), PLACE), load((64,), PLACE - 8)
    taken = []

    def temporary(expr):
        taken.append(expr)
        return tirx.const(0.0, "float32")

    FOUR.take_out(tirx.if_then_else(PLACE < 8, a, b) + load((64,), GROUP), temporary)
    assert len(taken) == 1


def test_what_stands_in_a_choice_by_element_stays():
    value = tirx.if_then_else(PLACE < 6, load((64,), PLACE), tirx.const(0.0, "float32"))
    assert FOUR.take_out(value, lambda expr: tirx.const(0.0, "float32")).same_as(value)
    assert FOUR.has_scalar_load(value)
