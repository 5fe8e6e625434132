"""The division of a spelled-out hard-swish goes, wherever it stands."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from relay_passes.recognize import RecognizeHardSwish
from tvmpass.core.engine import run_rule
from tvmpass.testing.graphs import graph, interpret, operators
from tvmpass.testing.rule_checks import assert_refuses, assert_settled, special

op = relax.op
X = ((4, 32),)


def c(value, dtype="float32"):
    return relax.const(value, dtype)


def clip(x, upper=6.0, dtype="float32"):
    return op.minimum(op.maximum(op.add(x, c(3.0, dtype)), c(0.0, dtype)), c(upper, dtype))


FORMS = {
    "product-over-six": lambda x: op.divide(op.multiply(x, clip(x)), c(6.0)),
    "commuted": lambda x: op.divide(op.multiply(clip(x), x), c(6.0)),
    "clip-over-six": lambda x: op.multiply(x, op.divide(clip(x), c(6.0))),
    "x-over-six": lambda x: op.multiply(op.divide(x, c(6.0)), clip(x)),
    "hard-sigmoid": lambda x: op.divide(clip(x), c(6.0)),
}


@pytest.mark.parametrize("name", FORMS)
def test_applies_within_one_unit(name):
    before = graph(FORMS[name], X)
    after, decisions = run_rule(RecognizeHardSwish(), before)
    assert [d.outcome for d in decisions] == ["applied"]
    assert "divide" not in operators(after)
    assert_settled(RecognizeHardSwish(), after)
    data = np.linspace(-4, 9, 128, dtype="float32").reshape(4, 32)
    old, new = interpret(before, data)[0], interpret(after, data)[0]
    units = 1 if name in ("product-over-six", "commuted", "hard-sigmoid") else 2
    np.testing.assert_array_max_ulp(old, new, maxulp=units)
    old, new = interpret(before, special((4, 32)))[0], interpret(after, special((4, 32)))[0]
    np.testing.assert_array_equal(np.isnan(old), np.isnan(new))
    np.testing.assert_array_equal(np.isinf(old), np.isinf(new))


def test_clip_read_twice():
    def body(x):
        clipped = clip(x)
        return op.divide(op.multiply(x, clipped), c(6.0)), op.exp(clipped)

    after, decisions = run_rule(RecognizeHardSwish(), graph(body, (("n", 32),)))
    assert [d.outcome for d in decisions] == ["applied"]
    assert sorted(operators(after)) == ["add", "exp", "maximum", "minimum", "multiply", "multiply"]


def test_refuses_other_constants():
    mod = graph(lambda x: op.divide(op.multiply(x, clip(x, upper=5.0)), c(5.0)), X)
    found = {"offset": 3.0, "lower": 0.0, "upper": 5.0, "divisor": 5.0}
    assert_refuses(RecognizeHardSwish(), mod, "constants-differ", found=found)


def test_refuses_integers():
    mod = graph(
        lambda x: op.divide(
            op.multiply(x, op.minimum(op.maximum(op.add(x, c(3, "int32")), c(0, "int32")), c(6, "int32"))),
            c(6, "int32"),
        ),
        ((4, 32), "int32"),
    )
    assert_refuses(RecognizeHardSwish(), mod, "dtype-mismatch", found="int32")
