"""Numeric verification: run rewrites before and after, and the whole model once.

What is compared, on normal and on special inputs: each distinct rewrite of a
simplify rule; each chosen fusion (its parts, unscheduled, against the one
scheduled kernel); every other scheduled kernel against its unscheduled form;
and the model against its unoptimised form.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx

from tvmpass.catalogue import finish
from tvmpass.core.analysis.types import elements
from tvmpass.core.analysis.work import binding_work
from tvmpass.core.decision import Refusal, RefusalKind
from tvmpass.core.engine import NUMERIC
from tvmpass.core.errors import TvmpassError, last_line
from tvmpass.core.nest import as_int
from tvmpass.core.options import Options
from tvmpass.core.site import Candidate, FunctionView, Site, _variables, dtype_of

from .codegen import kernel_context
from .exact_floats import guard
from .grouping import Group, GroupFunction, close_over, group_function, lower
from .latency import Latency
from .schedule import Scheduler, is_schedulable
from .verify_inputs import difference, draw_array, draw_parameters, input_sets

MAX_SCALAR_OPS = 2e9
"""Above this many scalar operations a comparison is not run, and reported so."""

MAX_MODEL_OPS = 2e10
"""The same bound for the whole model, which runs once."""

MAX_CONE = 200
"""Definitions that a cut-out may take in to find common ground."""

KERNEL_WRONG = RefusalKind("wrong-kernel", "the scheduled kernel differs on {inputs}: {difference}")


class NumericVerifier:
    """Runs cut-outs before and after; equal ones once."""

    kernels_apart = False
    """Is the kernel of a fusion compared apart from the fusion itself?"""

    def __init__(self, target: tvm.target.Target, options: Options):
        self.target, self.options = target, options
        self.scheduler = Scheduler(target, options, Latency(target, options))
        self.checked = 0
        self.not_checked = 0
        self.notes: list[str] = []
        self._memo: dict[str, Refusal | None] = {}

    def rewrite(self, site: Site, after: tuple[list, Any]) -> Refusal | None:
        """Compare a simplify rewrite, cut out of its function."""
        inner, value = after
        view = site.view
        before = [(v, view.bindings[v]) for v in site.bindings if view.order[v] <= view.order[site.root]]
        new = [(b.var, b.value) for b in inner] + [(site.root, value)]
        others = [pair for pair in before if pair[0] is not site.root]
        left_pairs, right_pairs = _common_ground(view, others, before[-1:], new)
        left = close_over(left_pairs, "before", {})
        right = close_over(right_pairs, "after", {})
        return self._compare(left, right, site.rule.reassociates, scheduled=(True, True))

    def candidate(self, view: FunctionView, candidate: Candidate) -> Refusal | None:
        """Compare a chosen fusion, scheduled, with its parts, unscheduled."""
        parts = [(v, view.bindings[v]) for v in candidate.bindings]
        left = close_over(parts, "before", {})
        right = group_function(view, Group.of(candidate))
        # In one kernel sums run in another order and products may be contracted with
        # sums, so that an intermediate overflows or does not: only integers are exact.
        exact = all(not (dtype_of(v) or "").startswith(("float", "bfloat")) for v in candidate.bindings)
        return self._compare(left, right, False, scheduled=(False, not self.kernels_apart), extreme=exact)

    def _compare(
        self, left: GroupFunction, right: GroupFunction, loose: bool, scheduled, extreme: bool = True
    ) -> Refusal | None:
        key = f"{left.key}:{right.key}:{_alignment(left, right)}:{scheduled}"
        if key in self._memo:
            return self._memo[key]
        if _work(left) > MAX_SCALAR_OPS:
            self.skip("above the bound on scalar operations")
            self._memo[key] = None
            return None
        refusal = self._run_both(left, right, loose, scheduled, extreme and not loose)
        self._memo[key] = refusal
        return refusal

    def _run_both(
        self, left: GroupFunction, right: GroupFunction, loose: bool, scheduled, extreme: bool
    ) -> Refusal | None:
        try:
            run_left = self._build(left, scheduled[0])
            run_right = self._build(right, scheduled[1])
        except Exception as error:  # an operator no backend lowers alone: said, not passed
            self.skip(last_line(error))
            return None
        arguments = list(left.arguments)
        extra = [a for a in right.arguments if not any(a is b or a.same_as(b) for b in arguments)]
        for name, arrays in input_sets([*arguments, *extra], self.options.seed, extreme):
            try:
                expected = run_left(arrays[: len(arguments)])
                found = run_right([arrays[_find(a, arguments, extra)] for a in right.arguments])
            except Exception as error:  # drawn inputs need not suit what is data-dependent
                self.skip(last_line(error))
                return None
            gap = difference(expected, found, loose)
            if gap is not None:
                return NUMERIC(inputs=name, difference=gap)
        self.checked += 1
        return None

    def skip(self, reason: str) -> None:
        """Count a comparison that was not made, and keep why."""
        self.not_checked += 1
        self.notes.append(reason)

    def kernel(self, function: tirx.PrimFunc, scheduled: tirx.PrimFunc) -> Refusal | None:
        """Compare a kernel of a single operator, scheduled, with its unscheduled form."""
        key = f"kernel:{tvm_ffi.structural_hash(function)}:{tvm_ffi.structural_hash(scheduled)}"
        if key not in self._memo:
            self._memo[key] = self._kernel(function, scheduled)
        return self._memo[key]

    def _kernel(self, function: tirx.PrimFunc, scheduled: tirx.PrimFunc) -> Refusal | None:
        shapes = self.checkable_shapes(function)
        if shapes is None:
            return None
        finished = finish(function, self.target, self.options)
        runs = [self._kernel_runner(f) for f in (finished, scheduled)]
        for name, drawn in self.drawn(function, shapes):
            results = [run([a.copy() for a in drawn]) for run in runs]
            gap = difference(results[0], results[1], loose=False)
            if gap is not None:
                return KERNEL_WRONG(inputs=name, difference=gap)
        self.checked += 1
        return None

    def checkable_shapes(self, function: tirx.PrimFunc) -> list[list[int]] | None:
        """Return the shapes to draw a kernel's arrays in; None, with the reason kept, where it is not run."""
        shapes = static_shapes(function)
        if shapes is None:
            self.skip("a kernel with symbolic dims, alone")
            return None
        if kernel_work(function) > MAX_SCALAR_OPS:
            self.skip("a kernel above the bound on scalar operations")
            return None
        return shapes

    def drawn(self, function: tirx.PrimFunc, shapes) -> Iterator[tuple[str, list[np.ndarray]]]:
        """Draw named sets of a kernel's arrays, outputs included."""
        for name in ("normal", "special"):
            rng = [np.random.default_rng([self.options.seed, k]) for k in range(len(shapes))]
            yield name, draw_parameters(function, shapes, rng, name)

    def packed(self, site: Site, function: tirx.PrimFunc, packing) -> Refusal | None:
        """Compare a kernel on the site's weight with its packed form on the packed weight."""
        shapes = static_shapes(function)
        if shapes is None or kernel_work(function) > MAX_SCALAR_OPS:
            self.skip("a packed kernel with symbolic dims or above the bound on scalar operations")
            return None
        weight = site.value("call").args[1].fields[packing.parameter].value.numpy()
        arrays = [
            draw_array(shape, str(p.ty.dtype), np.random.default_rng([self.options.seed, k]), "normal")
            for k, (shape, p) in enumerate(zip(shapes, function.params))
        ]
        # A packed weight repeats channels, so the schedule is checked here, on a real one.
        packed, array = packing.pack_function(function), packing.pack_array(weight)
        forms = (
            (finish(function, self.target, self.options), weight),
            (finish(packed, self.target, self.options), array),
            (self.scheduler.schedule(packed).function, array),
        )
        results = []
        for kernel, constant in forms:
            arguments = [a.copy() for a in arrays]
            arguments[packing.parameter] = constant
            results.append(self._kernel_runner(kernel)(arguments)[-1])
        for result in results[1:]:
            gap = difference(results[:1], [result], loose=False)
            if gap is not None:
                return KERNEL_WRONG(inputs="normal", difference=gap)
        self.checked += 1
        return None

    def _kernel_runner(self, function: tirx.PrimFunc):
        with kernel_context():
            library = tvm.compile(
                tvm.IRModule({"main": guard(function).with_attr("global_symbol", "main")}), self.target
            )

        def run(arrays):
            tensors = [tvm.runtime.tensor(a) for a in arrays]
            library["main"](*tensors)
            return [t.numpy() for t in tensors]

        return run

    def _build(self, made: GroupFunction, scheduled: bool):
        mod = tvm.IRModule()
        primitive = "Primitive" in (made.function.attrs or {})
        if primitive:
            variable = tvm.ir.GlobalVar("kernel")
            relax.expr._update_type(variable, made.function.ty)
            mod[variable] = made.function
            fresh = relax.utils.copy_with_new_vars(made.function)
            params = [relax.Var(f"p{i}", p.ty) for i, p in enumerate(fresh.params)]
            out = relax.Var("out", fresh.ret_ty)
            block = relax.BindingBlock(
                [relax.VarBinding(out, relax.Call(variable, params, None, [], None, fresh.ret_ty))]
            )
            main = relax.Function(params, relax.SeqExpr([block], out), fresh.ret_ty)
        else:
            main = made.function
            for attr in dict(main.attrs or {}):
                main = main.without_attr(attr)
        mod["main"] = main.with_attr("global_symbol", "main")
        mod = relax.transform.Normalize()(mod)
        mod = lower(mod, self.target, self.options)
        if scheduled:
            mod = schedule_all(mod, self.scheduler)
        else:
            mod = finish_all(mod, self.target, self.options)
        from .build import compile_vm

        vm = relax.VirtualMachine(compile_vm(mod, self.target), tvm.cpu())
        return lambda arrays: _flat(vm["main"](*[_to_vm(a) for a in arrays]))


def schedule_all(mod, scheduler: Scheduler):
    """Return ``mod`` with every kernel scheduled by the library."""
    result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for variable, function in mod.functions_items():
        if isinstance(function, tirx.PrimFunc):
            made = scheduler.schedule(function).function
            result.update_func(
                variable, made.with_attrs({**dict(made.attrs or {}), **dict(function.attrs or {})})
            )
    return result


def finish_all(mod, target, options: Options):
    """Return ``mod`` with only the mandatory steps applied to its kernels."""
    result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for variable, function in mod.functions_items():
        if isinstance(function, tirx.PrimFunc) and is_schedulable(function):
            result.update_func(variable, finish(function, target, options))
    return result


def verify_model(plain, artifact, job) -> None:
    """Compare the built model with its unoptimised form; raise where they differ.

    The unoptimised form is the canonical module, no rule applied, no kernel
    scheduled.  Where the kernels were compared apart, for another device, the
    optimised graph stands for the built model.  Raises `TvmpassError` listing
    the applied rules.
    """
    from .build import compile_vm
    from .canonical import canonicalize

    verifier = job.verifier
    mod = lower(canonicalize(plain), verifier.target, job.options)
    work = sum(kernel_work(f) for _, f in mod.functions_items() if isinstance(f, tirx.PrimFunc))
    if work > MAX_MODEL_OPS:
        verifier.skip("the model is above the bound on scalar operations")
        job.ledger.note("the whole model was not compared: above the bound on scalar operations")
        return

    def unscheduled(module):
        finished = finish_all(module, verifier.target, job.options)
        return relax.VirtualMachine(compile_vm(finished, verifier.target), tvm.cpu())

    vm = unscheduled(mod)
    if verifier.kernels_apart:
        built = unscheduled(lower(job.fused, verifier.target, job.options))
    else:
        built = artifact.vm()
    params = list(plain["main"].params)
    for name, arrays in input_sets(params, job.options.seed, False)[:1]:
        try:
            expected = _flat(vm["main"](*[_to_vm(a) for a in arrays]))
        except Exception as error:  # drawn inputs need not suit a data-dependent model
            verifier.skip(last_line(error))
            job.ledger.note(f"the whole model was not compared: {last_line(error)}")
            return
        found = _flat(built["main"](*[_to_vm(a) for a in arrays]))
        gap = difference(expected, found, loose=True, tolerance_scale=10.0)
        if gap is not None:
            applied = sorted(n for n, row in job.ledger.counts().items() if row["applied"])
            raise TvmpassError(
                f"verify: the built model differs from its unoptimised form on {name} inputs ({gap}); "
                f"rules applied: {', '.join(applied) or 'none'}; "
                "switch one off with without=(NAME,) or --without NAME"
            )
    verifier.checked += 1


def _common_ground(view: FunctionView, definitions, before, after) -> tuple[list, list]:
    """Complete both sides with the definitions they need to read the same values.

    A rewrite may name a value that the match does not read: an equal one,
    computed elsewhere. Going back through definitions, both come to depend on
    the same values.
    """
    cone: dict[Any, Any] = dict(definitions)
    while True:
        known = sorted(cone.items(), key=lambda pair: view.order[pair[0]])
        left, right = [*_needed(known, before), *before], [*_needed(known, after), *after]
        reads_left, reads_right = _read_by(left), _read_by(right)
        open_ends = [v for v in reads_left ^ reads_right if v in view.bindings]
        if reads_right <= reads_left or not open_ends or len(cone) > MAX_CONE:
            return left, right
        last = max(open_ends, key=lambda v: view.order[v])
        cone[last] = view.bindings[last]


def _read_by(pairs) -> set:
    """Return the variables that ``pairs`` read and do not define."""
    pairs = list(pairs)
    return {v for _, value in pairs for v in _variables(value)} - {v for v, _ in pairs}


def _needed(definitions, new) -> list[tuple[Any, Any]]:
    """Return those of ``definitions`` that ``new`` reads, directly or not, in order."""
    wanted = {v for _, value in new for v in _variables(value)}
    kept = []
    for var, value in reversed(definitions):
        if var in wanted:
            kept.append((var, value))
            wanted.update(_variables(value))
    return kept[::-1]


def _find(argument, arguments: Sequence[Any], extra: Sequence[Any]) -> int:
    for i, known in enumerate([*arguments, *extra]):
        if known is argument or known.same_as(argument):
            return i
    # Shape parameters are rebuilt for each cut-out: equal by structure.
    for i, known in enumerate([*arguments, *extra]):
        if tvm_ffi.structural_equal(known, argument):
            return i
    raise AssertionError("an argument of the rewrite is unknown")


def _alignment(left: GroupFunction, right: GroupFunction) -> str:
    order = []
    for argument in right.arguments:
        position = next((i for i, a in enumerate(left.arguments) if a is argument or a.same_as(argument)), -1)
        order.append(str(position))
    return ",".join(order)


def _work(made: GroupFunction) -> float:
    """Count the scalar operations of a cut-out, symbolic dims at their example values."""
    bindings = made.function.body.blocks[0].bindings
    return sum(max(binding_work(b.var, b.value).flops, elements(b.var)) for b in bindings)


def static_shapes(function: tirx.PrimFunc) -> list[list[int]] | None:
    """Return the parameters' shapes, or None where one is no tensor or has symbolic dims."""
    shapes = []
    for param in function.params:
        dims = [as_int(d) for d in param.ty.shape] if hasattr(param.ty, "shape") else [None]
        shapes.append([d for d in dims if d is not None])
        if len(shapes[-1]) != len(dims):
            return None
    return shapes


def kernel_work(function: tirx.PrimFunc) -> float:
    """Bound the scalar operations of an unscheduled kernel from its blocks' domains."""
    total = 0.0

    def visit(block) -> None:
        nonlocal total
        total += math.prod(as_int(iv.dom.extent) or 1 for iv in block.iter_vars)

    tvm_ffi.structural_walk(function.body, [(s_tir.SBlock, visit)])
    return total


def _to_vm(array):
    if isinstance(array, tvm_ffi.Shape):
        return array
    return tvm.runtime.tensor(np.ascontiguousarray(array).reshape(np.shape(array)))


def _flat(result) -> list[np.ndarray]:
    from .artifact import flatten

    return flatten(result)
