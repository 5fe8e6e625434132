"""Run the tree of a Relay program on numpy arrays.

Written from Relay's meaning alone, for the checks of the parser and the
converters, with which it shares nothing but the tree.  A value is an array, a
tuple of values or a `Closure`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tvmpass.frontends.relay import ast

from . import attributes, numpy_elementwise, numpy_movement, numpy_networks, numpy_quantized
from .numpy_table import TABLE
from .steps import Step, run

__all__ = ["OPERATORS", "Closure", "interpret", "type_of", "types_of"]

OPERATORS = frozenset(TABLE)
"""The operators that can be run."""

_FAMILIES = (numpy_elementwise, numpy_movement, numpy_networks, numpy_quantized)


@dataclass
class Frame:
    """One call of a function: its variables, and what was computed in it."""

    parent: Frame | None = None
    variables: dict[ast.Var, Any] = field(default_factory=dict)
    values: dict[ast.Expression, Any] = field(default_factory=dict)

    def look_up(self, variable: ast.Var) -> Any:
        """Return a variable's value, from here or from where the function was made."""
        frame: Frame | None = self
        while frame is not None:
            if variable in frame.variables:
                return frame.variables[variable]
            frame = frame.parent
        raise LookupError(f"%{variable.name} has no value here")


@dataclass
class Closure:
    """A function with the frame in which it was made."""

    function: ast.Function
    frame: Frame | None


def interpret(
    module: ast.Module,
    inputs: Sequence[Any],
    name: str = "main",
    observe: Callable[[ast.Expression, Any], None] | None = None,
) -> Any:
    """Call a global function; return an array or a tuple of values.

    ``observe`` is told every value that is computed, with its node.
    """
    with np.errstate(all="ignore"):
        return run(_Interpreter(module, observe).call(Closure(module.functions[name], None), list(inputs)))


def types_of(module: ast.Module, inputs: Sequence[Any]) -> dict[ast.Expression, ast.Type]:
    """Return the types of the values that a run computes; a branch not taken has none."""
    types: dict[ast.Expression, ast.Type] = {}

    def note(node: ast.Expression, value: Any) -> None:
        kind = type_of(value)
        if kind is not None:
            types.setdefault(node, kind)

    interpret(module, inputs, observe=note)
    return types


class _Interpreter:
    def __init__(self, module: ast.Module, observe: Callable[[ast.Expression, Any], None] | None):
        self._module = module
        self._observe = observe

    def call(self, closure: Closure, arguments: list[Any]) -> Step:
        """Run a function's body in a frame of its own."""
        function = closure.function
        if len(arguments) != len(function.params):
            raise TypeError(f"{len(arguments)} arguments for {len(function.params)} parameters")
        frame = Frame(closure.frame, dict(zip(function.params, arguments)))
        for param, argument in frame.variables.items():
            self._show(param, argument)
        return (yield self._value(function.body, frame))

    def _value(self, node: ast.Expression, frame: Frame) -> Step:
        if node in frame.values:
            return frame.values[node]
        value = yield self._computed(node, frame)
        frame.values[node] = value
        self._show(node, value)
        return value

    def _show(self, node: ast.Expression, value: Any) -> None:
        if self._observe is not None:
            self._observe(node, value)

    def _values(self, nodes: Sequence[ast.Expression], frame: Frame) -> Step:
        values = []
        for node in nodes:
            values.append((yield self._value(node, frame)))
        return values

    def _computed(self, node: ast.Expression, frame: Frame) -> Step:
        if isinstance(node, ast.Var):
            return frame.look_up(node)
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Tuple):
            return tuple((yield self._values(node.fields, frame)))
        if isinstance(node, ast.TupleGetItem):
            return (yield self._value(node.value, frame))[node.index]
        if isinstance(node, ast.If):
            condition = yield self._value(node.condition, frame)
            return (yield self._value(node.then if condition.item() else node.otherwise, frame))
        if isinstance(node, ast.Let):
            return (yield self._lets(node, frame))
        if isinstance(node, ast.Function):
            return Closure(node, frame)
        if isinstance(node, ast.Global):
            return Closure(self._module.functions[node.name], None)
        if isinstance(node, ast.Call):
            return (yield self._call(node, frame))
        raise TypeError(f"{type(node).__name__} is not run")

    def _lets(self, node: ast.Let, frame: Frame) -> Step:
        for variable, value in node.bindings:
            frame.variables[variable] = yield self._value(value, frame)
            self._show(variable, frame.variables[variable])
        return (yield self._value(node.body, frame))

    def _call(self, node: ast.Call, frame: Frame) -> Step:
        arguments = yield self._values(node.args, frame)
        if isinstance(node.function, ast.Operator):
            name = node.function.name
            stated = {key: _plain(value) for key, value in node.attrs.items()}
            result = TABLE[name](attributes.filled(name, stated), *arguments)
            return result if isinstance(result, tuple) else np.asarray(result)
        closure = yield self._value(node.function, frame)
        return (yield self.call(closure, arguments))


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, ast.Constant) else value


def type_of(value: Any) -> ast.Type | None:
    """Return the type of a value; None for a function that does not state its own."""
    if isinstance(value, np.ndarray):
        return ast.TensorType(tuple(value.shape), value.dtype.name)
    if isinstance(value, tuple):
        items = [type_of(item) for item in value]
        return None if None in items else ast.TupleType(tuple(items))
    function = value.function
    params = tuple(param.type for param in function.params)
    return None if None in (*params, function.result) else ast.FunctionType(params, function.result)
