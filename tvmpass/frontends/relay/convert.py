"""Convert a Relay program to Relax.

Values are Relax expressions, Python tuples of values, and functions: closures,
or operators by name.  Functions exist at conversion time only: a call of one is
the body in its place, or a call of a private function where it is recursive or
would be repeated too often.  The walk is written as generators that a small
loop drives, so that the depth of a program is not the depth of Python's stack.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tvmpass.core.errors import TvmpassError

from . import ast
from .calls import check_call, one_line, operator_name
from .closures import Closure, Context, Frame, recursive
from .dims import advice
from .emitter import RelaxEmitter
from .errors import located
from .functions import Functions, unlike
from .inputs import Dim, bind_inputs
from .operators import TABLE, structural
from .scopes import Misplaced, Scopes, reachable
from .support import refuse_unsupported
from .table import Attrs, CannotConvert, Value
from .types import DTYPES, BadType, disagreement, flat, rebuilt, symbols, text_of, too_large

MAX_NESTING = 100
"""Ifs and private functions inside each other; TVM's own passes recurse on them."""

Work = Generator[Any, Any, Any]
"""A step of the conversion: yields the steps that it needs, returns its value."""


def convert(
    module: ast.Module,
    params: Mapping[str, np.ndarray] | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
) -> tvm.IRModule:
    """Return the Relax module of a Relay program; ``main`` is the converted ``@main``.

    ``params`` become constants by name, the other parameters stay inputs, a tuple
    as its tensors.  ``shapes`` gives dims that the program leaves open, by input.
    Raises `UsageError` for arguments that do not fit, and `errors.RelayError`
    with the place: one for all that is not supported, before any work.
    """
    return Conversion(module).run(params, shapes)


def drive(work: Work) -> Any:
    """Run a step with all steps that it needs, without recursion."""
    stack, value = [work], None
    while stack:
        try:
            child = stack[-1].send(value)
        except StopIteration as stop:
            stack.pop()
            value = stop.value
        else:
            stack.append(child)
            value = None
    return value


class Conversion:
    """One run of `convert`: the open Relax function, and what has been made so far."""

    def __init__(self, module: ast.Module):
        self.module = module
        self.builder = relax.BlockBuilder()
        self.emit = RelaxEmitter(self.builder)
        self.context = Context()
        self.scopes: dict[str, Scopes] = {}
        self.recursive: set[ast.Function] = set()
        self.functions = Functions(self)
        self.constants: dict[ast.Constant, Any] = {}
        self.globals: dict[str, Closure] = {}
        self.nesting = 0
        self.open_blocks = 0
        self.numbers = 0

    # The whole.

    def run(self, params, shapes) -> tvm.IRModule:
        functions = self.module.functions
        if "main" not in functions:
            known = ", ".join(f"@{name}" for name in functions) or "none"
            raise self.error(f"the program has no function @main (functions: {known})", ast.NOWHERE)
        try:
            self.scopes, missing = reachable(functions, "main")
        except Misplaced as error:
            raise self.error(str(error), error.place) from None
        refuse_unsupported(self.module, self.scopes, missing, TABLE)
        self.recursive = recursive(
            self.scopes.values(), {name: scopes.function for name, scopes in self.scopes.items()}
        )
        main = self.scopes["main"]
        try:
            inputs = bind_inputs(main.function, params, shapes)
        except BadType as error:
            raise self.error(f"parameters of @main: {error}", main.function.place) from None
        self.emit.words = inputs.dims
        branches = any(scopes.branches for scopes in self.scopes.values())
        try:
            function = self._main(main, inputs, branches)
        finally:
            for _ in range(self.open_blocks):
                self.builder._end_block()
        self.builder.add_func(function, "main")
        mod = self.builder.get()
        if branches or self.functions.made:
            mod = relax.transform.ConvertToDataflow(min_size=1)(mod)
        return relax.transform.DeadCodeElimination(["main"])(mod)

    def _main(self, scopes: Scopes, inputs, branches: bool):
        frame = Frame(scopes, scopes.root, None, self.context)
        frame.values.update(zip(scopes.function.params, inputs.values))
        self.builder.begin_scope(inputs.variables)
        self.begin(dataflow=not branches)
        value = drive(self.scope(frame))
        self.declared(scopes.function.result, value, scopes.function.place, "the result of @main")
        if any(not hasattr(leaf, "ty") for leaf in flat(value)):
            raise self.error("@main returns a function", scopes.function.place)
        result = relax.Tuple(flat(value)) if isinstance(value, tuple) else value
        result = self.builder.emit(result) if branches else self.builder.emit_output(result)
        body = relax.SeqExpr([self.end()], result)
        relax.expr._update_type(body, result.ty)
        self.builder.end_scope()
        function = relax.Function(inputs.variables, body).with_attr("global_symbol", "main")
        return function.with_attr("tvmpass.recursive", 1) if self.functions.recursive else function

    def begin(self, dataflow: bool = False) -> None:
        self.open_blocks += 1
        if dataflow:
            self.builder._begin_dataflow_block()
        else:
            self.builder._begin_binding_block()

    def end(self):
        self.open_blocks -= 1
        return self.builder._end_block()

    def error(self, message: str, place: ast.Place) -> TvmpassError:
        """Return an error at a place of the program."""
        return located(self.module.where, self.module.source, place.line, place.column, message)

    # Nodes.

    def scope(self, frame: Frame) -> Work:
        """Compute the nodes of a scope and return its result's value."""
        yield self.nodes(frame)
        return self.read(frame.scope.result, frame, ast.NOWHERE)

    def nodes(self, frame: Frame, without: Collection[ast.Expression] = ()) -> Work:
        """Compute the nodes of a scope, those in ``without`` excepted."""
        for node in frame.scope.nodes:
            if node in without:
                continue
            if isinstance(node, ast.Call):
                value = self._operator(node, frame)
                if value is None:
                    value = yield self.functions.call(node, frame)
            elif isinstance(node, ast.If):
                value = yield self.branch(node, frame, self.scope)
            else:
                value = self._simple(node, frame)
            frame.values[node] = value

    def read(self, node: ast.Expression, frame: Frame, place: ast.Place) -> Value:
        """Return the value of an operand."""
        found = frame.find(node)
        if found is None:
            what = f"%{node.name}" if isinstance(node, ast.Var) else node.place.name or "a value"
            raise self.error(f"{what} is used where it has no value", place)
        value, context = found
        return value if context is self.context else self.context.local(value)

    def _simple(self, node: ast.Expression, frame: Frame) -> Value:
        """Return the value of a node that binds nothing in Relax."""
        if isinstance(node, ast.Constant):
            return self._constant(node)
        if isinstance(node, ast.Tuple):
            return tuple(self.read(item, frame, node.place) for item in node.fields)
        if isinstance(node, ast.TupleGetItem):
            value = self.read(node.value, frame, node.place)
            if not isinstance(value, tuple):
                raise self.error(f"item {node.index} of what is no tuple but {text_of(value)}", node.place)
            if not 0 <= node.index < len(value):
                raise self.error(f"item {node.index} of a tuple of {len(value)}", node.place)
            return value[node.index]
        if isinstance(node, ast.Let):
            return self.read(node.body, frame, node.place)
        if isinstance(node, ast.Var):
            value = self.read(frame.scopes.values[node], frame, node.place)
            self.declared(node.type, value, node.place, f"%{node.name}")
            return value
        if isinstance(node, ast.Function):
            return Closure(node, frame.scopes, frame)
        if isinstance(node, ast.Global):
            scopes = self.scopes[node.name]
            return self.globals.setdefault(node.name, Closure(scopes.function, scopes, None, f"@{node.name}"))
        if isinstance(node, ast.Operator):
            return node
        raise AssertionError(type(node).__name__)  # refused before

    def _constant(self, node: ast.Constant):
        dtype = str(node.value.dtype)
        if dtype not in DTYPES:
            raise self.error(f"a constant of dtype {dtype} has no Relax form", node.place)
        if node.value.size == 0:  # made by a binding of its own each time
            return self.emit.const(node.value, dtype)
        if node not in self.constants:
            self.constants[node] = self.emit.const(node.value, dtype)
        return self.constants[node]

    def declared(self, ty: ast.Type | None, value: Value, place: ast.Place, what: str) -> None:
        reason = disagreement(ty, value)
        if reason:
            raise self.error(f"{what}: {reason}", place)

    # Operators.

    def _operator(self, node: ast.Call, frame: Frame) -> Value | None:
        """Return the value of an operator's call, None where something else is called."""
        function = node.function
        if not isinstance(function, ast.Operator):
            function = self.read(function, frame, node.place)
            if not isinstance(function, ast.Operator):
                return None
        name = function.name
        args = [self.read(arg, frame, node.place) for arg in node.args]
        self.numbers += 1
        self.emit.origin = node.place.name or operator_name(name, node.place, self.numbers)
        try:
            check_call(name, args, node.attrs)
            if name in structural.TABLE:
                return args[0]
            value = self._bound(TABLE[name](self.emit, Attrs(name, node.attrs), *args))
            return self.settled(value, args)
        except CannotConvert as error:
            raise self.error(f"{name}: {error}", node.place) from None
        except TvmpassError:
            raise
        except Exception as error:  # a refusal of TVM, or a converter that did not expect such arguments
            given = ", ".join(text_of(arg) for arg in args)
            # On a tuple in a tensor's place a converter stumbles; how says nothing to the reader.
            tuples = any(isinstance(arg, tuple) for arg in args)
            why = "" if tuples and isinstance(error, (AttributeError, TypeError)) else f": {one_line(error)}"
            raise self.error(
                f"{name} cannot be converted on ({given}){why}{advice(args, self.emit.words)}", node.place
            ) from error

    def _bound(self, value: Value) -> Value:
        if isinstance(value, (tuple, list)):
            return tuple(self._bound(item) for item in value)
        return self.emit.items(self.emit(value))

    def settled(self, value: Value, args: Sequence[Value]) -> Value:
        """Return the value with a symbol for each dim that is known at run time only."""
        if isinstance(value, tuple):
            return tuple(self.settled(item, args) for item in value)
        ty = value.ty
        if not isinstance(ty, relax.TensorType):
            raise CannotConvert("its result is no tensor")
        if str(ty.dtype) not in DTYPES:
            raise CannotConvert(f"dtype {ty.dtype} has no Relax form")
        if isinstance(ty.shape, relax.ShapeExpr):
            sizes = [int(dim) for dim in ty.shape.values if isinstance(dim, tirx.IntImm)]
            if any(size < 0 for size in sizes):
                raise CannotConvert(f"its result, {text_of(value)}, has a negative size")
            if too_large(sizes):
                raise CannotConvert(f"its result, {text_of(value)}, has more elements than any memory holds")
            return value
        met = {symbol for arg in flat(tuple(args)) for symbol in symbols(arg.ty)}
        if ty.ndim < 0 or len(met) > 1:
            raise CannotConvert(f"the shape of its result is not known{advice(args, self.emit.words)}")
        return self.cast(value, [None] * ty.ndim)

    def cast(self, value, dims: Sequence[int | None]):
        """Return the value with a new symbol for each dim that is None."""
        shape = [tirx.Var("size", "int64") if dim is None else tirx.IntImm("int64", dim) for dim in dims]
        return self.builder.match_cast(value, relax.TensorType(shape, str(value.ty.dtype)))

    # Branches.

    def branch(self, node: ast.If, frame: Frame, convert: Callable[[Frame], Work]) -> Work:
        """Compute an If; ``convert`` makes the value of each branch in its frame."""
        condition = self.read(node.condition, frame, node.place)
        ty = getattr(condition, "ty", None)
        if not isinstance(ty, relax.TensorType) or ty.ndim != 0:
            raise self.error(f"the condition of if is {text_of(condition)}, not a scalar", node.place)
        branches = frame.scopes.branches[node]
        known = self.emit.array(condition)
        if known is not None:
            return (yield convert(Frame(frame.scopes, branches[0 if known else 1], frame, self.context)))
        self.nest(node.place)
        origin = self.emit.origin = node.place.name or operator_name("if", node.place, self.numbers)
        if str(ty.dtype) != "bool":
            condition = self.emit(relax.op.not_equal(condition, self.emit.const(0, str(ty.dtype))))
        parts, values = [], []
        for scope in branches:
            self.begin()
            value = yield convert(Frame(frame.scopes, scope, frame, self.context))
            values.append(value)
            items = flat(value)
            if any(not hasattr(item, "ty") for item in items):
                raise self.error("a branch of if returns a function", node.place)
            result = self.builder.emit(items[0] if len(items) == 1 else relax.Tuple(items))
            part = relax.SeqExpr([self.end()], result)
            relax.expr._update_type(part, result.ty)
            parts.append(part)
        self.nesting -= 1
        reason = unlike(*values)
        if reason:
            raise self.error(f"the branches of if differ: {reason}", node.place)
        self.emit.origin = origin
        return self.unpacked(self.emit(relax.If(condition, *parts)), values[0])

    def unpacked(self, variable, like: Value) -> Value:
        """Return what a branch or private function returned, in the structure of ``like``.

        Leaves of ``like`` may be declared types, whose dims then hold.
        """
        left = iter(flat(self.emit.items(variable)))

        def take(leaf: Any) -> Any:
            item = next(left)
            if isinstance(item.ty.shape, relax.ShapeExpr):
                return item
            return self.cast(item, leaf.shape if isinstance(leaf, ast.TensorType) else [None] * item.ty.ndim)

        return rebuilt(like, take)

    def nest(self, place: ast.Place) -> None:
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise self.error(f"more than {MAX_NESTING} ifs and recursive functions inside each other", place)
