"""LSTM, GRU and RNN, unrolled over a sequence of known length.

The products with the inputs of all steps are one matrix product; each step
adds the product with its state.  Steps share their kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from .onnx_fix_elementwise import dtype_of, scalar
from .onnx_fix_shape import constant, dims

op = relax.op

# Every step adds about a dozen operators; beyond this the program gets too long.
_MOST_STEPS = 1024


@dataclass
class _Cell:
    """One direction of a recurrent layer: weights transposed, ready for ``x @ w``."""

    bb: relax.BlockBuilder
    recurrent: Any
    recurrent_bias: Any
    peepholes: list | None
    hidden: int
    attrs: dict

    def gates(self, expr, count: int) -> list:
        """Return the parts of the last dim, one per gate."""
        size, axis = self.hidden, expr.ty.ndim - 1
        return [
            self.bb.emit(op.strided_slice(expr, [axis], [i * size], [(i + 1) * size])) for i in range(count)
        ]


Step = Callable[[_Cell, Any, Any, Any], tuple[Any, Any]]


def _lstm_step(cell: _Cell, x, h, c):
    bb = cell.bb
    total = bb.emit(op.add(x, op.matmul(h, cell.recurrent)))
    i, o, f, g = cell.gates(total, 4)
    if cell.peepholes:
        i, f = op.add(i, op.multiply(cell.peepholes[0], c)), op.add(f, op.multiply(cell.peepholes[2], c))
    c = bb.emit(op.add(op.multiply(op.sigmoid(f), c), op.multiply(op.sigmoid(i), op.tanh(g))))
    if cell.peepholes:
        o = op.add(o, op.multiply(cell.peepholes[1], c))
    return bb.emit(op.multiply(op.sigmoid(o), op.tanh(c))), c


def _gru_step(cell: _Cell, x, h, c):
    bb, size = cell.bb, cell.hidden
    z, r, n = cell.gates(x, 3)
    if cell.attrs.get("linear_before_reset", 0):
        state = bb.emit(op.matmul(h, cell.recurrent))
        if cell.recurrent_bias is not None:
            state = bb.emit(op.add(state, cell.recurrent_bias))
        hz, hr, hn = cell.gates(state, 3)
        z, r = bb.emit(op.sigmoid(op.add(z, hz))), op.sigmoid(op.add(r, hr))
        n = op.tanh(op.add(n, op.multiply(r, hn)))
    else:
        first = op.strided_slice(cell.recurrent, [1], [0], [2 * size])
        last = op.strided_slice(cell.recurrent, [1], [2 * size], [3 * size])
        hz, hr = cell.gates(bb.emit(op.matmul(h, first)), 2)
        z, r = bb.emit(op.sigmoid(op.add(z, hz))), op.sigmoid(op.add(r, hr))
        n = op.tanh(op.add(n, op.matmul(op.multiply(r, h), last)))
    return bb.emit(op.add(op.multiply(op.subtract(scalar(1, z), z), n), op.multiply(z, h))), c


def _rnn_step(cell: _Cell, x, h, c):
    return cell.bb.emit(op.tanh(op.add(x, op.matmul(h, cell.recurrent)))), c


_DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}


def _layer(name: str, gates: int, step: Step):
    def convert(bb, inputs, attrs, opset, stock):
        inputs = list(inputs) + [None] * (8 - len(inputs))
        x, weight, recurrent, bias, lengths, start_h, start_c, peepholes = inputs
        batch_first = bool(attrs.get("layout", 0))
        if batch_first:
            x = bb.emit(op.permute_dims(x, [1, 0, 2]))
        steps, batch, _ = dims(x)
        directions, hidden = dims(recurrent)[0], dims(recurrent)[2]
        _check(name, attrs, steps, batch, directions, lengths)
        results, last_h, last_c = [], [], []
        for direction in range(directions):
            cell, projected = _direction(
                bb, x, weight, recurrent, bias, peepholes, direction, hidden, gates, attrs, name
            )
            h = _start(bb, start_h, direction, batch, hidden, x, batch_first)
            c = _start(bb, start_c, direction, batch, hidden, x, batch_first) if name == "LSTM" else None
            backward = direction == 1 or attrs.get("direction", b"forward") == b"reverse"
            outputs = [None] * steps
            for t in reversed(range(steps)) if backward else range(steps):
                here = op.reshape(op.strided_slice(projected, [0], [t], [t + 1]), [batch, gates * hidden])
                h, c = step(cell, bb.emit(here), h, c)
                outputs[t] = h
            results.append(bb.emit(op.stack(outputs, axis=0)))
            last_h.append(h)
            last_c.append(c)
        y = bb.emit(op.stack(results, axis=1))
        y_h = bb.emit(op.stack(last_h, axis=0))
        made = [y, y_h] + ([bb.emit(op.stack(last_c, axis=0))] if name == "LSTM" else [])
        if batch_first:
            made = [bb.emit(op.permute_dims(y, [2, 0, 1, 3]))] + [
                bb.emit(op.permute_dims(v, [1, 0, 2])) for v in made[1:]
            ]
        return relax.Tuple(made[: max(attrs["tvm_custom"]["num_outputs"], 2)])

    return convert


def _check(name: str, attrs: dict, steps, batch, directions: int, lengths) -> None:
    if not isinstance(steps, int) or not isinstance(batch, int):
        raise ValueError("a symbolic sequence length or batch is not supported")
    if steps > _MOST_STEPS:
        raise ValueError(f"a sequence of {steps} steps is too long to unroll (at most {_MOST_STEPS})")
    wanted = [a.decode() for a in attrs.get("activations", ())]
    if wanted and wanted != _DEFAULTS[name] * directions:
        raise ValueError(f"activations {', '.join(wanted)} are not supported")
    if attrs.get("clip") or attrs.get("input_forget"):
        raise ValueError("the attributes clip and input_forget are not supported")
    given = constant(lengths) if lengths is not None else None
    if lengths is not None and (given is None or not np.all(given == steps)):
        raise ValueError("sequences of different lengths are not supported")


def _direction(bb, x, weight, recurrent, bias, peepholes, direction, hidden, gates, attrs, name):
    """Return one direction's cell and the inputs' part of all gates, ``[steps, batch, gates * hidden]``."""

    def one(expr):
        shape = dims(expr)[1:]
        return bb.emit(op.reshape(op.strided_slice(expr, [0], [direction], [direction + 1]), shape))

    w = bb.emit(op.permute_dims(one(weight), [1, 0]))
    r = bb.emit(op.permute_dims(one(recurrent), [1, 0]))
    projected = bb.emit(op.matmul(x, w))
    inner = None
    if bias is not None:
        both, size = one(bias), gates * hidden
        outer = op.strided_slice(both, [0], [0], [size])
        inner = bb.emit(op.strided_slice(both, [0], [size], [2 * size]))
        # Only a GRU that resets after its product needs the two biases apart.
        apart = name == "GRU" and attrs.get("linear_before_reset", 0)
        projected = bb.emit(op.add(projected, outer if apart else op.add(outer, inner)))
    parts = None
    if peepholes is not None:
        flat = one(peepholes)
        parts = [bb.emit(op.strided_slice(flat, [0], [i * hidden], [(i + 1) * hidden])) for i in range(3)]
    return _Cell(bb, r, inner, parts, hidden, attrs), projected


def _start(bb, given, direction, batch, hidden, x, batch_first: bool):
    if given is None:
        return bb.emit(op.zeros([batch, hidden], dtype_of(x)))
    axis = 1 if batch_first else 0
    part = op.strided_slice(given, [axis], [direction], [direction + 1])
    return bb.emit(op.reshape(part, [batch, hidden]))


RECURRENT = {
    "GRU": _layer("GRU", 3, _gru_step),
    "LSTM": _layer("LSTM", 4, _lstm_step),
    "RNN": _layer("RNN", 1, _rnn_step),
}
