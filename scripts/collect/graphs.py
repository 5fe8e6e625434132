"""Random small graphs like the pieces of real networks, for `scripts/collect_cpu.py`.

Each graph has one result and two to ten operators.  Shapes follow what OCR
nets, classifiers, detectors and transformers use: channels in multiples of
eight mostly, odd sizes now and then, extents spread evenly over magnitudes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from .pieces import (
    Emit,
    Graph,
    activation,
    binary,
    curve,
    epilogue,
    hard_sigmoid,
    scalar,
    shape,
    step,
)

op = relax.op

MAX_MULTIPLY_ADDS = 5e7
MAX_ELEMENTS = 2e6

Family = Callable[[Graph, Emit], relax.Var]


def make_graph(rng: np.random.Generator, palette: dict[str, list], scale: float = 1.0):
    """Return ``(family name, IRModule)``; the module's function is ``main``.

    ``palette`` (empty at first) passes shapes on from graph to graph; ``scale``
    multiplies the bounds on elements and work.
    """
    names = list(FAMILIES)
    weights = np.array([FAMILIES[name][1] for name in names], dtype=float)
    name = names[int(rng.choice(len(names), p=weights / weights.sum()))]
    graph = Graph(rng, palette, scale)
    builder = relax.BlockBuilder()
    body = FAMILIES[name][0]
    with builder.function("main"):  # its parameters are made while the body grows
        with builder.dataflow():
            result = builder.emit_output(body(graph, builder.emit))
        builder.emit_func_output(result, params=graph.params)
    return name, builder.get()


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
    dims = _image(g, cin, g.scale * MAX_MULTIPLY_ADDS / (kernel * kernel * cout) * stride * stride)
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
    x = g.input(_image(g, channels, min(g.scale * MAX_ELEMENTS / 4, g.scale * MAX_MULTIPLY_ADDS / kernel**2)))
    w = g.input((kernel, kernel, 1, channels))
    out = op.nn.conv2d(
        x,
        w,
        strides=stride,
        padding=kernel // 2,
        groups=channels,
        data_layout="NHWC",
        kernel_layout="HWIO",
    )
    return epilogue(g, emit, emit(out))


def matmul(g: Graph, emit: Emit):
    k, n = g.channels(0.4), g.channels(0.4)
    if g.chance(0.1):
        n = g.log_uniform(900, 8000)
    m = g.log_uniform(1, 600)
    m = max(1, min(m, int(g.scale * MAX_MULTIPLY_ADDS / (k * n))))
    lead = [1] if g.chance(0.5) else []
    if g.chance(0.25):  # attention: batched on both sides
        heads, length, depth = (
            g.pick(1, 2, 4, 8, 12),
            g.log_uniform(4, 160),
            g.pick(15, 16, 24, 32, 64),
        )
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
    x = g.input(_image(g, channels, g.scale * MAX_ELEMENTS / 4))
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


def _any_shape(g: Graph, share: float = 1.0) -> tuple[int, ...]:
    """Return a shape of at most that share of the elements a graph may have."""
    most = share * g.scale * MAX_ELEMENTS
    found = g.again("any", lambda dims: math.prod(dims) <= most)
    if found is not None:
        return found
    rank = int(g.pick(1, 2, 2, 3, 3, 4, 4))
    last = g.channels(0.4) if g.chance(0.8) else g.log_uniform(1, 4000)
    dims = [g.log_uniform(1, 200 * math.sqrt(g.scale)) for _ in range(rank - 1)] + [last]
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
    longest = 1500 * math.sqrt(g.scale)
    m, n = g.log_uniform(4, longest), g.log_uniform(4, longest)
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
    dims = _any_shape(g, 0.25)
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
        x = emit(
            op.concat(
                [x, *(g.input(dims) for _ in range(int(g.rng.integers(1, 4))))],
                axis=axis,
            )
        )
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
    length, heads, depth = (
        g.log_uniform(4, 200),
        g.pick(2, 4, 8, 12),
        g.pick(15, 16, 32, 64),
    )
    x = g.input((1, length, heads * depth))
    x = emit(op.add(x, g.input((heads * depth,))))
    x = emit(op.permute_dims(emit(op.reshape(x, (1, length, heads, depth))), [0, 2, 1, 3]))
    x = emit(op.multiply(x, scalar(0.25)))
    return step(g, emit, x) if g.chance(0.5) else x


def squeeze_excite(g: Graph, emit: Emit):
    channels = g.channels()
    narrow = max(1, channels // 4)
    x = g.input(_image(g, channels, g.scale * MAX_ELEMENTS / 8))
    s = emit(op.mean(x, axis=[1, 2], keepdims=True))

    def one_by_one(value, cin, cout):
        w = g.input((1, 1, cin, cout))
        made = emit(op.nn.conv2d(value, w, data_layout="NHWC", kernel_layout="HWIO"))
        return emit(op.add(made, g.input((cout,))))

    s = emit(op.nn.relu(one_by_one(s, channels, narrow)))
    s = hard_sigmoid(g, emit, one_by_one(s, narrow, channels))
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
