"""What a rule sees: a function with its readers, and one place in it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx

from .source import origin

if TYPE_CHECKING:
    from .rule import SimplifyRule

GenericConst = tvm.ir.GenericConst

REMOVED = object()
"""What ``SimplifyRule.rewrite`` returns to delete a root that nothing reads."""

_DIGEST_BYTES = 1 << 16


def op_name(expr) -> str | None:
    """Return the operator name of a call to a Relax operator, else None."""
    if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
        return expr.op.name
    return None


def static_shape(expr) -> tuple[int, ...] | None:
    """Return the shape as ints, or None when unknown or symbolic."""
    dims = shape_of(expr)
    if dims is None or not all(isinstance(d, int) for d in dims):
        return None
    return dims


def shape_of(expr) -> tuple[Any, ...] | None:
    """Return the dims of a tensor (int, or a PrimExpr where symbolic), else None."""
    ty = expr.ty
    if not isinstance(ty, relax.TensorType) or ty.shape is None:
        return None
    values = getattr(ty.shape, "values", ty.shape)
    if isinstance(values, relax.Expr):
        return None
    return tuple(int(d) if isinstance(d, (int, tirx.IntImm)) else d for d in values)


def dtype_of(expr) -> str | None:
    """Return the dtype of a tensor as a string, else None."""
    ty = expr.ty
    return str(ty.dtype) if isinstance(ty, relax.TensorType) else None


def same_shape(a, b) -> bool:
    """Return True where two shapes are provably equal, dim by dim."""
    if a is None or b is None or len(a) != len(b):
        return False
    for x, y in zip(a, b):
        if isinstance(x, int) and isinstance(y, int):
            if x != y:
                return False
        elif isinstance(x, int) or isinstance(y, int):
            return False
        elif not tvm_ffi.structural_equal(x, y):
            return False
    return True


def operands(value) -> Iterator[Any]:
    """Yield the leaf operands of a binding's value, tuples flattened, in order."""
    if isinstance(value, relax.Call):
        for arg in value.args:
            yield from _leaves(arg)
    elif isinstance(value, relax.TupleGetItem):
        yield from _leaves(value.tuple_value)
    else:
        yield from _leaves(value)


def _leaves(expr) -> Iterator[Any]:
    if isinstance(expr, relax.Tuple):
        for item in expr.fields:
            yield from _leaves(item)
    else:
        yield expr


class FunctionView:
    """One Relax function in A-normal form, with readers and definitions.

    Built once per state of the function and never updated: a rewrite makes a
    new view.  ``bindings`` maps each variable to its value in program order.
    """

    def __init__(self, mod, function_name: str):
        self.mod = mod
        self.name = function_name
        self.function = mod[function_name]
        self.bindings: dict[relax.Var, Any] = {}
        self.block_of: dict[relax.Var, int] = {}
        self.match_casts: set[relax.Var] = set()
        self.users: dict[relax.Var, list[relax.Var]] = {}
        self.outputs: set[relax.Var] = set()
        self.value_to_var: dict[Any, relax.Var] = {}
        for index, block in enumerate(self.function.body.blocks):
            for binding in block.bindings:
                var = binding.var
                self.bindings[var] = binding.value
                self.block_of[var] = index
                if isinstance(binding, relax.MatchCast):
                    self.match_casts.add(var)
                for used in _variables(binding.value):
                    self.users.setdefault(used, []).append(var)
                if not isinstance(var, relax.DataflowVar):
                    self.outputs.add(var)
                if not isinstance(binding.value, relax.Var):
                    self.value_to_var.setdefault(binding.value, var)
        for used in _variables(self.function.body.body):
            self.outputs.add(used)
        self.order = {var: i for i, var in enumerate(self.bindings)}
        self.var_to_value = relax.analysis.get_var2val(self.function)

    def returned(self, var) -> bool:
        """Return True where ``var`` is part of the function's result."""
        return var in self._returned

    @cached_property
    def _returned(self) -> frozenset:
        return frozenset(_variables(self.function.body.body))

    def in_dataflow(self, var) -> bool:
        return isinstance(self.function.body.blocks[self.block_of[var]], relax.DataflowBlock)

    def value(self, expr):
        """Return the value bound to a variable; any other expression as it is."""
        if isinstance(expr, relax.Var):
            return self.bindings.get(expr, expr)
        return expr

    def op(self, expr) -> str | None:
        """Return the operator name behind ``expr`` (a variable or a call)."""
        return op_name(self.value(expr))

    def escapes(self, var, inside: Iterable[relax.Var]) -> bool:
        """Return True where ``var`` is read outside ``inside`` or leaves the block."""
        inside = inside if isinstance(inside, (set, frozenset, dict)) else set(inside)
        return var in self.outputs or any(user not in inside for user in self.users.get(var, ()))

    def match_pattern(self, rule: SimplifyRule) -> Iterator[Site]:
        """Yield a site for every binding that ``rule.pattern()`` matches."""
        pattern, names = rule.pattern()
        for var, value in self.bindings.items():
            if not isinstance(value, (relax.Call, relax.TupleGetItem, relax.Tuple)):
                continue
            found = pattern.extract_matched_expr(value, self.var_to_value)
            if found is None:
                continue
            bound = {}
            for name, sub in names.items():
                expr = found.get(sub)
                if expr is not None:
                    bound[name] = self.value_to_var.get(expr, expr)
            inside = {
                self.value_to_var[expr]
                for sub, expr in found.items()
                if expr in self.value_to_var and _is_inner(sub)
            }
            inside.add(var)
            yield Site.make(rule, self, var, inside, bound)


_INNER = tuple(
    getattr(relax.dpl, name)
    for name in ("CallPattern", "TupleGetItemPattern", "TuplePattern", "UnorderedTuplePattern")
    if hasattr(relax.dpl, name)
)


def _is_inner(pattern) -> bool:
    """Calls and tuple items are taken by a match; wildcards are its operands."""
    return isinstance(pattern, _INNER)


def _variables(expr) -> list[relax.Var]:
    """Return the variables read by a value, each once, in order."""
    found: dict[relax.Var, None] = {}
    simple = True
    for leaf in operands(expr):
        if isinstance(leaf, relax.Var):
            found[leaf] = None
        elif not isinstance(leaf, (GenericConst, relax.ShapeExpr, tvm.ir.Op)):
            simple = False
    if isinstance(expr, relax.Call) and not isinstance(expr.op, (tvm.ir.Op, tvm.ir.GlobalVar)):
        simple = False
    if not simple:
        relax.analysis.post_order_visit(
            expr, lambda e: found.setdefault(e) if isinstance(e, relax.Var) else None
        )
    return list(found)


@dataclass
class Site:
    """One place where a rule matched.

    ``bindings`` are the bindings the match would take, in program order, the
    last of which is usually ``root``; ``bound`` maps the pattern's names to a
    variable where the expression is bound to one, else to the expression
    itself (a constant, a parameter).
    """

    rule: SimplifyRule
    view: FunctionView
    root: relax.Var
    bindings: tuple[relax.Var, ...]
    bound: Mapping[str, Any]
    data: dict[str, Any] = field(default_factory=dict)
    ordinal: int = 0

    @classmethod
    def make(cls, rule, view, root, bindings, bound=None, **data) -> Site:
        """Make a site; ``bindings`` may come in any order."""
        ordered = tuple(sorted(bindings, key=lambda v: view.order[v]))
        return cls(rule, view, root, ordered, dict(bound or {}), data)

    def __getitem__(self, name: str):
        return self.bound[name]

    def value(self, name: str):
        """Return the call (or constant) behind ``name``."""
        return self.view.value(self.bound[name])

    def attrs(self, name: str):
        """Return the attributes of the call behind ``name``."""
        return self.value(name).attrs

    def constant(self, name: str) -> np.ndarray | None:
        """Return the constant behind ``name`` as an array, else None."""
        expr = self.value(name)
        return expr.value.numpy() if isinstance(expr, GenericConst) else None

    def shape(self, name: str):
        return shape_of(self.bound[name])

    def dtype(self, name: str) -> str | None:
        return dtype_of(self.bound[name])

    def escapes(self, name: str) -> bool:
        """Return True where the value is read outside this match or returned."""
        var = self.bound[name]
        return isinstance(var, relax.Var) and self.view.escapes(var, set(self.bindings))

    def readers(self, name: str) -> list[str]:
        """Return the operators that read ``name`` outside the match (``output`` if returned)."""
        var, inside = self.bound[name], set(self.bindings)
        kinds = [self.view.op(u) or "other" for u in self.view.users.get(var, ()) if u not in inside]
        return kinds + (["output"] if var in self.view.outputs else [])

    def name(self, name: str) -> str:
        """Return the variable's name in the function, for messages."""
        expr = self.bound[name]
        return expr.name if isinstance(expr, relax.Var) else "constant"

    @cached_property
    def origin(self) -> tuple[str, ...]:
        """Return the source nodes of all taken bindings, first seen first."""
        names: dict[str, None] = {}
        for var in self.bindings:
            for node in origin(self.view.bindings[var]):
                names[node] = None
        return tuple(names)

    @cached_property
    def digest(self) -> str:
        """Hash rule, function, the match, its readers' kinds and source nodes.

        Stable across processes and across renaming of variables.
        """
        text = [self.rule.name, self.view.name, *self.origin]
        index = {var: i for i, var in enumerate(self.bindings)}
        for var in self.bindings:
            text.append(describe(self.view.bindings[var], index))
            outside = [u for u in self.view.users.get(var, ()) if u not in index]
            text.append(",".join(sorted(self.view.op(u) or "other" for u in outside)))
            text.append("out" if var in self.view.outputs else "")
        return hashlib.sha256("\x00".join(text).encode()).hexdigest()[:16]

    @property
    def id(self) -> str:
        """The site's identity in the report; equal sites differ by an ordinal."""
        return f"{self.digest}#{self.ordinal}"


def describe(value, index: Mapping[Any, int]) -> str:
    """Return a name-free text of a binding's value, constants by content."""

    def token(expr) -> str:
        if isinstance(expr, relax.Var):
            return f"%{index[expr]}" if expr in index else f"<{expr.ty}>"
        if isinstance(expr, GenericConst):
            array = expr.value.numpy()
            data = np.ascontiguousarray(array).view(np.uint8).reshape(-1)[:_DIGEST_BYTES]
            return f"const<{array.dtype}{array.shape}{hashlib.sha256(data.tobytes()).hexdigest()[:12]}>"
        if isinstance(expr, relax.Tuple):
            return "(" + ",".join(token(e) for e in expr.fields) + ")"
        return str(expr)

    if isinstance(value, relax.Call):
        op = value.op.name if isinstance(value.op, tvm.ir.Op) else token(value.op)
        return f"{op}({','.join(token(a) for a in value.args)}){value.attrs}:{value.ty}"
    if isinstance(value, relax.TupleGetItem):
        return f"{token(value.tuple_value)}[{value.index}]"
    return token(value)


@dataclass
class Candidate:
    """One legal thing a proposal rule could make of a site.

    ``bindings`` are taken (in program order, ``root`` last) and become one
    kernel; ``identity`` is what the group *is* (rule, anchor operator, layout,
    epilogue operators) and names no site, so that equal groups share a kernel.
    ``replacement`` is an expression over the group's inputs that stands in for
    the taken bindings, or None where they are taken as they are.
    """

    site: Site
    bindings: tuple[relax.Var, ...]
    label: str
    kernel_name: str
    identity: Mapping[str, Any]
    replacement: Any = None

    @property
    def root(self) -> relax.Var:
        return self.bindings[-1]

    @property
    def rule(self):
        return self.site.rule


def outputs_of(view: FunctionView, bindings: Sequence[relax.Var]) -> list[relax.Var]:
    """Return those of ``bindings`` that are read outside them or returned."""
    inside = set(bindings)
    return [var for var in bindings if view.escapes(var, inside)]
