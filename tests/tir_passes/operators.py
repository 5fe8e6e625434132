"""Operators as tvmpass legalises them, with what numpy makes of the same input in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from tvm import relax, tirx

from tvmpass.compile.legalize import legalize_map
from tvmpass.compile.target import parse_target
from tvmpass.core.options import Options

TARGET = parse_target("cuda:sm_80,sm_90", 1)
OPTIONS = Options(threads=1)


@dataclass(frozen=True)
class Case:
    """One operator call: input shapes with dtypes, the operator, and its reference."""

    operator: Callable
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    reference: Callable
    kind: str

    def function(self) -> tirx.PrimFunc:
        """Return the operator as one unscheduled PrimFunc."""
        builder = relax.BlockBuilder()
        params = [relax.Var(f"x{i}", relax.TensorType(shape, d)) for i, (shape, d) in enumerate(self.inputs)]
        with builder.function("main", params):
            with builder.dataflow():
                result = builder.emit_output(self.operator(*params))
            builder.emit_func_output(result)
        with TARGET:
            module = relax.transform.LegalizeOps(legalize_map(OPTIONS, TARGET))(builder.get())
        (func,) = [f for _, f in module.functions_items() if isinstance(f, tirx.PrimFunc)]
        return func

    def arrays(self, special: bool = False, seed: int = 0) -> list[np.ndarray]:
        """Return inputs; with NaN and infinities in the first where it is of floats."""
        rng = np.random.default_rng(seed)
        made = []
        for shape, dtype in self.inputs:
            kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
            plain = rng.standard_normal(shape) if "float" in dtype else rng.integers(-3, 4, shape)
            made.append(np.asarray(plain).astype(kind))
        if special and "float" in self.inputs[0][1] and made[0].size > 3:
            flat = made[0].reshape(-1)
            flat[[1, flat.size // 2, flat.size - 2]] = (np.nan, np.inf, -np.inf)
        return made

    def expected(self, arrays: list[np.ndarray]) -> np.ndarray:
        """Return the reference's result in float64, integers and truth values as they are."""
        wide = [a.astype("float64") if "float" in str(a.dtype) else a for a in arrays]
        with np.errstate(all="ignore"):
            return np.asarray(self.reference(*wide))


def tolerance(dtype: str) -> float:
    """Return the error allowed relative to the output's scale: sums of up to some thousand terms."""
    return {"float64": 1e-12, "float32": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2}.get(dtype, 0.0)


def assert_close(got: np.ndarray, expected: np.ndarray) -> None:
    """Compare to the dtype's tolerance, NaN for NaN and infinity for infinity."""
    allowed = tolerance(str(got.dtype))
    if not allowed:
        np.testing.assert_array_equal(got, expected.astype(got.dtype))
        return
    got, expected = got.astype("float64"), expected.astype("float64")
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(got[~finite], expected[~finite])
    scale = max(1.0, float(np.max(np.abs(expected[finite]), initial=0.0)))
    np.testing.assert_allclose(got[finite], expected[finite], rtol=0, atol=allowed * scale)


def _softmax(axis: int):
    def softmax(x):
        shifted = np.exp(x - np.max(x, axis, keepdims=True))
        return shifted / shifted.sum(axis, keepdims=True)

    return softmax


def _norm(axes):
    def norm(x, scale, shift):
        mean = x.mean(axes, keepdims=True)
        variance = ((x - mean) ** 2).mean(axes, keepdims=True)
        return (x - mean) / np.sqrt(variance + 1e-5) * scale + shift

    return norm


def _group_norm(x, scale, shift):
    grouped = x.reshape(2, 2, 3, 5, 8)
    mean = grouped.mean((2, 3, 4), keepdims=True)
    variance = ((grouped - mean) ** 2).mean((2, 3, 4), keepdims=True)
    normed = ((grouped - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape)
    return normed * scale[:, None, None] + shift[:, None, None]


def _pool(reduce, start: float):
    def pool(x):
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=start)
        height, width = (padded.shape[1] - 3) // 2 + 1, (padded.shape[2] - 3) // 2 + 1
        windows = [
            [padded[:, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].reshape(x.shape[0], 9, -1) for j in range(width)]
            for i in range(height)
        ]
        return np.stack([np.stack([reduce(w, 1) for w in row], 1) for row in windows], 1)

    return pool


def _call(name: str, *args, **kwargs) -> Callable:
    """Return ``relax.op.NAME`` with its attributes filled in."""

    def call(*tensors):
        operator = relax.op
        for part in name.split("."):
            operator = getattr(operator, part)
        return operator(*tensors, *args, **kwargs)

    return call


def _case(operator, reference, kind: str, *shapes, dtype: str = "float32") -> Case:
    inputs = tuple(shape if shape and isinstance(shape[-1], str) else (shape, dtype) for shape in shapes)
    return Case(operator, inputs, reference, kind)


_LAYERS = {"layout": "NHWC", "out_layout": "NHWC"}

OPERATORS: dict[str, Case] = {
    "add": _case(_call("add"), np.add, "elementwise", (3, 5, 40), (40,)),
    "add-odd": _case(_call("add"), np.add, "elementwise", (3, 1, 35), (3, 7, 1)),
    "add-half": _case(_call("add"), np.add, "elementwise", (6, 40), (6, 40), dtype="float16"),
    "add-brain": _case(_call("add"), np.add, "elementwise", (6, 40), (40,), dtype="bfloat16"),
    "add-long": _case(_call("add"), np.add, "elementwise", (6, 40), (40,), dtype="int64"),
    "add-rest": _case(_call("add"), np.add, "elementwise", (3, 1, 1431), (3, 1, 1431)),
    "add-rest-half": _case(_call("add"), np.add, "elementwise", (5, 7, 131), (5, 7, 131), dtype="float16"),
    "maximum": _case(_call("maximum"), np.maximum, "elementwise", (3, 40), (3, 40)),
    "exp-scalar": _case(_call("exp"), np.exp, "elementwise", ()),
    "exp-half": _case(_call("exp"), np.exp, "elementwise", (3, 33), dtype="float16"),
    "less": _case(_call("less"), np.less, "elementwise", (3, 40), (3, 40), dtype="float16"),
    "where": _case(_call("where"), np.where, "movement", ((3, 40), "bool"), (3, 40), (40,)),
    "widen": _case(
        _call("astype", "float32"), lambda x: x, "elementwise", (3, 64), dtype="float16"
    ),
    "widen-bytes": _case(
        _call("astype", "float32"), lambda x: x, "elementwise", (3, 64), dtype="int8"
    ),
    "bytes": _case(_call("add"), np.add, "elementwise", (3, 64), (64,), dtype="int8"),
    "not": _case(_call("logical_not"), np.logical_not, "elementwise", (3, 40), dtype="bool"),
    "transpose": _case(
        _call("permute_dims", [0, 2, 1]), lambda x: x.transpose(0, 2, 1), "movement", (2, 40, 33)
    ),
    "transpose-half": _case(
        _call("permute_dims", [1, 0]), lambda x: x.T, "movement", (24, 70), dtype="float16"
    ),
    "channels-last": _case(
        _call("permute_dims", [0, 2, 3, 1]), lambda x: x.transpose(0, 2, 3, 1), "movement", (2, 24, 7, 9)
    ),
    "channels-first": _case(
        _call("permute_dims", [0, 3, 1, 2]), lambda x: x.transpose(0, 3, 1, 2), "movement", (2, 7, 9, 24)
    ),
    "concat": _case(
        lambda x, y: relax.op.concat([x, y], 1), lambda x, y: np.concatenate([x, y], 1), "movement",
        (3, 40), (3, 16),
    ),
    "slice": _case(
        _call("strided_slice", [1], [4], [36]), lambda x: x[:, 4:36], "movement", (3, 40), dtype="float16"
    ),
    "flip": _case(_call("flip", 1), lambda x: x[:, ::-1], "movement", (3, 40)),
    "sum-row": _case(_call("sum", -1), lambda x: x.sum(-1), "reduce", (6, 77)),
    "sum-half": _case(_call("sum", -1), lambda x: x.sum(-1), "reduce", (6, 264), dtype="float16"),
    "sum-columns": _case(_call("sum", 0), lambda x: x.sum(0), "reduce", (45, 20)),
    "sum-middle": _case(_call("sum", 1), lambda x: x.sum(1), "reduce", (3, 20, 24)),
    "sum-apart": _case(_call("sum", [0, 2]), lambda x: x.sum((0, 2)), "reduce", (3, 20, 24)),
    "sum-all": _case(_call("sum"), lambda x: x.sum(), "reduce", (19, 100)),
    "sum-one": _case(_call("sum", -1), lambda x: x.sum(-1), "reduce", (1, 1)),
    "sum-long": _case(_call("sum", -1), lambda x: x.sum(-1), "reduce", (3, 40000)),
    "mean-large-image": _case(_call("mean", [1, 2]), lambda x: x.mean((1, 2)), "reduce", (1, 60, 70, 24)),
    "argmax-long": _case(_call("argmax", 1), lambda x: x.argmax(1), "other", (2, 50003), dtype="float16"),
    "max-row": _case(_call("max", 1), lambda x: x.max(1), "reduce", (6, 77)),
    "max-half": _case(_call("max", 1), lambda x: x.max(1), "reduce", (6, 128), dtype="float16"),
    "min-columns": _case(_call("min", 0), lambda x: x.min(0), "reduce", (33, 20)),
    "max-bytes": _case(_call("max", 1), lambda x: x.max(1), "reduce", (6, 77), dtype="int8"),
    "any": _case(_call("max", 1), lambda x: x.max(1), "reduce", (6, 77), dtype="bool"),
    "prod-double": _case(_call("prod", 1), lambda x: x.prod(1), "reduce", (6, 17), dtype="float64"),
    "mean-image": _case(_call("mean", [1, 2]), lambda x: x.mean((1, 2)), "reduce", (2, 30, 7, 16)),
    "argmax": _case(_call("argmax", 1), lambda x: x.argmax(1), "other", (5, 70)),
    "argmin-columns": _case(_call("argmin", 0), lambda x: x.argmin(0), "other", (35, 18)),
    "softmax": _case(_call("nn.softmax", -1), _softmax(-1), "norm-softmax", (7, 45)),
    "softmax-wide": _case(_call("nn.softmax", -1), _softmax(-1), "norm-softmax", (2, 4500)),
    "softmax-half": _case(_call("nn.softmax", -1), _softmax(-1), "norm-softmax", (4, 200), dtype="float16"),
    "softmax-square": _case(_call("nn.softmax", 1), _softmax(1), "norm-softmax", (2, 8, 8)),
    "layer-norm": _case(
        _call("nn.layer_norm", [-1]), _norm((-1,)), "norm-softmax", (4, 200), (200,), (200,)
    ),
    "layer-norm-planes": _case(
        _call("nn.layer_norm", [-2, -1]), _norm((-2, -1)), "norm-softmax", (3, 10, 7), (10, 7), (10, 7)
    ),
    "rms-norm": _case(
        _call("nn.rms_norm", [-1]),
        lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w,
        "matmul", (4, 200), (200,),
    ),
    "group-norm": _case(
        _call("nn.group_norm", 2, 1, [2, 3]), _group_norm, "other", (2, 6, 5, 8), (6,), (6,)
    ),
    "max-pool": _case(
        _call("nn.max_pool2d", (3, 3), (2, 2), (1, 1, 1, 1), **_LAYERS), _pool(np.max, -np.inf), "pool",
        (1, 9, 11, 16),
    ),
    "avg-pool": _case(
        _call("nn.avg_pool2d", (3, 3), (2, 2), (1, 1, 1, 1), count_include_pad=True, **_LAYERS),
        _pool(np.mean, 0.0), "pool", (1, 9, 11, 12),
    ),
}  # fmt: skip
