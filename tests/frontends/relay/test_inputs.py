"""Parameters by the names that Relay prints, and sizes that are given from outside."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tvmpass
from tvmpass.frontends.relay.load import load_relay

X = "Tensor[(?, 3), float32]"


def program(*names: str) -> str:
    params = ", ".join(f"%{name}: Tensor[(3), float32]" for name in names)
    total = names[0]
    body = f"%{total}"
    for name in names[1:]:
        body = f"add({body}, %{name})"
    return f'#[version = "0.0.5"]\ndef @main({params}) {{ {body} }}\n'


def inputs(text: str, params: dict) -> list[str]:
    mod = load_relay(text, params=params)
    return json.loads(mod["main"].attrs["tvmpass.inputs"])


def test_names_that_begin_with_a_digit_have_a_v_in_text():
    ones = np.ones(3, "float32")
    text = program("x", "v0.weight", "v_bias", "fc")
    assert inputs(text, {"0.weight": ones, "_bias": ones, "fc": ones}) == ["x"]
    assert inputs(text, {"0.weight": ones}) == ["x", "v_bias", "fc"]
    # The text's own names come first, and a letter gets no v before it.
    assert inputs(text, {"v0.weight": ones, "0.weight": ones * 2}) == ["x", "v_bias", "fc"]
    assert inputs(program("x", "vw", "b"), {"w": ones, "b": ones}) == ["x", "vw"]


@pytest.mark.parametrize("size", [1 << 49, 10**30])
def test_sizes_that_no_memory_holds(size):
    text = f'#[version = "0.0.5"]\ndef @main(%x: {X}) {{ %x }}\n'
    with pytest.raises(tvmpass.UsageError, match="'x'.*more than any memory holds"):
        load_relay(text, shapes={"x": (size, 3)})


@pytest.mark.parametrize("dims", [(np.int64(4), 3), np.array([4, 3]), [4, 3]])
def test_spellings_of_shapes(dims):
    text = f'#[version = "0.0.5"]\ndef @main(%x: {X}) {{ %x }}\n'
    for load in (load_relay, tvmpass.load):
        mod = load(text, shapes={"x": dims})
        assert [int(dim) for dim in mod["main"].params[0].ty.shape] == [4, 3]


@pytest.mark.parametrize(
    ("shapes", "why"),
    [({"x": None}, "'x': a sequence"), ({"x": "43"}, "'x': a sequence"), ([(4, 3)], "dims by input name")],
)
def test_what_is_no_shape(shapes, why):
    text = f'#[version = "0.0.5"]\ndef @main(%x: {X}) {{ %x }}\n'
    with pytest.raises(tvmpass.UsageError, match=why):
        tvmpass.load(text, shapes=shapes)


def test_what_is_no_parameter_or_program():
    text = program("x", "w")
    with pytest.raises(tvmpass.UsageError, match="'w' is no array"):
        tvmpass.load(text, params={"w": [[1.0], [1.0, 2.0]]})
    for model in (text.encode(), tvmpass.load(text), 3):
        with pytest.raises(tvmpass.UsageError, match="path of a model or the text"):
            tvmpass.load(model)
