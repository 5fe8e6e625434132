"""Convert chosen convolutions of a function to NHWC with TVM's own pass.

The pass carries the layout through every operator whose layout it can infer and
puts permutes around the others.  Here it is prepared (constants of full rank,
operators pinned that cannot be lowered in NHWC) and repaired (source nodes).
"""

from __future__ import annotations

import tvm
from tvm import relax

from relay_passes.fusion.elementwise import is_elementwise
from relay_passes.operands import array_of, constant
from tvmpass.core.rebuild import normalize, replace_values, tidy, with_blocks
from tvmpass.core.site import FunctionView, op_name, shape_of
from tvmpass.core.source import make_span, origin

PINNED = {"relax.nn.conv2d": ["NCHW", "OIHW"], "relax.nn.conv2d_transpose": ["NCHW", "IOHW"]}
CHANNELS_LAST = ["NHWC", "HWIO"]


def to_nhwc(mod, function: str, convolutions):
    """Return ``mod`` with the given convolutions of one function in NHWC/HWIO.

    Operators between them follow; every other convolution keeps its layout.
    Source nodes stay on the operators, permutes carry those of their reader.
    """
    mod = _with_full_rank_constants(mod, function)
    view = FunctionView(mod, function)
    chosen = {view.bindings[var] for var in convolutions}

    def layouts(call):
        name = op_name(call)
        already = name == "relax.nn.conv2d" and str(call.attrs.data_layout) == "NHWC"
        if call in chosen or already:
            return {name: CHANNELS_LAST}
        return {name: PINNED[name]} if name in PINNED else {}

    converted = relax.transform.ConvertLayout({}, layouts)(mod)
    converted.update_func(
        converted.get_global_var(function), _with_origins(mod[function], converted[function])
    )
    return tidy(converted)


def _with_full_rank_constants(mod, function: str):
    """Give constants added to 4-D values 4 dims: the pass converts no other operand."""
    view = FunctionView(mod, function)
    new = {}
    for var, value in view.bindings.items():
        if not is_elementwise(view, var) or len(shape_of(var)) != 4 or hasattr(value.attrs, "axis"):
            continue
        arrays = [array_of(view, a) for a in value.args]
        if any(a is not None and a.size > 1 and a.ndim < 4 for a in arrays):
            args = [
                a
                if array is None or array.size == 1
                else constant(array.reshape((1,) * (4 - array.ndim) + array.shape))
                for a, array in zip(value.args, arrays)
            ]
            call = relax.Call(value.op, args, value.attrs, list(value.ty_args), value.span)
            new[var] = normalize(mod, call)
    if not new:
        return mod
    result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    result.update_func(mod.get_global_var(function), replace_values(view, new))
    return tidy(result)


def _with_origins(before, after):
    """Put the source nodes back: the pass keeps the order of operators and drops spans."""
    sources = [
        (op_name(b.value), origin(b.value))
        for block in before.body.blocks
        for b in block.bindings
        if op_name(b.value) is not None
    ]
    position, pending, blocks = 0, [], []
    for block in after.body.blocks:
        made = []
        for binding in block.bindings:
            value = binding.value
            if isinstance(binding, relax.MatchCast) or op_name(value) is None:
                made.append(binding)
                continue
            made.append(None)
            pending.append((made, len(made) - 1, binding))
            if position < len(sources) and op_name(value) == sources[position][0]:
                for target, index, waiting in pending:
                    target[index] = relax.VarBinding(waiting.var, _named(waiting.value, sources[position][1]))
                pending, position = [], position + 1
        blocks.append((block, made))
    for target, index, binding in pending:
        target[index] = binding
    return with_blocks(
        after,
        [
            relax.DataflowBlock(made) if isinstance(block, relax.DataflowBlock) else relax.BindingBlock(made)
            for block, made in blocks
        ],
    )


def _named(call, names):
    span = make_span(names)
    return (
        relax.Call(call.op, list(call.args), call.attrs, list(call.ty_args), span, call.ty) if span else call
    )
