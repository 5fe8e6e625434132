"""Install new values into a Relax function without touching the rest.

Unaffected bindings keep their variables, so names, types and everything that
reads them stay as they are; a rewritten binding keeps its variable as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tvm
from tvm import relax

from .site import REMOVED, FunctionView
from .source import origin, with_origin


def normalize(mod, expr, names: Iterable[str] = (), dataflow: bool = True) -> tuple[list, Any]:
    """Flatten a nested call tree; return ``(bindings, value)`` with types deduced.

    A call used twice is computed once.  Every call in the tree that carries no
    source nodes gets ``names``.
    """
    if isinstance(expr, (relax.Var, tvm.ir.GenericConst, relax.ShapeExpr)):
        return [], expr
    builder = relax.BlockBuilder(mod)
    if dataflow:
        builder._begin_dataflow_block()
    else:
        builder._begin_binding_block()
    result = builder.emit(flatten(builder, expr, {}, tuple(names)))
    bindings = list(builder._end_block().bindings)
    last = bindings.pop()
    assert last.var.same_as(result)
    return bindings, last.value


def flatten(builder, expr, emitted: dict, names: Iterable[str] = ()):
    """Return ``expr`` over variables only; the calls it contains are emitted once.

    Done here and not by TVM's normaliser, which drops the source nodes of the
    calls that it rebuilds.
    """

    def operand(arg):
        if isinstance(arg, relax.Tuple):
            return relax.Tuple([operand(item) for item in arg.fields])
        if not isinstance(arg, (relax.Call, relax.TupleGetItem)):
            return arg
        if arg not in emitted:
            emitted[arg] = builder.emit(flatten(builder, arg, emitted, names))
        return emitted[arg]

    if isinstance(expr, relax.Tuple):
        return operand(expr)
    if isinstance(expr, relax.TupleGetItem):
        made = relax.TupleGetItem(operand(expr.tuple_value), expr.index, expr.span)
    elif isinstance(expr, relax.Call):
        args = [operand(arg) for arg in expr.args]
        made = relax.Call(expr.op, args, expr.attrs, list(expr.ty_args), expr.span)
    else:
        return expr
    return made if origin(made) else with_origin(made, names)


def replace_values(view: FunctionView, new: Mapping[relax.Var, tuple[list, Any]], orphans: Iterable = ()):
    """Return the function with some bindings given new values.

    ``new`` maps a variable to ``(inner bindings, value)`` from `normalize`, or
    to ``([], REMOVED)``.  Of ``orphans`` (variables) those that nothing reads
    any more are dropped.
    """
    blocks: list[list] = []
    for block in view.function.body.blocks:
        bindings: list = []
        for binding in block.bindings:
            if binding.var not in new:
                bindings.append(binding)
                continue
            inner, value = new[binding.var]
            if value is REMOVED:
                continue
            bindings.extend(inner)
            bindings.append(relax.VarBinding(binding.var, value))
        blocks.append(bindings)
    _drop_unread(view, blocks, set(orphans))
    rebuilt = []
    for old, bindings in zip(view.function.body.blocks, blocks):
        if not bindings:
            continue
        kind = relax.DataflowBlock if isinstance(old, relax.DataflowBlock) else relax.BindingBlock
        rebuilt.append(kind(bindings))
    return with_blocks(view.function, rebuilt)


def with_blocks(function, blocks):
    """Return ``function`` with other binding blocks and the same result."""
    body = relax.SeqExpr(blocks, function.body.body)
    relax.expr._update_type(body, function.body.ty)
    return relax.Function(
        list(function.params), body, function.ret_ty, function.is_pure, function.attrs, function.span
    )


def _drop_unread(view: FunctionView, blocks: list[list], orphans: set) -> None:
    if not orphans:
        return
    from .site import _variables

    reads: dict[relax.Var, int] = {}

    def count(value, step: int) -> None:
        for var in _variables(value):
            reads[var] = reads.get(var, 0) + step

    count(view.function.body.body, 1)
    for bindings in blocks:
        for binding in bindings:
            count(binding.value, 1)
    for bindings in reversed(blocks):
        for i in range(len(bindings) - 1, -1, -1):
            var = bindings[i].var
            if var in orphans and isinstance(var, relax.DataflowVar) and not reads.get(var):
                count(bindings[i].value, -1)
                del bindings[i]


def tidy(mod):
    """Remove aliases that rewriting left (``y = x``); dead code stays for its rule."""
    mod = relax.transform.CanonicalizeBindings()(mod)
    updates = {}
    for variable, function in mod.functions_items():
        if isinstance(function, relax.Function) and isinstance(function.body, relax.SeqExpr):
            made = _without_constant_aliases(function)
            if made is not None:
                updates[variable] = made
    if updates:
        mod = tvm.IRModule({**dict(mod.functions_items()), **updates}, attrs=mod.attrs)
    return mod


def _without_constant_aliases(function):
    """Drop unread ``y = constant``: the readers hold the constant itself. None if there is none."""
    aliases = {
        binding.var
        for block in function.body.blocks
        if isinstance(block, relax.DataflowBlock)
        for binding in block.bindings
        if isinstance(binding.var, relax.DataflowVar) and isinstance(binding.value, tvm.ir.GenericConst)
    }
    if not aliases:
        return None
    read: set = set()

    def note(expr) -> None:
        if isinstance(expr, relax.Var):
            read.add(expr)

    for block in function.body.blocks:
        for binding in block.bindings:
            if binding.var not in aliases:
                relax.analysis.post_order_visit(binding.value, note)
    aliases -= read
    blocks = []
    for block in function.body.blocks:
        kept = [b for b in block.bindings if b.var not in aliases]
        if kept:
            blocks.append(relax.DataflowBlock(kept) if isinstance(block, relax.DataflowBlock) else block)
    return with_blocks(function, blocks) if aliases else None


def map_values(function, change):
    """Return ``function`` with ``change(value)`` in place of each binding's value, in branches too."""
    return with_blocks(function, _map_blocks(function.body.blocks, change))


def _map_branch(branch, change):
    if not isinstance(branch, relax.SeqExpr):
        return branch
    made = relax.SeqExpr(_map_blocks(branch.blocks, change), branch.body)
    relax.expr._update_type(made, branch.ty)
    return made


def _map_blocks(given, change) -> list:
    blocks = []
    for block in given:
        bindings = []
        for binding in block.bindings:
            old = binding.value  # a new Python object at each access
            value = change(old)
            if isinstance(value, relax.If):
                sides = [_map_branch(side, change) for side in (value.true_branch, value.false_branch)]
                value = relax.If(value.cond, *sides, value.span)
                relax.expr._update_type(value, old.ty)
            if value is old:
                bindings.append(binding)
            elif isinstance(binding, relax.MatchCast):
                bindings.append(relax.MatchCast(binding.var, value, binding.ty))
            else:
                bindings.append(relax.VarBinding(binding.var, value))
        kind = relax.DataflowBlock if isinstance(block, relax.DataflowBlock) else relax.BindingBlock
        blocks.append(kind(bindings))
    return blocks
