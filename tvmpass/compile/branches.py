"""Give each branch of an If a function of its own, before memory is planned.

TVM's planner takes the bindings of both branches for one sequence: a buffer
that one branch allocates is used again in the other, where it does not exist
when the program runs.  A branch that is one call allocates nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax


def outline_branches(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with the branches of every If as private functions that they call.

    The symbolic sizes that a branch needs become a trailing parameter.  What is
    pure stands in dataflow blocks afterwards.  A module without If is returned
    as it is.
    """
    made = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    names = {variable.name_hint for variable, _ in mod.functions_items()}
    changed = False
    for variable, function in list(mod.functions_items()):
        if not isinstance(function, relax.Function):
            continue

        def add(branch: relax.Function, base: str = variable.name_hint) -> tvm.ir.GlobalVar:
            number = 1
            while f"{base}_branch{number}" in names:
                number += 1
            names.add(f"{base}_branch{number}")
            name = tvm.ir.GlobalVar(f"{base}_branch{number}")
            relax.expr._update_type(name, branch.ty)
            made.update_func(name, branch)
            return name

        old = function.body
        body = _outlined(old, add)
        if body is not old:
            changed = True
            made.update_func(variable, _with_body(function, body))
    if not changed:
        return mod
    # Rules and planners look into dataflow blocks; importers leave branches without.
    return relax.transform.ConvertToDataflow(min_size=1)(made)


def _with_body(function: relax.Function, body) -> relax.Function:
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)


def _outlined(sequence, add: Callable[[relax.Function], tvm.ir.GlobalVar]):
    """Return a sequence whose Ifs only call; inner Ifs come first."""
    blocks, changed = [], False
    for block in sequence.blocks:
        if isinstance(block, relax.DataflowBlock):  # no If stands in one
            blocks.append(block)
            continue
        bindings = []
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.If):
                branches = [
                    _called(_outlined(branch, add), add) for branch in (value.true_branch, value.false_branch)
                ]
                new = relax.If(value.cond, *branches, value.span)
                relax.expr._update_type(new, value.ty)
                binding = relax.VarBinding(binding.var, new)
                changed = True
            bindings.append(binding)
        blocks.append(relax.BindingBlock(bindings))
    if not changed:
        return sequence
    new = relax.SeqExpr(blocks, sequence.body)
    relax.expr._update_type(new, sequence.ty)
    return new


def _called(branch, add: Callable[[relax.Function], tvm.ir.GlobalVar]):
    """Return a branch that is one call of a new function with its bindings."""
    bindings = [binding for block in branch.blocks for binding in block.bindings]
    calls = [binding.value for binding in bindings if isinstance(binding.value, relax.Call)]
    if all(isinstance(call.op, tvm.ir.GlobalVar) for call in calls):
        return branch  # names, items and calls of other functions: nothing is allocated
    # Symbols that stand as sizes among a call's arguments are found too; they go by the shape below.
    params = [var for var in relax.analysis.free_vars(branch) if not isinstance(var.ty, tvm.ir.PrimType)]
    args = list(params)
    function = relax.Function(params, branch, relax.AnyType())
    free = list(relax.analysis.free_symbolic_vars(function))
    # The sizes in the parameters' own types are written anew inside: all are passed.
    written = [symbol for param in params for symbol in relax.analysis.tir_vars_in_type(param.ty)]
    symbols = list(dict.fromkeys([*free, *written]))
    if symbols:
        params.append(relax.Var("sizes", relax.ShapeType(symbols)))
        args.append(relax.ShapeExpr(symbols))
    known = {symbol: symbol for symbol in symbols}
    result = relax.analysis.erase_to_well_defined(branch.body.ty, known)
    made = relax.utils.copy_with_new_vars(relax.Function(params, branch, result))
    call = relax.Call(add(made), args)
    relax.expr._update_type(call, branch.body.ty)
    value = relax.Var("branch", branch.body.ty)
    sequence = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(value, call)])], value)
    relax.expr._update_type(sequence, branch.ty)
    return sequence
