"""Calls of functions: inlined, or calls of private Relax functions.

A closure that a private function reads becomes further parameters, in the order
of `closures.captures`; they are found before its body is converted, because a
recursive call passes them on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm import relax, tirx

from . import ast
from .calls import operator_name
from .closures import Closure, Context, Frame, captures
from .loops import find_loop, make_loop
from .table import Value
from .types import (
    BadType,
    flat,
    has_open_dims,
    is_data,
    leaves,
    rebuilt,
    structured,
    symbols,
    tensor_type,
    text_of,
)

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
        self.conversion = conversion
        self._instances: dict[Any, Instance] = {}
        self._inlined = 0
        self._stepping: set[ast.Function] = set()
        self.resizing: set[ast.Function] = set()
        """Loops whose open dims change from step to step."""
        self.recursive = False
        """Whether a function calls itself otherwise than as a loop."""

    @property
    def made(self) -> bool:
        """Say whether there are private functions."""
        return bool(self._instances)

    def call(self, node: ast.Call, frame: Frame) -> Work:
        """Call a closure and return its value."""
        to = self.conversion
        callee = to.read(node.function, frame, node.place)
        if not isinstance(callee, Closure):
            raise to.error(f"what is called is no function but {text_of(callee)}", node.place)
        function = callee.function
        args = [to.read(arg, frame, node.place) for arg in node.args]
        called = callee.name or function.place.name or "fn"
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
        to = self.conversion
        key = self._key(callee, args)
        instance = self._instances.get(key)
        if instance is None:
            instance = yield self._define(callee, args, called)
        if not flat(instance.result):
            return instance.result
        to.emit.origin = place.name or operator_name(called, place, to.numbers)
        tensors = [leaf for leaf in flat(tuple(args)) if hasattr(leaf, "ty")]
        captured = [to.context.local(variable) for variable in instance.captures]
        result = to.emit(relax.Call(instance.variable, [*tensors, *captured]))
        return to.unpacked(result, instance.result)

    def _key(self, callee: Closure, args: list[Value]) -> Any:
        """Return what decides which private function a call gets."""
        function = callee.function
        declared = function in self.conversion.recursive and not self.keeps_sizes(callee, args)
        types = [
            param.type if declared and is_data(param.type) else signature(arg)
            for param, arg in zip(function.params, args)
        ]
        return (function, callee.frame, tuple(types))

    def keeps_sizes(self, callee: Closure, args: list[Value]) -> bool:
        """Say whether the function is a loop with open dims that, as far as is known, stay what they are."""
        function = callee.function
        if function in self.resizing or not any(has_open_dims(param.type) for param in function.params):
            return False
        return find_loop(callee, args) is not None

    def _define(self, callee: Closure, args: list[Value], called: str) -> Work:
        """Make the private function of a closure for arguments like ``args``."""
        to = self.conversion
        function = callee.function
        to.nest(function.place)
        outside = captures([callee, *closures_among(args)])
        # The builder numbers names that are taken; the public function's is not yet.
        name = re.sub(r"\W", "_", called.lstrip("@%"))
        name = "main_called" if name == "main" else name
        loop = find_loop(callee, args) if function in to.recursive else None
        if loop is not None and function not in self._stepping:
            self._stepping.add(function)  # what a step calls may call the function back
            instance = yield make_loop(self, loop, callee, args, outside, name, called)
            self._stepping.discard(function)
        elif function in to.recursive:
            self.recursive = True
            instance = self.stub(callee, args, outside, name, called)
            made, _ = yield self.build(callee, args, outside, to.scope, instance.result, called)
            to.builder.update_func(instance.variable, made)
        else:
            made, result = yield self.build(callee, args, outside, to.scope, None, called)
            instance = Instance(to.builder.add_func(made, name), outside, result)
            self._instances[self._key(callee, args)] = instance
        to.nesting -= 1
        return instance

    def build(
        self,
        callee: Closure,
        args: list[Value],
        outside: list[Any],
        convert: Callable[[Frame], Work],
        told: Value | None,
        called: str,
    ) -> Work:
        """Return a Relax function with the parameters of a closure, and its result's value.

        ``convert`` makes the result in the frame of the closure's body; ``told``
        is what callers were told of its types.
        """
        to = self.conversion
        function = callee.function
        params, values, context = self.parameters(callee, args, outside)
        before, to.context = to.context, context
        to.builder.begin_scope(params)
        to.begin()
        frame = Frame(callee.scopes, callee.scopes.bodies[function], callee.frame, context)
        frame.values.update(zip(function.params, values))
        value = yield convert(frame)
        items = flat(value)
        if any(not hasattr(item, "ty") for item in items):
            why = "is recursive" if function in to.recursive else "is called too often to be inlined"
            raise to.error(f"{called} returns a function and {why}", function.place)
        if told is not None:
            if convert == to.scope:
                to.declared(function.result, value, function.place, f"the result of {called}")
            items = self.as_told(items, told)
        made = self.finish(params, items)
        to.context = before
        return made, value

    def finish(self, params: list[Any], items: list[Any]) -> relax.Function:
        """Return the function whose block and scope are open, which returns ``items``."""
        to = self.conversion
        body = to.builder.emit(items[0] if len(items) == 1 else relax.Tuple(items))
        sequence = relax.SeqExpr([to.end()], body)
        relax.expr._update_type(sequence, body.ty)
        to.builder.end_scope()
        known = {symbol for param in params for symbol in symbols(param.ty)}
        return relax.Function(params, sequence, _erased(body.ty, known))

    def parameters(
        self, callee: Closure, args: list[Value], outside: list[Any]
    ) -> tuple[list[Any], list[Value], Context]:
        """Return new Relax parameters, the values that the body sees, and what carries the captures.

        A recursive function has the types that it declares, as its next arguments
        may have other open dims than these; a loop that keeps them has these.
        """
        function = callee.function
        repeats = function in self.conversion.recursive and not self.keeps_sizes(callee, args)
        renamed = Renamed()
        params: list[Any] = []

        def parameter(name: str, ty) -> Any:
            params.append(relax.Var(name, ty))
            return params[-1]

        def declared(param: ast.Var) -> Value:
            tensors = iter(leaves(param.type, param.name))

            def take() -> Any:
                name, ty = next(tensors)
                return parameter(name, tensor_type(ty, lambda axis: tirx.Var(f"size{axis}", "int64")))

            return structured(param.type, take)

        def like(param: ast.Var, arg: Value) -> Value:
            def take(leaf: Any) -> Any:
                return parameter(param.name, renamed.type(leaf.ty)) if hasattr(leaf, "ty") else leaf

            return rebuilt(arg, take)

        values = [
            declared(param) if repeats and is_data(param.type) else like(param, arg)
            for param, arg in zip(function.params, args)
        ]
        carried = {outer: parameter(outer.name, renamed.type(outer.ty)) for outer in outside}
        return params, values, Context(carried)

    def stub(
        self,
        callee: Closure,
        args: list[Value],
        outside: list[Any],
        name: str,
        called: str,
        types: Callable[[list[Any]], list[Any] | None] = lambda params: None,
    ) -> Instance:
        """Add a recursive function without its body, of its declared result.

        ``types`` may know the result's types better, given the parameters.
        """
        to = self.conversion
        function = callee.function
        params, _, _ = self.parameters(callee, args, outside)
        try:
            tensors = iter(leaves(function.result, called))
        except BadType as error:
            raise to.error(f"the result of {called}, which is recursive: {error}", function.place) from None
        result = structured(function.result, lambda: next(tensors)[1])
        parts = types(params) or [_returned(leaf) for leaf in flat(result)]
        returned = parts[0] if len(parts) == 1 else relax.TupleType(parts)
        # The builder has one variable for equal functions; stubs of equal types must differ.
        stub = relax.Function.create_empty(params, returned).with_attr("tvmpass.stub", len(self._instances))
        instance = Instance(to.builder.add_func(stub, name), outside, result)
        self._instances[self._key(callee, args)] = instance
        return instance

    def as_told(self, items: list[Any], told: Value) -> list[Any]:
        """Return a recursive function's results in the types that its callers were told."""
        given = []
        for item, ty in zip(items, flat(told)):
            if None not in ty.shape and not isinstance(item.ty.shape, relax.ShapeExpr):
                item = self.conversion.cast(item, ty.shape)
            given.append(item)
        return given


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


def closures_among(args: Sequence[Value]) -> list[Closure]:
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
