"""Recurrent layers against a plain numpy recurrence."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.models import model, node, run, value
from tvmpass.core.errors import TvmpassError
from tvmpass.frontends.onnx import load_onnx

STEPS, BATCH, INPUT, HIDDEN = 4, 2, 3, 5
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
RNG = np.random.default_rng(0)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _one(kind: str, x, w, r, b, h, c, reset: int):
    """Run one direction forward; return all states, the last state and the last cell."""
    size, states = HIDDEN, []
    wb, rb = b[: len(w)], b[len(w) :]
    for step in x:
        if kind == "LSTM":
            i, o, f, g = np.split(step @ w.T + h @ r.T + wb + rb, 4, axis=1)
            c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
            h = _sigmoid(o) * np.tanh(c)
        elif kind == "GRU":
            given = step @ w.T + wb
            z = _sigmoid(given[:, :size] + h @ r[:size].T + rb[:size])
            gate = _sigmoid(given[:, size : 2 * size] + h @ r[size : 2 * size].T + rb[size : 2 * size])
            if reset:
                n = np.tanh(given[:, 2 * size :] + gate * (h @ r[2 * size :].T + rb[2 * size :]))
            else:
                n = np.tanh(given[:, 2 * size :] + (gate * h) @ r[2 * size :].T + rb[2 * size :])
            h = (1 - z) * n + z * h
        else:
            h = np.tanh(step @ w.T + h @ r.T + wb + rb)
        states.append(h)
    return np.stack(states), h, c


def _case(kind: str, direction: str, reset: int = 0):
    directions = 2 if direction == "bidirectional" else 1
    rows = GATES[kind] * HIDDEN
    shapes = {"w": (directions, rows, INPUT), "r": (directions, rows, HIDDEN), "b": (directions, 2 * rows)}
    constants = {name: RNG.standard_normal(shape).astype("float32") * 0.5 for name, shape in shapes.items()}
    constants["h0"] = RNG.standard_normal((directions, BATCH, HIDDEN)).astype("float32")
    inputs, outputs = ["x", "w", "r", "b", "", "h0"], ["y", "y_h"]
    if kind == "LSTM":
        constants["c0"] = RNG.standard_normal((directions, BATCH, HIDDEN)).astype("float32")
        inputs, outputs = [*inputs, "c0"], [*outputs, "y_c"]
    extra = {"linear_before_reset": reset} if kind == "GRU" else {}
    one = node(kind, inputs, outputs, "layer", hidden_size=HIDDEN, direction=direction, **extra)
    made = model([one], [value("x", [STEPS, BATCH, INPUT])], outputs, constants)
    return made, constants, directions


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("kind", "reset"), [("LSTM", 0), ("GRU", 0), ("GRU", 1), ("RNN", 0)])
def test_recurrent_layers(kind, direction, reset):
    made, constants, directions = _case(kind, direction, reset)
    x = RNG.standard_normal((STEPS, BATCH, INPUT)).astype("float32")
    got = run(load_onnx(made), x)
    for d in range(directions):
        backward = direction == "reverse" or d == 1
        w, r, b, h = (constants[name][d] for name in ("w", "r", "b", "h0"))
        c = constants["c0"][d] if kind == "LSTM" else None
        states, last, cell = _one(kind, x[::-1] if backward else x, w, r, b, h, c, reset)
        states = states[::-1] if backward else states
        np.testing.assert_allclose(got[0][:, d], states, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(got[1][d], last, rtol=1e-4, atol=1e-5)
        if kind == "LSTM":
            np.testing.assert_allclose(got[2][d], cell, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "text"),
    [({"clip": 1.0}, "clip"), ({"activations": ["Relu"]}, "activations Relu are not supported")],
)
def test_what_is_not_supported_is_said(change, text):
    one = node("RNN", ["x", "w", "r"], ["y"], "layer", hidden_size=HIDDEN, **change)
    constants = {"w": np.zeros((1, HIDDEN, INPUT), "float32"), "r": np.zeros((1, HIDDEN, HIDDEN), "float32")}
    made = model([one], [value("x", [STEPS, BATCH, INPUT])], ["y"], constants)
    with pytest.raises(TvmpassError, match=f"node 'layer' .RNN. cannot be imported: .*{text}"):
        load_onnx(made)


def test_a_symbolic_sequence_is_refused():
    made, _, _ = _case("RNN", "forward")
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "t"
    with pytest.raises(TvmpassError, match="symbolic sequence length"):
        load_onnx(made, {"x": ("t", BATCH, INPUT)})
