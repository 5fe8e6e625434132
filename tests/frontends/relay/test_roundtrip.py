"""Random programs: printed, parsed, converted and run, they give what the interpreter gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tvmpass.frontends.relay.convert import convert
from tvmpass.frontends.relay.operators import TABLE
from tvmpass.testing.relay import interpreter
from tvmpass.testing.relay.programs import programs
from tvmpass.testing.relay.roundtrip import MOST, difference, from_json, from_text, leaves, outcome, sample

FEW = settings(
    max_examples=40,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@FEW
@given(programs())
def test_text_reads_as_the_program_it_was_printed_from(program):
    _, problem = from_text(program)
    assert not problem


@FEW
@given(programs(shared=True))
def test_json_reads_as_the_program_it_was_written_from(program):
    _, problem = from_json(program)
    assert not problem


@FEW
@given(programs())
def test_text_without_comments_reads_the_same(program):
    _, problem = from_text(program, comments=False)
    assert not problem


@FEW
@given(programs(shared=True))
def test_nodes_shared_between_blocks_are_converted(program):
    outputs = interpreter.interpret(program.module, program.inputs(0))
    kinds = [(array.shape, array.dtype.name) for array in leaves(outputs)]
    assert _kinds_of(convert(program.module)["main"].ret_ty) == kinds


def _kinds_of(kind):
    if hasattr(kind, "fields"):
        return [found for field in kind.fields for found in _kinds_of(field)]
    return [(tuple(map(int, kind.shape)), str(kind.dtype))]


@pytest.mark.parametrize("level", [0, 3])
def test_outputs_are_those_of_the_interpreter(level):
    for place, program in enumerate(sample(programs(size=5), 4, start=level)):
        module, problem = from_text(program)
        found = outcome(program, module, level, place)
        assert not (problem or found.problem)


@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 1, 2, 3, MOST])
@pytest.mark.parametrize("shared", [False, True])
def test_outputs_of_many_programs(level, shared):
    for place, program in enumerate(sample(programs(shared=shared), 12, start=77)):
        module = from_json(program)[0] if shared else from_text(program)[0]
        assert not outcome(program, module, level, place).problem


def test_every_operator_of_the_interpreter_is_converted():
    assert set(TABLE) >= interpreter.OPERATORS


def test_programs_repeat_for_their_seed():
    first, again = (sample(programs(), 5, start=3) for _ in range(2))
    assert [program.module.functions.keys() for program in first] == [
        program.module.functions.keys() for program in again
    ]
    assert all(
        np.array_equal(left, right)
        for one, other in zip(first, again)
        for left, right in zip(leaves(tuple(one.inputs(1))), leaves(tuple(other.inputs(1))))
    )


def test_difference_tells_what_is_wrong():
    right = np.array([1.0, 1000.0], "float32")
    assert not difference([right], [right + 0.01])
    assert "differs by 0.05" in difference([right], [right + np.float32(0.05)])
    assert "float64, not (2,) float32" in difference([right], [right.astype("float64")])
    assert "0 outputs, not 1" in difference([right], [])
    whole = np.array([1, 2, 3])
    assert "1 of 3 integers differ" in difference([whole], [whole + np.array([0, 0, 1])])
    assert difference([right], [np.array([np.nan, 1000.0], "float32")])
