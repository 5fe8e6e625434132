"""Turn chosen candidates into Primitive functions, and those into kernels.

One path for pricing, tuning and building: `emit_groups` moves the bindings of
each candidate into a private ``Primitive`` function, `lower` legalises inside
them, fuses each to one PrimFunc with TVM's FuseTIR, and re-attaches what
FuseTIR drops.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from tvmpass.core.errors import TvmpassError
from tvmpass.core.options import Options
from tvmpass.core.rebuild import replace_values
from tvmpass.core.site import Candidate, FunctionView, GenericConst, op_name
from tvmpass.core.source import make_span, origin

from .legalize import legalize_map
from .legalize_elementwise import zero_is_tensor

GROUP_ATTR = "tvmpass.group"

SCALAR_OPERANDS = frozenset(
    f"relax.{name}"
    for name in (
        *("add", "subtract", "multiply", "divide", "floor_divide", "mod", "floor_mod"),
        *("power", "maximum", "minimum"),
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "log_add_exp", "atan2"),
        *("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"),
    )
)
"""Operators whose one-element constants become immediates; others are given them as tensors."""
PACKED_ATTR = "tvmpass.packed"
"""Marks kernels whose weight parameter `PackWeights` has re-laid."""


@dataclass
class Group:
    """What becomes one kernel: the bindings, their new value if any, its identity."""

    bindings: tuple[relax.Var, ...]
    name: str
    identity: dict[str, Any]
    replacement: Any = None

    @classmethod
    def of(cls, candidate: Candidate) -> Group:
        return cls(candidate.bindings, candidate.kernel_name, dict(candidate.identity), candidate.replacement)

    @property
    def root(self) -> relax.Var:
        return self.bindings[-1]


@dataclass
class GroupFunction:
    """A group as a closed Relax function and the arguments it is called with."""

    function: relax.Function
    arguments: list[Any]
    name: str
    key: str = field(default="")

    def __post_init__(self):
        self.key = self.key or function_key(self.function)


def function_key(function) -> str:
    """Hash a function up to renaming of its variables, attributes included."""
    return f"{tvm_ffi.structural_hash(function) & 0xFFFFFFFFFFFFFFFF:016x}"


def group_function(view: FunctionView, group: Group) -> GroupFunction:
    """Cut ``group`` out of its function as a private Primitive function."""
    values = [(var, view.bindings[var]) for var in group.bindings]
    if group.replacement is not None:
        values = [(group.root, group.replacement)]
    attrs = {"Primitive": 1, GROUP_ATTR: json.dumps(group.identity, sort_keys=True)}
    return close_over(values, group.name, attrs)


def close_over(values: Sequence[tuple[relax.Var, Any]], name: str, attrs: dict[str, Any]) -> GroupFunction:
    """Make a closed function of bindings ``(variable, value)``; the last is its result.

    Operands become parameters in first-use order, one-element constants of
    arithmetic stay inside (they become immediates), free symbolic variables are passed as a
    trailing shape parameter, and all variables are fresh.
    """
    inside = {var for var, _ in values}
    inner: dict[Any, Any] = {}
    params: list[relax.Var] = []
    arguments: list[Any] = []

    def take(expr, hint: str) -> None:
        param = relax.Var(hint, expr.ty)
        params.append(param)
        arguments.append(expr)
        inner[expr] = param

    def collect(expr, immediate: bool = False) -> None:
        if isinstance(expr, relax.Var):
            if expr not in inside and expr not in inner:
                take(expr, f"p{len(params)}")
        elif isinstance(expr, GenericConst):
            if expr not in inner and not (immediate and len(expr.ty.shape) == 0):
                take(expr, f"w{len(params)}")
        elif isinstance(expr, relax.Tuple):
            for item in expr.fields:
                collect(item)
        elif isinstance(expr, relax.Call):
            immediates = op_name(expr) in SCALAR_OPERANDS and not zero_is_tensor(expr)
            for arg in expr.args:
                collect(arg, immediates)
        elif isinstance(expr, relax.TupleGetItem):
            collect(expr.tuple_value)

    for _, value in values:
        collect(value)

    def substitute(expr):
        if expr in inner:
            return inner[expr]
        if isinstance(expr, relax.Call):
            args = [substitute(a) for a in expr.args]
            return relax.Call(expr.op, args, expr.attrs, list(expr.ty_args), expr.span)
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([substitute(e) for e in expr.fields])
        if isinstance(expr, relax.TupleGetItem):
            return relax.TupleGetItem(substitute(expr.tuple_value), expr.index)
        return expr

    free = _free_symbols(params, values)
    if free:
        params.append(relax.Var("tir_vars", relax.ShapeType(free)))
        arguments.append(relax.ShapeExpr(free))
    builder = relax.BlockBuilder()
    with builder.function("group", params, attrs=attrs, private=True):
        with builder.dataflow():
            for var, value in values:
                made = substitute(value)
                if var is values[-1][0]:
                    out = builder.emit_output(made)
                else:
                    inner[var] = builder.emit(made)
        builder.emit_func_output(out)
    function = relax.utils.copy_with_new_vars(builder.get()["group"])
    return GroupFunction(function, arguments, name)


def _free_symbols(params: Sequence[relax.Var], values) -> list[Any]:
    """Return symbolic variables used by the group that no parameter's shape defines."""
    defined: dict[Any, None] = {}
    used: dict[Any, None] = {}
    for param in params:
        for dim in _dims(param.ty):
            if isinstance(dim, tirx.Var):
                defined[dim] = None
            _symbols(dim, used)
    for var, value in values:
        for dim in _dims(var.ty):
            _symbols(dim, used)
        for leaf in _shape_leaves(value):
            _symbols(leaf, used)
    return sorted((v for v in used if v not in defined), key=lambda v: v.name)


def _dims(ty) -> list[Any]:
    if isinstance(ty, relax.TupleType):
        return [dim for item in ty.fields for dim in _dims(item)]
    shape = getattr(ty, "shape", None)
    values = getattr(shape, "values", shape)
    if values is None or isinstance(values, relax.Var):
        return []
    return [dim for dim in values if not isinstance(dim, int)]


def _shape_leaves(value) -> list[Any]:
    found: list[Any] = []

    def visit(expr):
        if isinstance(expr, relax.ShapeExpr):
            found.extend(d for d in expr.values if not isinstance(d, int))
        elif isinstance(expr, relax.Call):
            for arg in expr.args:
                visit(arg)
        elif isinstance(expr, relax.Tuple):
            for item in expr.fields:
                visit(item)
        elif not isinstance(expr, (relax.Var, GenericConst)) and hasattr(expr, "value"):
            found.append(expr)

    visit(value)
    return found


def _symbols(expr, into: dict[Any, None]) -> None:
    tvm_ffi.structural_walk(expr, [(tirx.Var, lambda v: into.setdefault(v))], order="post")


def emit_groups(mod, function: str, groups: Iterable[Candidate | Group]):
    """Return ``mod`` with each group's bindings replaced by one call.

    Equal groups share one private function, those of other functions included.
    Groups must not overlap; each is called where its last binding stood, so
    every operand is already defined.
    """
    view = FunctionView(mod, function)
    result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    taken_names = {gv.name_hint for gv in mod.get_global_vars()}
    # FuseTIR makes one kernel of equal groups and loses the other names: share across functions too.
    shared: dict[str, Any] = {
        function_key(f): gv
        for gv, f in mod.functions_items()
        if isinstance(f, relax.Function) and f.attrs and GROUP_ATTR in f.attrs
    }
    new: dict[relax.Var, tuple[list, Any]] = {}
    swallowed: set[relax.Var] = set()
    for item in groups:
        group = item if isinstance(item, Group) else Group.of(item)
        if any(var in swallowed or var in new for var in group.bindings):
            raise AssertionError(f"groups overlap at {group.root.name}")
        made = group_function(view, group)
        if made.key in shared and not tvm_ffi.structural_equal(result[shared[made.key]], made.function):
            made.key += group.root.name  # a hash collision must not merge two kernels
        if made.key not in shared:
            name = _unique(group.name, taken_names)
            variable = tvm.ir.GlobalVar(name)
            relax.expr._update_type(variable, made.function.ty)
            result[variable] = made.function
            shared[made.key] = variable
        names = [n for var in group.bindings for n in origin(view.bindings[var])]
        call = relax.Call(shared[made.key], made.arguments, None, [], make_span(names), group.root.ty)
        new[group.root] = ([], call)
        swallowed.update(group.bindings[:-1])
    result.update_func(mod.get_global_var(function), replace_values(view, new, swallowed))
    return result


def not_emitted(mod, function: str, view: FunctionView, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates that did not become what they promised, read off ``mod``.

    ``view`` is the function as it was.  A candidate stands where its root is now
    a call, of the same type, to a Primitive function of its identity that holds
    its operators in order, and where none of its other bindings is left.
    """
    after = FunctionView(mod, function)
    return [c for c in candidates if not _stands(after, view, c)]


def _stands(after: FunctionView, before: FunctionView, candidate: Candidate) -> bool:
    call = after.bindings.get(candidate.root)
    if not isinstance(call, relax.Call) or not isinstance(call.op, tvm.ir.GlobalVar):
        return False
    if any(var in after.bindings for var in candidate.bindings[:-1]):
        return False
    body = after.mod[call.op]
    attrs = body.attrs or {}
    if "Primitive" not in attrs or json.loads(attrs.get(GROUP_ATTR, "null")) != dict(candidate.identity):
        return False
    if not tvm_ffi.structural_equal(call.ty, candidate.root.ty):
        return False
    if candidate.replacement is not None:  # other operators, by intent: the identity must do
        return True
    found = [op_name(b.value) for block in body.body.blocks for b in block.bindings]
    return found == [op_name(before.bindings[v]) for v in candidate.bindings]


def _unique(name: str, taken: set[str]) -> str:
    candidate, n = name, 0
    while candidate in taken:
        n += 1
        candidate = f"{name}_{n}"
    taken.add(candidate)
    return candidate


def _without_unread(mod):
    """Remove what nothing reads: bindings, parameters and results of private functions."""
    count = -1
    while count != (count := _size(mod)):
        mod = relax.transform.RemoveUnusedParameters()(mod)
        mod = relax.transform.RemoveUnusedOutputs()(mod)
        mod = relax.transform.DeadCodeElimination()(mod)
    return mod


def _size(mod) -> int:
    """Count parameters and bindings of the Relax functions, those of branches apart."""
    functions = [f for _, f in mod.functions_items() if isinstance(f, relax.Function)]
    return sum(len(f.params) + sum(len(block.bindings) for block in f.body.blocks) for f in functions)


_SORTS = ("relax.sort", "relax.argsort", "relax.topk")


def lower(mod, target, options: Options):
    """Legalise, fuse each Primitive function to one PrimFunc, re-attach attributes."""
    legalizations = legalize_map(options, target)
    with target:
        if target.kind.name == "cuda":
            # TVM has sorts and scans in a parallel form.  Its scans are left out: their threads
            # read elements that others store, without a barrier between.
            mod = relax.transform.LegalizeOps(legalizations, list(_SORTS))(mod)
            mod = relax.backend.DispatchSortScan()(mod)
        mod = relax.transform.LegalizeOps(legalizations)(mod)
        # FuseTIR drops groups that nothing reads, parameters that a private function does not read
        # among the readers; a lowered zeros_like reads no operand any more.
        mod = _without_unread(mod)
        attrs = {
            gv.name_hint: f.attrs[GROUP_ATTR]
            for gv, f in mod.functions_items()
            if isinstance(f, relax.Function) and f.attrs and GROUP_ATTR in f.attrs
        }
        mod = relax.transform.FuseTIR()(mod)
        mod = relax.transform.DeadCodeElimination()(mod)
    for name, identity in attrs.items():
        variable = mod.get_global_var(name)  # raises where FuseTIR renamed or lost it
        function = mod[variable]
        if not isinstance(function, tirx.PrimFunc):
            raise TvmpassError(f"group {name} was not lowered to one kernel")
        mod.update_func(variable, function.with_attr(GROUP_ATTR, identity))
    return mod
