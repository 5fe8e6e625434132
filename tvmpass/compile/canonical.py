"""The canonical form: what every front end's module is brought into before any rule.

In it there are no ``call_tir`` made by importers, no ``clip`` (it is maximum
and minimum), no constant of one element but of rank 0 where broadcasting does
not care, no operator on constants alone that numpy can evaluate, no constant without
elements, no aliases and no dead code.  Spans, symbolic shapes, ``match_cast`` and blocks that are not
dataflow stay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlock

from tvmpass.core.constants import constant_array, fold, make_constant
from tvmpass.core.site import op_name, operands
from tvmpass.core.source import origin, with_origin

GenericConst = tvm.ir.GenericConst

# Operators that broadcast all their tensor operands together.
BROADCASTING = frozenset(
    f"relax.{name}"
    for name in (
        *("add", "subtract", "multiply", "divide", "power", "atan2", "maximum", "minimum", "where"),
        *("floor_divide", "mod", "floor_mod", "left_shift", "right_shift"),
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
        *("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"),
    )
)


def canonicalize(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module in canonical form; results and interface are unchanged.

    Functions marked ``Primitive`` are left alone.
    """
    mod = relax.transform.CanonicalizeBindings()(mod)
    lifted = {gv: kind for gv, f in mod.functions.items() if (kind := _extreme_kind(f))}
    updates = {}
    for gv, function in mod.functions.items():
        if isinstance(function, relax.Function) and not _is_primitive(function):
            updates[gv] = _Rewriter(mod, lifted).function(function)
    mod = tvm.IRModule({**dict(mod.functions.items()), **updates}, attrs=mod.attrs)
    mod = relax.transform.CanonicalizeBindings()(mod)
    return relax.transform.DeadCodeElimination()(mod)


def check_canonical(mod: tvm.IRModule) -> list[str]:
    """Return what keeps the module from being canonical, one text per finding."""
    found = []
    for gv, function in mod.functions.items():
        if not isinstance(function, relax.Function) or _is_primitive(function):
            continue
        values = dict(relax.analysis.get_var2val(function))

        def bound(expr, values=values):
            return values.get(expr, expr)

        for var, value in values.items():
            where, name = f"{gv.name_hint}:{var.name}", op_name(value)
            if name == "relax.call_tir" and _extreme_kind(mod[value.args[0]]):
                found.append(f"{where}: call_tir of a maximum or minimum")
            elif name == "relax.clip":
                found.append(f"{where}: clip")
            elif any(array is not None and not array.size for array in map(constant_array, operands(value))):
                found.append(f"{where}: a constant without elements")
            elif name is not None and _rank_zero(value) is not None:
                found.append(f"{where}: {name} has a one-element constant that is not rank 0")
            elif name is not None and fold(value, bound) is not None:
                found.append(f"{where}: {name} of constants")
    tidy = relax.transform.DeadCodeElimination()(relax.transform.CanonicalizeBindings()(mod))
    if not tvm_ffi.structural_equal(tidy, mod):
        found.append("the module has aliases or dead code")
    return found


def _is_primitive(function: relax.Function) -> bool:
    return function.attrs is not None and bool(function.attrs.get("Primitive", 0))


class _Rewriter:
    """Rebuild functions binding by binding, in order.

    ``replaced`` maps a variable to what its readers use instead: a constant, a
    ShapeExpr, or a variable of a more exact type.
    """

    def __init__(self, mod: tvm.IRModule, lifted: dict):
        self.lifted = lifted
        self.builder = relax.BlockBuilder(mod)
        self.replaced: dict[relax.Var, relax.Expr] = {}
        self.values: dict[relax.Var, relax.Expr] = {}

    def function(self, function: relax.Function) -> relax.Function:
        body = self.sequence(function.body)
        return relax.Function(
            list(function.params), body, function.ret_ty, function.is_pure, function.attrs, function.span
        )

    def sequence(self, sequence: relax.SeqExpr) -> relax.SeqExpr:
        blocks = []
        for block in sequence.blocks:
            dataflow = isinstance(block, relax.DataflowBlock)
            bindings: list = []
            for binding in block.bindings:
                bindings.extend(self.binding(binding, dataflow))
            if bindings:
                blocks.append(relax.DataflowBlock(bindings) if dataflow else relax.BindingBlock(bindings))
        # The result names variables: a constant result stays bound to one.
        result = self.substitute(sequence.body, constants=False)
        made = relax.SeqExpr(blocks, result)
        return self.builder.normalize(made) if made.ty.is_missing() else made

    def binding(self, binding, dataflow: bool) -> Iterator:
        """Yield the bindings that stand in for ``binding``."""
        var = binding.var
        if isinstance(binding, relax.MatchCast):
            yield relax.MatchCast(var, self.substitute(binding.value), binding.ty)
            return
        inner: list = []
        value = self.without_empty(self.substitute(binding.value), inner, dataflow)
        if isinstance(value, relax.Call):
            value = self.call(value, inner, dataflow)
        yield from inner
        if isinstance(value, (GenericConst, relax.ShapeExpr)):
            self.replaced[var] = value
        elif not isinstance(value, relax.Var) and not _same_type(value.ty, var.ty):
            new = type(var)(var.name, value.ty, var.span)
            self.replaced[var] = new
            var = new
        self.values[var] = value
        yield relax.VarBinding(var, value)

    def without_empty(self, value, inner: list, dataflow: bool):
        """Return the value with operands that are constants without elements computed instead.

        TVM cannot load such a constant from a built module.
        """
        if isinstance(value, relax.Call):
            args = [self.without_empty(arg, inner, dataflow) for arg in value.args]
            if _all_same(args, value.args):
                return value
            return self.typed(relax.Call(value.op, args, value.attrs, list(value.ty_args), value.span))
        if isinstance(value, relax.Tuple):
            fields = [self.without_empty(field, inner, dataflow) for field in value.fields]
            if _all_same(fields, value.fields):
                return value
            return self.builder.normalize(relax.Tuple(fields, value.span))
        array = constant_array(value)
        if array is None or array.size:
            return value
        return self.emit(relax.op.zeros(list(array.shape), str(value.ty.dtype)), "empty", inner, dataflow)

    def substitute(self, expr, constants: bool = True):
        """Return ``expr`` with replaced variables, its type deduced again."""
        if isinstance(expr, relax.Var):
            new = self.replaced.get(expr, expr)
            return new if constants or isinstance(new, relax.Var) else expr
        if isinstance(expr, relax.Tuple):
            fields = [self.substitute(field, constants) for field in expr.fields]
            if _all_same(fields, expr.fields):
                return expr
            return self.builder.normalize(relax.Tuple(fields, expr.span))
        if isinstance(expr, relax.TupleGetItem):
            inner = self.substitute(expr.tuple_value)
            if inner is expr.tuple_value:
                return expr
            return self.builder.normalize(relax.TupleGetItem(inner, expr.index, expr.span))
        if isinstance(expr, relax.If):
            branches = [self.sequence(expr.true_branch), self.sequence(expr.false_branch)]
            return self.builder.normalize(relax.If(self.substitute(expr.cond), *branches, expr.span))
        if isinstance(expr, relax.Call):
            args = [self.substitute(arg) for arg in expr.args]
            if _all_same(args, expr.args):
                return expr
            return self.typed(relax.Call(expr.op, args, expr.attrs, list(expr.ty_args), expr.span))
        return expr

    def typed(self, call: relax.Call) -> relax.Call:
        return self.builder.normalize(call)

    def emit(self, call: relax.Call, hint: str, inner: list, dataflow: bool) -> relax.Var:
        """Bind ``call`` in front of the current binding."""
        call = self.typed(call)
        var = (relax.DataflowVar if dataflow else relax.Var)(hint, call.ty)
        inner.append(relax.VarBinding(var, call))
        self.values[var] = call
        return var

    def call(self, call: relax.Call, inner: list, dataflow: bool):
        """Return the canonical expression for a call, its extra bindings in ``inner``."""
        name = op_name(call)
        if name == "relax.call_tir" and call.args[0] in self.lifted:
            call = self.lift(call)
            name = op_name(call)
        if name == "relax.clip":
            value = self.clip(call, inner, dataflow)
            if not isinstance(value, relax.Call):
                return value
            call, name = value, op_name(value)
        if name == "relax.shape_of":
            shape = getattr(call.args[0].ty, "shape", None)
            return shape if isinstance(shape, relax.ShapeExpr) else call
        if name == "relax.tensor_to_shape":
            made = self.values.get(call.args[0], call.args[0])
            if op_name(made) == "relax.shape_to_tensor" and isinstance(made.args[0], relax.ShapeExpr):
                return made.args[0]
            sizes = constant_array(made)
            if sizes is not None:
                return relax.ShapeExpr([tirx.IntImm("int64", int(size)) for size in sizes])
        if name is None:
            return call
        args = _rank_zero(call)
        if args is not None:
            call = self.typed(relax.Call(call.op, args, call.attrs, list(call.ty_args), call.span))
        folded = fold(call, lambda e: self.values.get(e, e))
        return call if folded is None else folded

    def lift(self, call: relax.Call) -> relax.Call:
        """Return a call_tir of a maximum or minimum as the Relax operator, where it is one."""
        operator, bound = self.lifted[call.args[0]]
        args = list(call.args[1].fields) if isinstance(call.args[1], relax.Tuple) else [call.args[1]]
        if bound is not None:
            args.append(make_constant(bound))
        if len(args) != 2:
            return call
        lifted = self.typed(with_origin(relax.Call(tvm.ir.Op.get(operator), args), origin(call)))
        return lifted if _same_type(lifted.ty, call.ty) else call

    def clip(self, call: relax.Call, inner: list, dataflow: bool):
        """Return clip as maximum and minimum with scalars of the operand's dtype."""
        value, names = call.args[0], origin(call)
        dtype = np.dtype(str(value.ty.dtype)) if str(value.ty.dtype) != "bfloat16" else None
        bounds = [arg.value for arg in call.args[1:3]]
        for operator, bound in (("relax.maximum", bounds[0]), ("relax.minimum", bounds[1])):
            if math.isinf(bound) and (bound < 0) == (operator == "relax.maximum"):
                continue
            if dtype is not None and dtype.kind in "iu":
                limits = np.iinfo(dtype)
                bound = int(min(max(bound, limits.min), limits.max))
            if isinstance(value, relax.Call):
                value = self.emit(value, "clipped", inner, dataflow)
            scalar = relax.const(bound, str(call.args[0].ty.dtype))
            value = self.typed(with_origin(relax.Call(tvm.ir.Op.get(operator), [value, scalar]), names))
        return value


def _all_same(new, old) -> bool:
    return all(a is b or a.same_as(b) for a, b in zip(new, old))


def _same_type(a, b) -> bool:
    return tvm_ffi.structural_equal(a, b)


def _rank_zero(call: relax.Call) -> list | None:
    """Return the arguments with one-element constants made rank 0, or None if none is.

    Another operand of at least the constant's rank keeps the result's shape.
    """
    if op_name(call) not in BROADCASTING:
        return None
    ranks = [getattr(arg.ty, "ndim", -1) for arg in call.args]
    args, changed = list(call.args), False
    for index, arg in enumerate(call.args):
        array = constant_array(arg)
        others = ranks[:index] + ranks[index + 1 :]
        if array is None or array.size != 1 or array.ndim == 0 or max(others) < array.ndim:
            continue
        args[index], ranks[index] = make_constant(array.reshape(())), 0
        changed = True
    return args if changed else None


def _extreme_kind(function) -> tuple[str, np.ndarray | None] | None:
    """Return the operator that a PrimFunc is, read from its body, with a constant bound.

    Only one block that stores max or min of two reads, or of a read and a
    number, in the order of the parameters is taken.
    """
    if not isinstance(function, tirx.PrimFunc):
        return None
    blocks: list[SBlock] = []
    tvm_ffi.structural_walk(function.body, [(SBlock, blocks.append)], order="pre")
    inner = [block for block in blocks if block.iter_vars]
    if len(inner) != 1 or not isinstance(inner[0].body, tirx.BufferStore):
        return None
    value = inner[0].body.value
    operator = {tirx.Max: "relax.maximum", tirx.Min: "relax.minimum"}.get(type(value))
    if operator is None or not isinstance(value.a, TensorLoad):
        return None
    names = [parameter.name for parameter in function.params]
    if value.a.source.name != names[0]:
        return None
    if isinstance(value.b, (tirx.FloatImm, tirx.IntImm)) and len(names) == 2:
        return operator, np.array(value.b.value, str(value.b.ty.dtype))
    if isinstance(value.b, TensorLoad) and len(names) == 3 and value.b.source.name == names[1]:
        return operator, None
    return None
