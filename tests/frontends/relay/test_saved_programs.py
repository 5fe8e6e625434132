"""Programs written as ``tvm.ir.save_json`` did convert to what their text converts to."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, given, settings

from tvmpass.frontends.relay.convert import convert
from tvmpass.frontends.relay.json_reader import read_json
from tvmpass.frontends.relay.parser import parse
from tvmpass.testing.relay.json_writer import write_json
from tvmpass.testing.relay.programs import Program, programs

TEXTS = {
    "operators": """
        %0 = nn.conv2d(%x, %w, padding=[1, 1, 1, 1], channels=4, kernel_size=[3, 3]);
        %1 = nn.pad(%0, 0.5f, pad_width=[[0, 0], [0, 0], [1, 1], [2, 2]]);
        %2 = nn.max_pool2d(%1, pool_size=[2, 2], strides=[2, 2], padding=[0, 0, 0, 0]);
        %3 = clip(%2, a_min=-inff, a_max=6f);
        %4 = split(%3, indices_or_sections=[1i64, 3i64], axis=1);
        %5 = concatenate((%4.2, %4.0), axis=1);
        (%5, argmax(%5, axis=[1]), cast(%5, dtype="int8"), cumsum(%5, axis=2))""",
    "control": """
        let %f = fn (%a: Tensor[(1, 3, 4, 4), float32]) { exp(%a) };
        let %y = if (less(sum(%x), 1f)) { %f(%x) } else { negative(%f(%x)) };
        %0 = (%y, %x);
        (%0.1, nn.relu(%y), %0)""",
}


def same(module) -> None:
    direct = convert(module)
    tvm.ir.assert_structural_equal(direct, convert(read_json(write_json(module))), map_free_vars=True)


@pytest.mark.parametrize("name", ["operators", "control"])
def test_texts(name):
    params = "%x: Tensor[(1, 3, 4, 4), float32], %w: Tensor[(4, 3, 3, 3), float32]"
    same(parse(f'#[version = "0.0.5"]\ndef @main({params}) {{{TEXTS[name]}}}\n'))


def test_open_dims_and_tuples_among_the_parameters():
    text = "def @main(%x: Tensor[(?, 3), float32], %t: (Tensor[(3), float32], int32)) { add(%x, %t.0) }"
    same(parse('#[version = "0.0.5"]\n' + text))


def test_functions_and_recursion():
    same(
        parse(
            '#[version = "0.0.5"]\n'
            "def @main(%n: int32) { @down(%n) }\n"
            "def @down(%n: int32) -> int32 { if (less(%n, 1)) { %n } else { @down(subtract(%n, 1)) } }\n"
        )
    )


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(size=8))
def test_random_programs(program: Program):
    same(program.module)


def test_constants_are_exact_in_json():
    module = parse('#[version = "0.0.5"]\ndef @main(%x: float32) { add(%x, 0.5f) }\n')
    module.functions["main"].body.args[1].value = np.array(0.1 + 2**-27, "float32")
    found = read_json(write_json(module)).functions["main"].body.args[1].value
    assert found.tobytes() == np.array(0.1 + 2**-27, "float32").tobytes()
