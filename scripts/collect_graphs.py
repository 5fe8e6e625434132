"""Random small graphs like the pieces of real networks, for `collect_cpu.py`.

Each graph has one result and two to ten operators.  Shapes follow what OCR
nets, classifiers, detectors and transformers use: channels in multiples of
eight mostly, odd sizes now and then, extents spread evenly over magnitudes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

op = relax.op

MAX_MULTIPLY_ADDS = 5e7
MAX_ELEMENTS = 2e6

_CHANNELS = (3, 8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 120, 128, 144, 160, 192, 240, 256, 288)
_WIDE = (320, 384, 480, 512, 576, 768, 960, 1024)


REUSE = 0.7
"""How often a shape of an earlier graph of the palette is taken again."""


class Graph:
    """Builds one Relax function operator by operator; sizes come from ``rng``.

    ``palette`` holds shapes drawn before, for graphs that are measured together:
    their single operators are then the same kernels and are measured once.
    """

    def __init__(self, rng: np.random.Generator, palette: dict[str, list]):
        self.rng = rng
        self.palette = palette
        self.params: list[relax.Var] = []

    def input(self, shape, dtype: str = "float32") -> relax.Var:
        var = relax.Var(f"p{len(self.params)}", relax.TensorType([int(d) for d in shape], dtype))
        self.params.append(var)
        return var

    def log_uniform(self, low: float, high: float) -> int:
        return round(math.exp(self.rng.uniform(math.log(low), math.log(high))))

    def again(self, what: str, fits: Callable = lambda value: True):
        """Return an earlier value of the palette that fits, often, else None."""
        known = [value for value in self.palette.setdefault(what, []) if fits(value)]
        return known[int(self.rng.integers(len(known)))] if known and self.chance(REUSE) else None

    def channels(self, wide: float = 0.2) -> int:
        found = self.again("channels")
        if found is None:
            if self.chance(0.1):
                found = self.log_uniform(2, 200)  # odd ones too
            else:
                found = int(self.rng.choice(_WIDE if self.chance(wide) else _CHANNELS))
            self.palette["channels"].append(found)
        return found

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def pick(self, *choices):
        return choices[int(self.rng.integers(len(choices)))]


Emit = Callable[[relax.Expr], relax.Var]
Family = Callable[[Graph, Emit], relax.Var]


def make_graph(rng: np.random.Generator, palette: dict[str, list]):
    """Return ``(family name, IRModule)``; the module's function is ``main``.

    ``palette`` (empty at first) passes shapes on from graph to graph.
    """
    names = list(FAMILIES)
    weights = np.array([FAMILIES[name][1] for name in names], dtype=float)
    name = names[int(rng.choice(len(names), p=weights / weights.sum()))]
    graph = Graph(rng, palette)
    builder = relax.BlockBuilder()
    body = FAMILIES[name][0]
    with builder.function("main"):  # its parameters are made while the body grows
        with builder.dataflow():
            result = builder.emit_output(body(graph, builder.emit))
        builder.emit_func_output(result, params=graph.params)
    return name, builder.get()


def shape(expr) -> tuple[int, ...]:
    return tuple(int(d) for d in expr.ty.shape)


def scalar(value: float, dtype: str = "float32"):
    return relax.const(np.array(value, dtype))


# -- activations and epilogues ---------------------------------------------------------------------


def _hard_swish(g, emit, x):
    t = emit(op.add(x, scalar(3.0)))
    t = emit(op.minimum(emit(op.maximum(t, scalar(0.0))), scalar(6.0)))
    return emit(op.multiply(emit(op.multiply(x, t)), scalar(1 / 6)))


def _hard_sigmoid(g, emit, x):
    t = emit(op.add(emit(op.multiply(x, scalar(0.2))), scalar(0.5)))
    return emit(op.minimum(emit(op.maximum(t, scalar(0.0))), scalar(1.0)))


def _silu(g, emit, x):
    return emit(op.multiply(x, emit(op.sigmoid(x))))


def _leaky(g, emit, x):
    return emit(op.maximum(x, emit(op.multiply(x, scalar(0.1)))))


def _relu6(g, emit, x):
    return emit(op.minimum(emit(op.maximum(x, scalar(0.0))), scalar(6.0)))


def _unary(function):
    return lambda g, emit, x: emit(function(x))


_ACTIVATIONS = (
    _unary(op.nn.relu),
    _unary(op.nn.relu),
    _unary(op.sigmoid),
    _unary(op.tanh),
    _unary(op.nn.gelu),
    _unary(op.nn.silu),
    _hard_swish,
    _hard_sigmoid,
    _silu,
    _leaky,
    _relu6,
)
_CURVES = (op.exp, op.tanh, op.sigmoid, op.erf, op.sqrt, op.log, op.rsqrt)


def activation(g: Graph, emit: Emit, x):
    return _ACTIVATIONS[int(g.rng.integers(len(_ACTIVATIONS)))](g, emit, x)


def curve(g: Graph, emit: Emit, x):
    return emit(_CURVES[int(g.rng.integers(len(_CURVES)))](x))


def binary(g: Graph, emit: Emit, x, y):
    function = g.pick(
        op.add, op.add, op.multiply, op.multiply, op.subtract, op.maximum, op.minimum, op.divide
    )
    return emit(function(x, y) if g.chance(0.8) or y is x else function(y, x))


def step(g: Graph, emit: Emit, x):
    """One elementwise step: bias, residual, scale, activation, curve."""
    dims = shape(x)
    kind = g.pick("bias", "bias", "residual", "scale", "activation", "activation", "curve", "constant")
    if kind == "bias":
        return binary(g, emit, x, g.input(dims[-1:]))
    if kind == "residual":
        return binary(g, emit, x, g.input(dims))
    if kind == "scale":
        broadcast = [1] * len(dims)
        keep = int(g.rng.integers(len(dims)))
        broadcast[keep] = dims[keep]
        return binary(g, emit, x, g.input(broadcast))
    if kind == "activation":
        return activation(g, emit, x)
    if kind == "curve":
        return curve(g, emit, x)
    return binary(g, emit, x, scalar(float(np.round(g.rng.uniform(0.1, 2.0), 3))))


def epilogue(g: Graph, emit: Emit, x, most: int = 5):
    """What usually follows a contraction: bias, then activation, residual and more."""
    if g.chance(0.75):
        x = emit(op.add(x, g.input(shape(x)[-1:])))
    if g.chance(0.75):
        x = activation(g, emit, x)
    if g.chance(0.3):
        x = emit(op.add(x, g.input(shape(x))))
    for _ in range(int(g.rng.integers(0, most)) if g.chance(0.4) else 0):
        x = step(g, emit, x)
    return x


# -- families --------------------------------------------------------------------------------------


def _image(g: Graph, channels: int, most: float) -> tuple[int, int, int, int]:
    found = g.again("image", lambda size: size[0] * size[1] * channels <= most)
    if found is not None:
        return (1, *found, channels)
    height = g.log_uniform(1, 90)
    width = g.log_uniform(4, 160) if g.chance(0.4) else height
    while height * width * channels > most and height * width > 1:
        height, width = max(1, height // 2), max(1, width // 2)
    g.palette["image"].append((height, width))
    return (1, height, width, channels)


def conv(g: Graph, emit: Emit):
    kernel = int(g.pick(1, 1, 1, 1, 3, 3, 3, 5, 7, 2))
    cin, cout = g.channels(), g.channels()
    stride = 1 if g.chance(0.75) else 2
    dims = _image(g, cin, MAX_MULTIPLY_ADDS / (kernel * kernel * cout) * stride * stride)
    x = g.input(dims)
    if g.chance(0.15):
        x = step(g, emit, x)
    if g.chance(0.08):
        y = g.input((1, dims[3], dims[1], dims[2]))
        w = g.input((cout, cin, kernel, kernel))
        out = emit(op.nn.conv2d(y, w, strides=stride, padding=kernel // 2))
        out = emit(op.add(out, g.input((1, cout, 1, 1)))) if g.chance(0.7) else out
        return activation(g, emit, out)
    w = g.input((kernel, kernel, cin, cout))
    pad = kernel // 2
    out = emit(op.nn.conv2d(x, w, strides=stride, padding=pad, data_layout="NHWC", kernel_layout="HWIO"))
    return epilogue(g, emit, out)


def depthwise(g: Graph, emit: Emit):
    kernel = int(g.pick(3, 3, 3, 5, 5, 7))
    channels = g.channels()
    stride = g.pick(1, 1, 1, 2, (2, 1))
    x = g.input(_image(g, channels, min(MAX_ELEMENTS / 4, MAX_MULTIPLY_ADDS / kernel**2)))
    w = g.input((kernel, kernel, 1, channels))
    out = op.nn.conv2d(
        x, w, strides=stride, padding=kernel // 2, groups=channels, data_layout="NHWC", kernel_layout="HWIO"
    )
    return epilogue(g, emit, emit(out))


def matmul(g: Graph, emit: Emit):
    k, n = g.channels(0.4), g.channels(0.4)
    if g.chance(0.1):
        n = g.log_uniform(900, 8000)
    m = g.log_uniform(1, 600)
    m = max(1, min(m, int(MAX_MULTIPLY_ADDS / (k * n))))
    lead = [1] if g.chance(0.5) else []
    if g.chance(0.25):  # attention: batched on both sides
        heads, length, depth = g.pick(1, 2, 4, 8, 12), g.log_uniform(4, 160), g.pick(15, 16, 24, 32, 64)
        a, b = g.input((1, heads, length, depth)), g.input((1, heads, depth, length))
        out = emit(op.matmul(a, b))
        out = emit(op.multiply(out, scalar(0.125)))
        out = emit(op.add(out, g.input((1, 1, length, length)))) if g.chance(0.4) else out
        return emit(op.nn.softmax(out, axis=-1)) if g.chance(0.5) else out
    x = g.input((*lead, m, k))
    if g.chance(0.15):
        x = step(g, emit, x)
    return epilogue(g, emit, emit(op.matmul(x, g.input((k, n)))))


def pool(g: Graph, emit: Emit):
    channels = g.channels()
    x = g.input(_image(g, channels, MAX_ELEMENTS / 4))
    if g.chance(0.2):
        x = step(g, emit, x)
    size = int(g.pick(2, 2, 3, 3, 5))
    if min(shape(x)[1:3]) < size:
        return emit(op.multiply(emit(op.nn.adaptive_avg_pool2d(x, (1, 1), layout="NHWC")), scalar(0.5)))
    function = g.pick(op.nn.max_pool2d, op.nn.avg_pool2d)
    stride = g.pick(1, 2, size)
    x = emit(
        function(
            x,
            (size, size),
            strides=(stride, stride),
            padding=size // 2 if g.chance(0.6) else 0,
            layout="NHWC",
        )
    )
    return epilogue(g, emit, x, 3)


def reduction(g: Graph, emit: Emit):
    dims = _any_shape(g)
    x = g.input(dims)
    for _ in range(int(g.rng.integers(0, 4))):
        x = step(g, emit, x)
    axes = [len(dims) - 1] if g.chance(0.6) else sorted({int(a) for a in g.rng.integers(0, len(dims), 2)})
    function = g.pick(op.sum, op.mean, op.mean, op.max, op.min)
    x = emit(function(x, axis=axes, keepdims=True))
    for _ in range(int(g.rng.integers(0, 3))):
        x = curve(g, emit, x) if g.chance(0.4) else emit(op.multiply(x, scalar(0.3)))
    return x


def normalise(g: Graph, emit: Emit):
    dims = _any_shape(g)
    x = g.input(dims)
    for _ in range(int(g.rng.integers(0, 4))):
        x = step(g, emit, x)
    kind = g.pick("softmax", "layer_norm", "rms", "spelled", "spelled_norm")
    if kind == "softmax":
        x = emit(op.nn.softmax(x, axis=-1))
    elif kind == "layer_norm":
        x = emit(op.nn.layer_norm(x, g.input(dims[-1:]), g.input(dims[-1:]), axes=[-1]))
    elif kind == "rms":
        x = emit(op.nn.rms_norm(x, g.input(dims[-1:]), axes=[-1]))
    elif kind == "spelled":
        e = emit(op.exp(emit(op.subtract(x, emit(op.max(x, axis=[-1], keepdims=True))))))
        x = emit(op.divide(e, emit(op.sum(e, axis=[-1], keepdims=True))))
    else:
        centred = emit(op.subtract(x, emit(op.mean(x, axis=[-1], keepdims=True))))
        variance = emit(op.mean(emit(op.multiply(centred, centred)), axis=[-1], keepdims=True))
        x = emit(op.divide(centred, emit(op.sqrt(emit(op.add(variance, scalar(1e-5)))))))
    for _ in range(int(g.rng.integers(0, 3))):
        x = step(g, emit, x)
    return x


def _any_shape(g: Graph, most: float = MAX_ELEMENTS) -> tuple[int, ...]:
    found = g.again("any", lambda dims: math.prod(dims) <= most)
    if found is not None:
        return found
    rank = int(g.pick(1, 2, 2, 3, 3, 4, 4))
    last = g.channels(0.4) if g.chance(0.8) else g.log_uniform(1, 4000)
    dims = [g.log_uniform(1, 200) for _ in range(rank - 1)] + [last]
    while math.prod(dims) > most / (10 if g.chance(0.7) else 1):
        largest = int(np.argmax(dims[:-1])) if rank > 1 and max(dims[:-1]) > 1 else rank - 1
        dims[largest] = max(1, dims[largest] // 2)
    g.palette["any"].append(tuple(dims))
    return tuple(dims)


def elementwise(g: Graph, emit: Emit):
    x = g.input(_any_shape(g))
    for _ in range(int(g.rng.integers(2, 9))):
        x = step(g, emit, x)
    return x


def broadcast(g: Graph, emit: Emit):
    """A small value, cheap or costly to make, is broadcast into a large one."""
    dims = _any_shape(g)
    kept = [d if g.chance(0.5) else 1 for d in dims]
    small = g.input(kept[int(g.rng.integers(0, len(dims))) :] or dims[-1:])
    for _ in range(int(g.rng.integers(1, 4))):
        small = curve(g, emit, small) if g.chance(0.7) else emit(op.multiply(small, scalar(0.7)))
    large = g.input(dims)
    if g.chance(0.3):
        large = step(g, emit, large)
    x = binary(g, emit, large, small)
    for _ in range(int(g.rng.integers(0, 3))):
        x = step(g, emit, x)
    return x


def outer(g: Graph, emit: Emit):
    """Two vectors make a matrix, as masks and position tables do."""
    m, n = g.log_uniform(4, 1500), g.log_uniform(4, 1500)
    a, b = g.input((m, 1)), g.input((1, n))
    if g.chance(0.6):
        a = curve(g, emit, a)
    if g.chance(0.6):
        b = curve(g, emit, b)
    x = binary(g, emit, a, b)
    for _ in range(int(g.rng.integers(0, 4))):
        x = step(g, emit, x)
    return x


def movement(g: Graph, emit: Emit):
    """Transpose, concatenate, pad, slice, repeat, resize, take, with elementwise work around."""
    dims = _any_shape(g, MAX_ELEMENTS / 4)
    rank = len(dims)
    x = g.input(dims)
    for _ in range(int(g.rng.integers(0, 3))):
        x = step(g, emit, x)
    axis = int(g.rng.integers(rank))
    kind = g.pick(
        "permute",
        "permute",
        "concat",
        "pad",
        "slice",
        "tile",
        "repeat",
        "take",
        "reshape",
        "broadcast",
        "resize",
    )
    if kind == "permute" and rank > 1:
        x = emit(op.permute_dims(x, [int(a) for a in g.rng.permutation(rank)]))
    elif kind == "concat":
        x = emit(op.concat([x, *(g.input(dims) for _ in range(int(g.rng.integers(1, 4))))], axis=axis))
    elif kind == "pad":
        width = [0, 0] * rank
        width[2 * axis] = width[2 * axis + 1] = int(g.rng.integers(1, 4))
        x = emit(op.nn.pad(x, width))
    elif kind == "slice" and dims[axis] > 1:
        x = emit(op.strided_slice(x, [axis], [0], [max(1, dims[axis] // 2)]))
    elif kind == "tile":
        x = emit(op.tile(x, [2 if i == axis else 1 for i in range(rank)]))
    elif kind == "repeat":
        x = emit(op.repeat(x, int(g.pick(2, 4)), axis))
    elif kind == "take":
        x = emit(op.take(x, g.input((g.log_uniform(1, 300),), "int32"), axis=0))
    elif kind == "broadcast":
        row = emit(op.broadcast_to(g.input(dims[-1:]), dims))
        x = binary(g, emit, x, row)
    elif kind == "resize" and rank == 4:
        size = (dims[1] * 2, dims[2] * 2)
        x = emit(
            op.image.resize2d(
                x,
                size,
                layout="NHWC",
                method="nearest_neighbor",
                coordinate_transformation_mode="asymmetric",
                rounding_method="floor",
            )
        )
    else:
        x = emit(op.reshape(x, (-1, dims[-1])))
    for _ in range(int(g.rng.integers(0 if len(g.params) > 1 else 1, 4))):
        x = step(g, emit, x)
    return x


def attention_heads(g: Graph, emit: Emit):
    """Split and join heads: reshape, transpose, scale."""
    length, heads, depth = g.log_uniform(4, 200), g.pick(2, 4, 8, 12), g.pick(15, 16, 32, 64)
    x = g.input((1, length, heads * depth))
    x = emit(op.add(x, g.input((heads * depth,))))
    x = emit(op.permute_dims(emit(op.reshape(x, (1, length, heads, depth))), [0, 2, 1, 3]))
    x = emit(op.multiply(x, scalar(0.25)))
    return step(g, emit, x) if g.chance(0.5) else x


def squeeze_excite(g: Graph, emit: Emit):
    channels = g.channels()
    narrow = max(1, channels // 4)
    x = g.input(_image(g, channels, MAX_ELEMENTS / 8))
    s = emit(op.mean(x, axis=[1, 2], keepdims=True))

    def one_by_one(value, cin, cout):
        w = g.input((1, 1, cin, cout))
        made = emit(op.nn.conv2d(value, w, data_layout="NHWC", kernel_layout="HWIO"))
        return emit(op.add(made, g.input((cout,))))

    s = emit(op.nn.relu(one_by_one(s, channels, narrow)))
    s = _hard_sigmoid(g, emit, one_by_one(s, narrow, channels))
    out = emit(op.multiply(x, s))
    return emit(op.add(out, x)) if g.chance(0.4) else out


FAMILIES: dict[str, tuple[Family, float]] = {
    "conv": (conv, 4.0),
    "depthwise": (depthwise, 1.8),
    "matmul": (matmul, 3.0),
    "pool": (pool, 1.2),
    "reduction": (reduction, 1.5),
    "normalise": (normalise, 2.0),
    "elementwise": (elementwise, 3.0),
    "broadcast": (broadcast, 2.0),
    "outer": (outer, 0.7),
    "movement": (movement, 3.0),
    "attention-heads": (attention_heads, 0.6),
    "squeeze-excite": (squeeze_excite, 0.6),
}
"""Name -> (how to build one, how often)."""
