"""Every anchor can be one kernel together with an epilogue."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from relay_passes.fusion.grow_epilogue import ANCHORS, GrowEpilogue
from tvmpass.core.site import op_name
from tvmpass.testing.graphs import graph

op = relax.op
X = ((2, 4, 6),)
LINE, IMAGE, VOLUME = ((1, 4, 6),), ((1, 4, 6, 6),), ((1, 4, 6, 6, 6),)


def const(*shape):
    return relax.const(np.random.default_rng(0).uniform(-1, 1, shape).astype("float32"))


def index(*values):
    return relax.const(np.array(values), "int64")


def pools(kind, lengths):
    window = lambda n: ([2] * n,)
    size = lambda n: ([2] * n,)
    return {
        f"nn.{kind}{n}d": (spec, lambda x, n=n: getattr(op.nn, f"{kind}{n}d")(
            x, *(size(n) if kind.startswith("adaptive") else window(n))))
        for n, spec in lengths
    }  # fmt: skip


BY_RANK = ((1, LINE), (2, IMAGE), (3, VOLUME))
CASES = {
    "matmul": (X, lambda x: op.matmul(x, const(6, 3))),
    "einsum": (X, lambda x: op.einsum([x, const(6, 3)], "abc,cd->abd")),
    **{f"nn.conv{n}d": (spec, lambda x, n=n: getattr(op.nn, f"conv{n}d")(x, const(5, 4, *[2] * n)))
       for n, spec in BY_RANK},
    **{f"nn.conv{n}d_transpose": (
        spec, lambda x, n=n: getattr(op.nn, f"conv{n}d_transpose")(x, const(4, 5, *[2] * n)))
       for n, spec in BY_RANK},
    **{name: (X, lambda x, name=name: getattr(op, name)(x, 1))
       for name in ("sum", "mean", "max", "min", "prod", "variance", "std")},
    **{name: (X, lambda x, name=name: op.astype(getattr(op, name)(x, 1), "float32"))
       for name in ("argmax", "argmin")},
    **pools("max_pool", BY_RANK),
    **pools("avg_pool", BY_RANK),
    **pools("adaptive_avg_pool", BY_RANK),
    "nn.softmax": (X, lambda x: op.nn.softmax(x, -1)),
    "nn.log_softmax": (X, lambda x: op.nn.log_softmax(x, -1)),
    "nn.layer_norm": (X, lambda x: op.nn.layer_norm(x, const(6), const(6), [-1])),
    "nn.rms_norm": (X, lambda x: op.nn.rms_norm(x, const(6), axes=[-1])),
    "nn.group_norm": (IMAGE, lambda x: op.nn.group_norm(x, const(4), const(4), 2, 1, [2, 3])),
    "nn.instance_norm": (IMAGE, lambda x: op.nn.instance_norm(x, const(4), const(4), 1, [2, 3])),
    "permute_dims": (X, lambda x: op.permute_dims(x, [1, 2, 0])),
    "broadcast_to": (X, lambda x: op.broadcast_to(x, (3, 2, 4, 6))),
    "concat": (X, lambda x: op.concat([x, x], 1)),
    "strided_slice": (X, lambda x: op.strided_slice(x, [1], [1], [3])),
    "take": (X, lambda x: op.take(x, index(0, 2), 1)),
    "tile": (X, lambda x: op.tile(x, [1, 2, 1])),
    "repeat": (X, lambda x: op.repeat(x, 2, 1)),
    "flip": (X, lambda x: op.flip(x, 1)),
    "nn.pad": (X, lambda x: op.nn.pad(x, [0, 0, 1, 1, 0, 0])),
    "image.resize2d": (IMAGE, lambda x: op.image.resize2d(x, (12, 12), layout="NCHW")),
    "gather_elements": (X, lambda x: op.gather_elements(x, relax.const(np.zeros((2, 4, 6)), "int64"), 1)),
    "gather_nd": (X, lambda x: op.gather_nd(x, relax.const(np.zeros((2, 3)), "int64"))),
}  # fmt: skip


def test_every_anchor_has_a_case():
    assert {f"relax.{name}" for name in CASES} == ANCHORS


@pytest.mark.parametrize("name", CASES)
def test_lowers_with_an_epilogue(emitter, name):
    spec, anchor = CASES[name]
    mod = graph(lambda x: op.exp(anchor(x)), spec)
    found = emitter.candidates(GrowEpilogue(), mod)
    longest = next(c for c in found if c.identity["anchor"] == f"relax.{name}")
    lowered = emitter.fused(mod, longest)
    calls = [b.value for block in lowered["main"].body.blocks for b in block.bindings]
    assert all(op_name(call) == "relax.call_tir" for call in calls)
