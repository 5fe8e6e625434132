"""Run 2-D convolutions with channels last.

before: ``conv2d(x, w)`` in NCHW/OIHW, and so on through the network
after:  the same in NHWC/HWIO, with permutes where a region of such work begins
        and ends, and weights permuted when the model is built

Pays on a CPU: the innermost loop runs over channels, which are many, contiguous
and the same for every kernel size, so that one vector schedule serves all
convolutions.  Transposed convolutions stay as they are, because TVM cannot lower
their NHWC form; `RewriteConvTranspose` turns most of them into convolutions first.
Moving data is exact.  Sums run over the same products, perhaps in another order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import tvm
from tvm import relax

from relay_passes.fusion.elementwise import is_elementwise
from relay_passes.operands import array_of, constant
from tvmpass.core.decision import ALWAYS
from tvmpass.core.legality import UNKNOWN_SHAPE, UNSUPPORTED_LAYOUT
from tvmpass.core.rebuild import normalize, replace_values, tidy, with_blocks
from tvmpass.core.rule import ProposalRule
from tvmpass.core.site import FunctionView, Site, op_name, shape_of
from tvmpass.core.source import make_span, origin

PINNED = {"relax.nn.conv2d": ["NCHW", "OIHW"], "relax.nn.conv2d_transpose": ["NCHW", "IOHW"]}
CHANNELS_LAST = ["NHWC", "HWIO"]


@dataclass(frozen=True)
class PreferNHWC(ProposalRule):
    """Run 2-D convolutions with channels last."""

    plans: ClassVar = "layout"
    refusals: ClassVar = (UNSUPPORTED_LAYOUT, UNKNOWN_SHAPE)

    @classmethod
    def rule_name(cls) -> str:
        return "prefer-nhwc"

    def match(self, view):
        """Yield every 2-D convolution that is not channels-last yet."""
        for var, value in view.bindings.items():
            if op_name(value) == "relax.nn.conv2d" and str(value.attrs.data_layout) != "NHWC":
                yield Site.make(self, view, var, {var}, {"conv": var})

    def check(self, site):
        attrs = site.attrs("conv")
        layouts = [
            str(attrs.data_layout),
            str(attrs.kernel_layout),
            str(attrs.out_layout or attrs.data_layout),
        ]
        if layouts != ["NCHW", "OIHW", "NCHW"]:
            return UNSUPPORTED_LAYOUT(
                value=site.name("conv"), found=layouts, expected=["NCHW", "OIHW", "NCHW"]
            )
        if shape_of(site["conv"]) is None:
            return UNKNOWN_SHAPE(value=site.name("conv"))
        return None

    def plan(self, mod, function: str, job):
        """Decide for one function and return the module with the decision carried out.

        ``auto`` means NHWC on a CPU and no change elsewhere.
        """
        view = FunctionView(mod, function)
        legal = []
        for site in job.sites.undecided(self.match(view)):
            job.sites.count(site)
            refusal = self.check(site)
            if refusal is not None:
                job.sites.decide(site, "illegal", refusal=refusal)
            else:
                legal.append(site)
        layout = job.options.layout
        wanted = layout == "NHWC" or (layout == "auto" and job.target.kind.name == "llvm")
        if not wanted or not legal:
            for site in legal:
                job.sites.decide(site, "unprofitable", evidence={"reason": "never", "layout": layout})
            return mod
        mod = to_nhwc(mod, function, [site.root for site in legal])
        for site in legal:
            job.sites.decide(site, "applied", estimate=ALWAYS)
        return mod


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
        if call in chosen:
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
