"""Which dims a model gets, and what is said where one is missing."""

from __future__ import annotations

import pytest

from tests.frontends.models import model, node, value
from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.frontends.onnx import load_onnx


def _two_inputs(x=("b", 3, "h"), y=("b", 3, "h")):
    return model([node("Add", ["x", "y"], ["z"])], [value("x", list(x)), value("y", list(y))], ["z"])


def test_open_batch_defaults_to_one():
    mod = load_onnx(model([node("Relu", ["x"], ["y"])], [value("x", ["b", 3])], ["y"]))
    assert [int(d) for d in mod["main"].params[0].ty.shape] == [1, 3]


def test_a_named_dim_follows_the_other_input():
    mod = load_onnx(_two_inputs(), {"x": (2, 3, 5)})
    for parameter in mod["main"].params:
        assert [int(d) for d in parameter.ty.shape] == [2, 3, 5]


def test_symbolic_dims_are_shared():
    mod = load_onnx(_two_inputs(), {"x": ("n", 3, 5)})
    first, second = (parameter.ty.shape[0] for parameter in mod["main"].params)
    assert first.same_as(second) and first.name == "n"


def test_negative_size_means_open():
    with pytest.raises(UsageError, match=r"input 'x': dim 1"):
        load_onnx(model([node("Relu", ["x"], ["y"])], [value("x", [-1, -1])], ["y"]))


def test_all_missing_dims_are_listed_with_an_example():
    with pytest.raises(UsageError) as caught:
        load_onnx(_two_inputs(x=("b", 3, "h"), y=("b", "c", None)))
    text = str(caught.value)
    assert "input 'x': dim 2 (h)" in text
    assert "input 'y': dim 1 (c), dim 2" in text
    assert "--shape x:1,3,224" in text


def test_unknown_rank_is_missing():
    with pytest.raises(UsageError, match="the rank is unknown"):
        load_onnx(model([node("Relu", ["x"], ["y"])], [value("x", None)], ["y"]))


def test_unknown_rank_can_be_given():
    mod = load_onnx(model([node("Relu", ["x"], ["y"])], [value("x", None)], ["y"]), {"x": (4, 2)})
    assert [int(d) for d in mod["main"].params[0].ty.shape] == [4, 2]


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ({"xx": (1, 3, 5)}, "unknown input 'xx' in shapes; did you mean 'x'"),
        ({"x": (1, 3)}, r"has 3 dims \(b, 3, h\), but \(1, 3\) was given"),
        ({"x": (1, 4, 5)}, "dim 1 fixed at 3, but 4 was given"),
        ({"x": (1, 3, -5)}, "-5 is neither a size nor a name"),
        ({"x": (1, 3, "a b")}, "'a b' is neither a size nor a name"),
        ({"x": (1, 3, True)}, "True is neither a size nor a name"),
        ({"x": (1, 3, 5), "y": (1, 3, 6)}, "'h' in the model, here 6, elsewhere 5"),
    ],
)
def test_wrong_shapes(shapes, text):
    with pytest.raises(UsageError, match=text):
        load_onnx(_two_inputs(), shapes)


def test_empty_input_stays_empty():
    mod = load_onnx(model([node("Relu", ["x"], ["y"])], [value("x", [2, 0])], ["y"]))
    assert [int(d) for d in mod["main"].params[0].ty.shape] == [2, 0]


def test_a_negative_size_other_than_minus_one_is_an_error():
    with pytest.raises(TvmpassError, match=r"input 'x' has a negative dimension \[-3, 5\]"):
        load_onnx(model([node("Relu", ["x"], ["y"])], [value("x", [-3, 5])], ["y"]))
