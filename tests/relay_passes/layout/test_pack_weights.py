"""Wide weights are re-laid together with the kernels that read them."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

import tvmpass
from relay_passes.layout import PackWeights
from tvmpass.core.report import Ledger
from tvmpass.testing.graphs import graph

op = relax.op
ROWS, DEPTH, WIDTH = 4, 1024, 643


def weight(depth: int = DEPTH, width: int = WIDTH) -> np.ndarray:
    return (np.random.default_rng(1).standard_normal((depth, width)) / depth**0.5).astype("float32")


def product(array: np.ndarray):
    return graph(lambda x: op.matmul(x, relax.const(array)), ((ROWS, array.shape[0]),))


def built(mod, **config):
    config = {f"tvmpass.{key}": value for key, value in config.items()}
    with tvmpass.PassContext(config={"tvmpass.threads": 1, **config}):
        return tvmpass.build(mod, "llvm")


def decisions(artifact) -> list:
    return [d for d in artifact.report.decisions if d.rule == "pack-weights"]


@pytest.mark.parametrize("width", [640, WIDTH])  # the second has a tail that no vector width divides
@pytest.mark.parametrize("verify", ["structure", "numeric"])
def test_applies_and_keeps_results(width, verify):
    array = weight(width=width)
    artifact = built(product(array), verify=verify)
    assert [d.outcome for d in decisions(artifact)] == ["applied"]
    x = np.random.default_rng(0).standard_normal((ROWS, DEPTH)).astype("float32")
    expected = x.astype("float64") @ array.astype("float64")
    (name,) = [entry.name for entry in artifact.input_info]
    # 1024 products of variance 1/1024 in float32
    assert np.abs(artifact.run({name: x})[0] - expected).max() <= 1e-5 * np.abs(expected).max()


def test_nan_and_infinities_stay_in_their_rows():
    array = weight()
    artifact = built(product(array))
    x = np.zeros((ROWS, DEPTH), "float32")
    x[1, 3], x[2, 5] = np.nan, np.inf
    (name,) = [entry.name for entry in artifact.input_info]
    result = artifact.run({name: x})[0]
    assert np.isnan(result[1]).all()
    assert np.array_equal(np.sign(result[2]), np.sign(array[5]))
    assert np.array_equal(result[[0, 3]], np.zeros((2, WIDTH), "float32"))


def test_leaves_a_weight_whose_packing_does_not_pay():
    assert decisions(built(product(weight(32, 48)))) == []


def test_refuses_a_kernel_that_another_caller_gives_a_computed_weight():
    array = weight(DEPTH, DEPTH)

    def body(x, w):
        return op.concat([op.matmul(x, relax.const(array)), op.matmul(x, w)], 0)

    artifact = built(graph(body, ((ROWS, DEPTH),), ((DEPTH, DEPTH),)), fusion="never")
    (decision,) = decisions(artifact)
    assert (decision.outcome, decision.refusal.code) == ("illegal", "not-constant")
    assert decision.refusal.evidence["value"].startswith("argument 1 of ")


def test_equal_weights_of_several_calls_are_packed_once():
    array = relax.const(weight(DEPTH, DEPTH))
    mod = graph(lambda x: op.matmul(op.tanh(op.matmul(x, array)), array), ((ROWS, DEPTH),))
    artifact = built(mod, fusion="never")
    assert [d.outcome for d in decisions(artifact)] == ["applied", "applied"]
    assert len([k for k in artifact.report.kernels if k.kind == "matmul"]) == 1


def test_switched_off_by_name():
    with tvmpass.PassContext(disabled_pass=["PackWeights"]):
        artifact = tvmpass.build(product(weight()), "llvm")
    assert "pack-weights" in artifact.report.ledger.disabled
    assert not decisions(artifact)


def test_a_ledger_of_a_build_adds_up():
    artifact = built(product(weight()))
    assert isinstance(artifact.report.ledger, Ledger)
    artifact.report.ledger.assert_sum()
    assert PackWeights.plans == "packing"
