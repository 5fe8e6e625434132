"""Calls of functions: inlined, or calls of private Relax functions.

A closure that a private function reads becomes further parameters, in the order
of `closures.captures`; they are found before its body is converted, because a
recursive call passes them on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm import relax, tirx

from . import ast
from .calls import operator_name
from .closures import Closure, Context, Frame, captures
from .table import Value
from .types import BadType, flat, leaves, rebuilt, structured, symbols, tensor_type, text_of

if TYPE_CHECKING:
    from .convert import Conversion, Work

INLINED_NODES = 20_000
"""So many nodes are made by inlining; calls beyond become calls of private functions."""


@dataclass(eq=False)
class Instance:
    """A private Relax function made of a closure for arguments of certain types."""

    variable: Any
    captures: list[Any]
    result: Value
    """What it returns, for the structure; declared types as leaves where it is recursive."""


class Functions:
    """The calls of one conversion."""

    def __init__(self, conversion: Conversion):
        self._conversion = conversion
        self._instances: dict[Any, Instance] = {}
        self._inlined = 0

    def call(self, node: ast.Call, frame: Frame) -> Work:
        """Call a closure and return its value."""
        to = self._conversion
        callee = to.read(node.function, frame, node.place)
        if not isinstance(callee, Closure):
            raise to.error(f"what is called is no function but {text_of(callee)}", node.place)
        function = callee.function
        args = [to.read(arg, frame, node.place) for arg in node.args]
        called = callee.name or function.place.name or "the function"
        if len(args) != len(function.params):
            raise to.error(f"{called} takes {len(function.params)} arguments, {len(args)} given", node.place)
        for param, arg in zip(function.params, args):
            to.declared(param.type, arg, node.place, f"argument %{param.name} of {called}")
        body = callee.scopes.bodies[function]
        if function in to.recursive or self._inlined > INLINED_NODES:
            value = yield self._private(callee, args, node.place, called)
        else:
            self._inlined += len(body.nodes)
            inner = Frame(callee.scopes, body, callee.frame, to.context)
            inner.values.update(zip(function.params, args))
            value = yield to.scope(inner)
        to.declared(function.result, value, node.place, f"the result of {called}")
        return value

    def _private(self, callee: Closure, args: list[Value], place: ast.Place, called: str) -> Work:
        """Call a private function; it is made where there is none for such arguments."""
        to = self._conversion
        function = callee.function
        types = [
            param.type if function in to.recursive and _is_data(param.type) else signature(arg)
            for param, arg in zip(function.params, args)
        ]
        key = (function, callee.frame, tuple(types))
        instance = self._instances.get(key)
        if instance is None:
            instance = yield self._define(key, callee, args, called)
        if not flat(instance.result):
            return instance.result
        to.emit.origin = place.name or operator_name(called, place, to.numbers)
        tensors = [leaf for leaf in flat(tuple(args)) if hasattr(leaf, "ty")]
        captured = [to.context.local(variable) for variable in instance.captures]
        result = to.emit(relax.Call(instance.variable, [*tensors, *captured]))
        return to.unpacked(result, instance.result)

    def _define(self, key: Any, callee: Closure, args: list[Value], called: str) -> Work:
        """Make the private function of a closure for arguments like ``args``."""
        to = self._conversion
        function = callee.function
        repeats = function in to.recursive
        to.nest(function.place)
        renamed = Renamed()
        params: list[Any] = []

        def parameter(name: str, ty) -> Any:
            params.append(relax.Var(name, ty))
            return params[-1]

        values: list[Value] = []
        for param, arg in zip(function.params, args):
            if repeats and _is_data(param.type):
                declared = iter(leaves(param.type, param.name))

                def take(declared=declared) -> Any:
                    name, ty = next(declared)
                    return parameter(name, tensor_type(ty, lambda axis: tirx.Var(f"size{axis}", "int64")))

                values.append(structured(param.type, take))
            else:
                values.append(
                    rebuilt(
                        arg,
                        lambda leaf, name=param.name: (
                            parameter(name, renamed.type(leaf.ty)) if hasattr(leaf, "ty") else leaf
                        ),
                    )
                )
        outside = captures([callee, *args_closures(args)])
        context = Context(
            {variable: parameter(variable.name, renamed.type(variable.ty)) for variable in outside}
        )
        # The builder numbers names that are taken; the public function's is not yet.
        name = callee.name.lstrip("@") or "local"
        name = "main_called" if name == "main" else name
        if repeats:
            variable, result = self._stub(function, name, params, called)
            self._instances[key] = Instance(variable, outside, result)
        before, to.context = to.context, context
        to.builder.begin_scope(params)
        to.begin()
        frame = Frame(callee.scopes, callee.scopes.bodies[function], callee.frame, context)
        frame.values.update(zip(function.params, values))
        value = yield to.scope(frame)
        to.declared(function.result, value, function.place, f"the result of {called}")
        items = flat(value)
        if any(not hasattr(item, "ty") for item in items):
            raise to.error(
                f"{called} is recursive or called very often, and returns a function", function.place
            )
        if repeats:
            items = [self._as_declared(item, ty) for item, ty in zip(items, flat(result))]
        body = to.builder.emit(items[0] if len(items) == 1 else relax.Tuple(items))
        sequence = relax.SeqExpr([to.end()], body)
        relax.expr._update_type(sequence, body.ty)
        to.builder.end_scope()
        to.context = before
        to.nesting -= 1
        known = {symbol for param in params for symbol in symbols(param.ty)}
        made = relax.Function(params, sequence, _erased(body.ty, known))
        if repeats:
            to.builder.update_func(variable, made)
        else:
            self._instances[key] = Instance(to.builder.add_func(made, name), outside, value)
        return self._instances[key]

    def _stub(self, function: ast.Function, name: str, params: list[Any], called: str) -> tuple[Any, Value]:
        """Add a recursive function without its body; return its variable and its declared result."""
        to = self._conversion
        try:
            declared = iter(leaves(function.result, called))
        except BadType as error:
            raise to.error(f"the result of {called}, which is recursive: {error}", function.place) from None
        result = structured(function.result, lambda: next(declared)[1])
        types = [_returned(leaf) for leaf in flat(result)]
        returned = types[0] if len(types) == 1 else relax.TupleType(types)
        # The builder has one variable for equal functions; stubs of equal types must differ.
        stub = relax.Function.create_empty(params, returned).with_attr("tvmpass.stub", len(self._instances))
        return to.builder.add_func(stub, name), result

    def _as_declared(self, item, ty: ast.TensorType):
        """Return a result of a recursive function in the type that its callers were told."""
        told = _returned(ty)
        if isinstance(told.shape, relax.ShapeExpr) and not isinstance(item.ty.shape, relax.ShapeExpr):
            return self._conversion.cast(item, ty.shape)
        return item


def _returned(ty: ast.TensorType):
    """Return a declared result's type; with an open dim, of its rank only: nothing defines the dim."""
    whole = tensor_type(ty, lambda axis: tirx.Var("size", "int64"))
    return whole if None not in ty.shape else relax.TensorType(dtype=str(whole.dtype), ndim=len(ty.shape))


def _erased(ty, known: set[Any]):
    """Return a result's type without the shapes that its function's parameters do not define."""
    if isinstance(ty, relax.TupleType):
        return relax.TupleType([_erased(item, known) for item in ty.fields])
    if isinstance(ty, relax.TensorType) and not set(symbols(ty)) <= known:
        return relax.TensorType(dtype=str(ty.dtype), ndim=ty.ndim)
    return ty


def _is_data(ty: ast.Type | None) -> bool:
    """Say whether a declared type is of tensors alone."""
    if isinstance(ty, ast.TupleType):
        return all(_is_data(item) for item in ty.fields)
    return isinstance(ty, ast.TensorType)


def args_closures(args: Sequence[Value]) -> list[Closure]:
    """Return the closures among arguments."""
    return [leaf for leaf in flat(tuple(args)) if isinstance(leaf, Closure)]


def unlike(one: Value, other: Value) -> str | None:
    """Say how the values of two branches differ in structure, rank or dtype; None where they do not."""
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        found = (unlike(left, right) for left, right in zip(one, other))
        return next((reason for reason in found if reason), None)
    if not isinstance(one, tuple) and not isinstance(other, tuple):
        if (one.ty.ndim, str(one.ty.dtype)) == (other.ty.ndim, str(other.ty.dtype)):
            return None
    return f"{text_of(one)} and {text_of(other)}"


class Renamed:
    """Types for the parameters of a new function: symbols are scoped, so each gets a new one."""

    def __init__(self) -> None:
        self._symbols: dict[Any, Any] = {}

    def type(self, ty):
        """Return the type with new symbols; a dim that is computed becomes a symbol of its own."""
        if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
            return ty
        return relax.TensorType([self._dim(dim) for dim in ty.shape.values], str(ty.dtype))

    def _dim(self, dim):
        if isinstance(dim, tirx.IntImm):
            return dim
        plain = isinstance(dim, tirx.Var)
        return self._symbols.setdefault(
            dim if plain else str(dim), tirx.Var(dim.name if plain else "size", "int64")
        )


def signature(value: Value) -> Any:
    """Return what of an argument decides how its function is made: types, and functions by identity."""
    numbers: dict[Any, int] = {}

    def dim_of(dim) -> Any:
        if isinstance(dim, tirx.IntImm):
            return int(dim)
        met = symbols(relax.TensorType([dim], "int64"))
        return (str(dim), *(numbers.setdefault(symbol, len(numbers)) for symbol in met))

    def part(item: Value) -> Any:
        ty = getattr(item, "ty", None)
        if isinstance(ty, relax.TensorType):
            known = isinstance(ty.shape, relax.ShapeExpr)
            return (str(ty.dtype), tuple(map(dim_of, ty.shape.values)) if known else ty.ndim)
        return (item.function, item.frame) if isinstance(item, Closure) else item

    return rebuilt(value, part)
