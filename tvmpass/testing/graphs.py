"""Make small Relax modules for tests of rules, and run them on numpy arrays."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import relax, tirx

from tvmpass.core.constants import evaluate
from tvmpass.core.rebuild import flatten
from tvmpass.core.site import op_name
from tvmpass.core.source import with_origin

NAMES = "xyzuvw"


def graph(body: Callable, *inputs: Sequence, dataflow: bool = True):
    """Make a module with one function ``main`` from an expression.

    Each of ``inputs`` is ``(shape, dtype)`` or ``(shape,)`` (float32); a string
    in a shape is a symbolic dim, equal strings the same one.  ``body`` gets a
    variable per input and returns an expression, or a tuple of them for
    several results; an expression used twice is computed once.

    >>> graph(lambda x: relax.op.nn.relu(x), (("n", 4),))
    """
    dims: dict[str, tirx.Var] = {}

    def dim(d):
        return dims.setdefault(d, tirx.Var(d, "int64")) if isinstance(d, str) else d

    params = []
    for name, spec in zip(NAMES, inputs):
        shape, dtype = spec if len(spec) == 2 else (spec[0], "float32")
        params.append(relax.Var(name, relax.TensorType([dim(d) for d in shape], dtype)))
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        result = body(*params)
        many = isinstance(result, tuple)
        parts = result if many else (result,)
        emitted: dict = {}

        def emit(part):
            value = emitted[part] if part in emitted else flatten(builder, part, emitted)
            made = builder.emit_output(value) if dataflow else builder.emit(value)
            emitted.setdefault(part, made)
            return made

        if dataflow:
            with builder.dataflow():
                outputs = [emit(part) for part in parts]
        else:
            outputs = [emit(part) for part in parts]
        builder.emit_func_output(relax.Tuple(outputs) if many else outputs[0])
    return relax.transform.CanonicalizeBindings()(builder.finalize())


def named(name: str, expr):
    """Return ``expr`` as if it came from the source node ``name``."""
    return with_origin(expr, [name])


def kernel_calls(mod, function: str = "main") -> Counter[str]:
    """Return how often ``function`` calls each kernel of a lowered module, by name."""
    calls: Counter[str] = Counter()

    def visit(expr) -> None:
        if op_name(expr) == "relax.call_tir":
            calls[expr.args[0].name_hint] += 1

    relax.analysis.post_order_visit(mod[function], visit)
    return calls


def operators(mod, function: str = "main") -> list[str]:
    """Return the operators called in a function, in order, without ``relax.``."""
    found = []
    for block in mod[function].body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op):
                found.append(value.op.name.removeprefix("relax."))
            else:
                found.append(type(value).__name__)
    return found


def run(mod, *arrays: np.ndarray) -> list[np.ndarray]:
    """Compile ``mod`` with stock TVM for this CPU and run ``main`` once.

    Stock TVM's max, min, relu and sign lose NaN.
    """
    result = _machine(mod)["main"](*[tvm.runtime.tensor(np.ascontiguousarray(a)) for a in arrays])
    return [t.numpy() for t in _flatten(result)]


@functools.lru_cache(maxsize=8)
def _machine(mod):
    """Compile once for several inputs; modules are told apart by identity."""
    return relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())


def interpret(mod, *arrays: np.ndarray) -> list[np.ndarray]:
    """Run ``main`` in numpy, operator by operator, with tvmpass's meaning of NaN.

    Raises `NotImplementedError` for an operator that numpy does not evaluate,
    or a shape that is not static.
    """
    function = mod["main"]
    values: dict = dict(zip(function.params, arrays))

    def value_of(expr):
        if isinstance(expr, relax.Var):
            return values[expr]
        if isinstance(expr, relax.Tuple):
            return [value_of(field) for field in expr.fields]
        return expr.value.numpy() if isinstance(expr, tvm.ir.GenericConst) else None

    for block in function.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call):
                result = evaluate(value, [value_of(a) for a in value.args])
                if result is None:
                    raise NotImplementedError(f"numpy does not evaluate {value.op.name} to {value.ty}")
            elif isinstance(value, relax.TupleGetItem):
                result = value_of(value.tuple_value)[value.index]
            else:
                result = value_of(value)
            values[binding.var] = result
    result = value_of(function.body.body)
    return result if isinstance(result, list) else [result]


def _flatten(result):
    if isinstance(result, tvm.runtime.Tensor):
        yield result
    else:
        for item in result:
            yield from _flatten(item)
