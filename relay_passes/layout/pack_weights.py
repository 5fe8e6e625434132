"""Store constant weights in the order in which the kernel reads them.

before: ``call_tir(matmul, (x, w[K, N]))``
after:  ``call_tir(matmul', (x, w'[N/lanes, K, lanes]))``, the constant re-laid when
        the model is built and the kernel's parameter and reads changed with it

Works on lowered kernels, before they are hashed and scheduled: the parameter of
the kernel and the constants of all its callers change together.  Pays from a
stated width on, where a tile's column block would touch another page at every
step of the reduction; below it the plain layout is as fast and is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import tvm
from tvm import relax, tirx

from tvmpass.core.decision import ALWAYS
from tvmpass.core.legality import NOT_CONSTANT
from tvmpass.core.rebuild import map_values
from tvmpass.core.rule import ProposalRule
from tvmpass.core.site import FunctionView, GenericConst, Site, op_name

PACKED_ATTR = "tvmpass.packed"


@dataclass(frozen=True)
class PackWeights(ProposalRule):
    """Store constant weights in the order in which the kernel reads them."""

    plans: ClassVar = "packing"
    refusals: ClassVar = (NOT_CONSTANT,)

    def match(self, view):
        """Yield every call of a kernel that takes a constant tensor."""
        for var, value in view.bindings.items():
            kernel = view.mod[value.args[0]] if op_name(value) == "relax.call_tir" else None
            if isinstance(kernel, tirx.PrimFunc) and any(_is_weight(a) for a in _arguments(value)):
                yield Site.make(self, view, var, {var}, {"call": var})

    def check(self, site):
        """Refuse where another caller of the kernel passes no constant."""
        kernel, packing = site.value("call").args[0].name_hint, site.data["packing"]
        for call in _calls(site.view, kernel):
            if not _is_weight(_arguments(call)[packing.parameter]):
                return NOT_CONSTANT(value=f"argument {packing.parameter} of {kernel}")
        return None

    def plan(self, mod, function: str, job):
        """Decide for one function and return the module with the weights packed."""
        view = FunctionView(mod, function)
        packed: dict[str, object] = {}
        for site in job.sites.undecided(self._wide(view, job)):
            job.sites.count(site)
            kernel, packing = site.value("call").args[0], site.data["packing"]
            refusal = self.check(site) or job.verify_packing(site, mod[kernel], packing)
            if refusal is not None:
                outcome = "illegal" if refusal.kind in self.refusals else "rolled_back"
                job.sites.decide(site, outcome, refusal=refusal)
                continue
            packed[kernel.name_hint] = packing
            job.sites.decide(site, "applied", estimate=ALWAYS, evidence={"lanes": packing.lanes})
        return pack(mod, function, packed) if packed else mod

    def _wide(self, view, job):
        """Yield the matches whose weight is of a form and size that packing is for."""
        for site in self.match(view):
            packing = job.packing(view.mod[site.value("call").args[0]])
            if packing is not None and _is_weight(_arguments(site.value("call"))[packing.parameter]):
                site.data["packing"] = packing
                site.origin = job.origins.get(view.name, {}).get(site.root, ())
                yield site


def pack(mod, function: str, packings):
    """Return ``mod`` with the named kernels and their callers' constants packed."""
    kept = {gv: f for gv, f in mod.functions_items() if gv.name_hint not in packings}
    builder = relax.BlockBuilder(tvm.IRModule(kept, attrs=mod.attrs))
    # New variables: a GlobalVar carries the kernel's type, which has changed.
    kernels = {
        name: builder.add_func(p.pack_function(mod[name]).with_attr(PACKED_ATTR, 1), name)
        for name, p in packings.items()
    }
    made = builder.get()
    constants: dict[tuple, object] = {}

    def repack(value):
        if op_name(value) != "relax.call_tir" or value.args[0].name_hint not in packings:
            return value
        packing = packings[value.args[0].name_hint]
        arguments = list(_arguments(value))
        old = arguments[packing.parameter]
        key = (old, packing.lanes)
        if key not in constants:
            array = packing.pack_array(old.value.numpy())
            constants[key] = relax.const(array, str(old.ty.dtype))
        arguments[packing.parameter] = constants[key]
        rest = [relax.Tuple(arguments), *list(value.args)[2:]]
        kernel = kernels[value.args[0].name_hint]
        return relax.Call(value.op, [kernel, *rest], value.attrs, list(value.ty_args), value.span, value.ty)

    made.update_func(made.get_global_var(function), map_values(mod[function], repack))
    return relax.transform.Normalize()(made)


def _arguments(call):
    packed = call.args[1]
    return list(packed.fields) if isinstance(packed, relax.Tuple) else [packed]


def _is_weight(expr) -> bool:
    return isinstance(expr, GenericConst) and len(expr.ty.shape) >= 2


def _calls(view: FunctionView, kernel: str):
    """Return all calls of ``kernel`` in the function."""
    return [
        value
        for value in view.bindings.values()
        if op_name(value) == "relax.call_tir" and value.args[0].name_hint == kernel
    ]
