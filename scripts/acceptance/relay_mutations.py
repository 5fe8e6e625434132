"""B, second half: mutated Relay texts give a clean error or a right result.

A mutant that is read and converted is *right* if its tree is that of the golden
text, whose result is known, or if it computes what the numpy interpreter of
trees computes.  Each golden text has a process of its own, with a bound on
memory and a clock on every mutant.
"""

from __future__ import annotations

import hashlib
import json
import re
import resource
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .bench import Bench, Verdict
from .relay_mutants import mutant

MUTATIONS = 10_000
SECONDS = 60
"""For one mutant: reading, converting, building and running."""
INTERPRETING = 5
"""For the interpreter: a program that calls itself forever takes longer."""
MEMORY = 6 << 30
"""Address space of a process beyond what it has after its imports."""
LONGEST_LINE = 4200
ELEMENTS = 1 << 20
"""Programs with larger tensors are converted, not run."""
TOLERANCE, HALF_TOLERANCE = 1e-4, 1e-2
"""Of a result's largest value; the second where there are float16 inputs or outputs."""

_COMMENT = re.compile(r" ?/\*.*?\*/")
_RESULT = re.compile(r"^(def @main\(.*\)) -> .* \{$", re.MULTILINE)


def point(bench: Bench) -> Verdict:
    """Attack every golden text."""
    cases = bench.shared / "relay_cases"
    names = [path.stem for path in sorted(cases.glob("*.relay"))]
    each = -(-MUTATIONS // len(names))
    results = bench.items(
        "B-mutations",
        names,
        lambda name: bench.child("relay_mutations:attack", str(cases), name, each, timeout=3600),
        parallel=True,
    )
    counts: Counter[str] = Counter()
    for row in results.values():
        counts.update(row.get("counts", {}))
    bad = [
        f"{name}: {row.get('error') or row['bad'][:2]}"
        for name, row in results.items()
        if "error" in row or row["bad"]
    ]
    slowest = max((row.get("slowest_s", 0.0) for row in results.values()), default=0.0)
    memory = max((row.get("peak_mb", 0) for row in results.values()), default=0)
    told = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    text = f"{sum(counts.values())} mutants: {told}; slowest {slowest:.1f} s, peak {memory} MB"
    return Verdict(not bad, "; ".join(bad)[:2000] or text, results)


class Slow(Exception):
    """A mutant took too long."""


@dataclass
class Outcome:
    """What became of one mutant; ``bad`` says what is wrong, if anything is."""

    kind: str
    bad: str = ""


def attack(folder: str, name: str, count: int) -> dict[str, Any]:
    """Change one golden text ``count`` times and look at what becomes of it."""
    from tvmpass.frontends.relay import parser

    cases = Path(folder)
    texts = [path.read_text() for path in sorted(cases.glob("*.relay"))]
    text = (cases / f"{name}.relay").read_text()
    variants = bases(text)
    with np.load(cases / f"{name}.inputs.npz", allow_pickle=False) as stored:
        inputs = {key: stored[key] for key in stored.files}
    subject = _Subject(inputs)
    subject.known[fingerprint(parser.parse(text))] = Outcome("of an unchanged tree")
    first = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)
    _bound_memory()
    counts: Counter[str] = Counter()
    bad, slowest = [], 0.0
    signal.signal(signal.SIGALRM, _too_slow)
    for seed in range(first, first + count):
        kinds, changed = mutant(seed, variants[seed % len(variants)], texts)
        begin = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            outcome = subject.outcome(changed)
        except Slow:
            outcome = Outcome("without an end", f"no end after {SECONDS} s")
        except BaseException as error:
            outcome = Outcome("crashes", f"{type(error).__name__}: {error}")
        signal.setitimer(signal.ITIMER_REAL, 0)
        slowest = max(slowest, time.perf_counter() - begin)
        counts[outcome.kind] += 1
        if outcome.bad:
            bad.append(f"seed {seed} ({kinds}): {outcome.bad}"[:600])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {
        "counts": dict(counts),
        "bad": bad,
        "lenient": subject.lenient,
        "slowest_s": round(slowest, 2),
        "peak_mb": peak,
    }


def bases(text: str) -> tuple[str, ...]:
    """Return a text as it is, without comments, and without its result's type.

    Half of a golden text is comments, where changes mean little; and next to the
    type of the result most changes are contradictions.
    """
    bare = _COMMENT.sub("", text)
    return text, bare, _RESULT.sub(r"\1 {", bare)


def _too_slow(*_: Any) -> None:
    raise Slow


def _bound_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, most))


class _Subject:
    """A golden text's inputs, and what is known of trees met before."""

    def __init__(self, inputs: dict[str, np.ndarray]):
        self._inputs = inputs
        self.known: dict[str, Outcome] = {}
        self.lenient: list[str] = []

    def outcome(self, text: str) -> Outcome:
        """Read, convert and run a text."""
        from tvmpass.core.errors import TvmpassError
        from tvmpass.frontends.relay.load import load_relay
        from tvmpass.frontends.relay.parser import parse

        try:
            tree = parse(text, "mutant.relay")
            digest = fingerprint(tree)
            if digest in self.known:
                return self.known[digest]
            mod = load_relay(tree)
        except TvmpassError as error:
            message = str(error)
            longest = max(map(len, message.splitlines()), default=0)
            clean = 0 < longest < LONGEST_LINE and "Traceback" not in message
            said = "" if clean else f"an error with a line of {longest} characters: {message[:200]}"
            return Outcome("refused", said)
        self.known[digest] = self._checked(tree, mod, digest)
        return self.known[digest]

    def _checked(self, tree: Any, mod: Any, digest: str) -> Outcome:
        """Compare a program with the interpreter of its tree; one in four is optimised fully."""
        from tvmpass.core.errors import TvmpassError
        from tvmpass.testing.relay.interpreter import OPERATORS, interpret

        missing = operators(tree) - OPERATORS
        if missing:
            return Outcome("converted, not run: the interpreter lacks an operator")
        arrays = self._arrays(mod)
        if arrays is None:
            return Outcome("converted, not run: open or large")
        given = self._grouped(tree, arrays)
        left = signal.setitimer(signal.ITIMER_REAL, INTERPRETING)[0]
        try:
            wanted = _flat(interpret(tree, given))
        except Slow:
            return Outcome("converted, not run: the program does not end")
        except Exception as error:
            wanted, reason = None, f"{type(error).__name__}: {error}"
        signal.setitimer(signal.ITIMER_REAL, left)
        try:
            got = _built(mod, arrays, 3 if digest[0] in "0123" else 0)
        except Slow:
            raise
        except TvmpassError:
            return Outcome("refused by the build")
        except Exception as error:
            if wanted is None:
                return Outcome("refused by the build and the interpreter")
            return Outcome("not built", f"{type(error).__name__}: {str(error)[-300:]}")
        if wanted is None:
            # Relay is more lenient than the interpreter in places; these are listed, not judged.
            self.lenient.append(reason[:200])
            return Outcome("run, the interpreter refuses")
        halves = any(array.dtype == "float16" for array in (*arrays.values(), *wanted))
        problem = _difference(got, wanted, HALF_TOLERANCE if halves else TOLERANCE)
        return Outcome("wrong", problem) if problem else Outcome("right")

    def _arrays(self, mod: Any) -> dict[str, np.ndarray] | None:
        """Return inputs of the converted program, None where a tensor is open or large."""
        found = {}
        for index, param in enumerate(mod["main"].params):
            shape = _shape(param.ty)
            if shape is None or np.prod(shape, dtype=object) > ELEMENTS:
                return None
            stored = self._inputs.get(param.name)
            dtype = str(param.ty.dtype)
            if stored is None or list(stored.shape) != shape or stored.dtype != dtype:
                stored = _random(index, shape, dtype)
                if stored is None:
                    return None
            found[param.name] = stored
        return found if _small(mod) else None

    @staticmethod
    def _grouped(tree: Any, arrays: dict[str, np.ndarray]) -> list[Any]:
        """Return the arrays as arguments of ``@main``: tuples put together again."""
        from tvmpass.frontends.relay import ast

        rest = iter(arrays.values())

        def take(ty: Any) -> Any:
            return tuple(take(item) for item in ty.fields) if isinstance(ty, ast.TupleType) else next(rest)

        return [take(param.type) for param in tree.functions["main"].params]


def _random(seed: int, shape: list[int], dtype: str) -> np.ndarray | None:
    dice = np.random.default_rng(seed)
    if dtype == "bool":
        return dice.integers(0, 2, shape).astype(bool)
    if dtype.startswith("float"):
        return dice.uniform(-2, 2, shape).astype(dtype)
    if dtype.startswith(("int", "uint")) and dtype.strip("uint") in ("8", "16", "32", "64"):
        return dice.integers(0, 4, shape).astype(dtype)
    return None


def _shape(ty: Any) -> list[int] | None:
    from tvm import relax, tirx

    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return None
    dims = list(ty.shape.values)
    return [int(dim) for dim in dims] if all(isinstance(dim, tirx.IntImm) for dim in dims) else None


def _small(mod: Any) -> bool:
    """Say whether no value of the program is large or of a shape that is not known."""
    from tvm import relax

    small = True

    def visit(node: Any) -> None:
        nonlocal small
        ty = node.ty if isinstance(node, relax.Var) else None
        if isinstance(ty, relax.TensorType):
            shape = _shape(ty)
            small = small and shape is not None and np.prod(shape, dtype=object) <= ELEMENTS

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return small


def _built(mod: Any, arrays: dict[str, np.ndarray], level: int) -> list[np.ndarray]:
    import tvmpass

    with tvmpass.PassContext(opt_level=level):
        return list(tvmpass.build(mod, target="llvm").run(arrays))


def _flat(value: Any) -> list[np.ndarray]:
    return [leaf for item in value for leaf in _flat(item)] if isinstance(value, tuple) else [value]


def _difference(got: list[np.ndarray], wanted: list[np.ndarray], tolerance: float) -> str:
    if len(got) != len(wanted):
        return f"{len(got)} outputs, the interpreter has {len(wanted)}"
    for index, (one, other) in enumerate(zip(got, wanted)):
        if one.dtype != other.dtype or one.shape != other.shape:
            return f"output {index}: {one.dtype}{one.shape}, the interpreter has {other.dtype}{other.shape}"
        if one.dtype.kind != "f":
            if not np.array_equal(one, other):
                return f"output {index}: {int((one != other).sum())} of {one.size} values differ"
            continue
        one, other = one.astype("float64"), other.astype("float64")
        finite = other[np.isfinite(other)]
        scale = float(np.abs(finite).max(initial=1.0))
        if not np.allclose(one, other, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            with np.errstate(all="ignore"):
                return f"output {index}: differs by up to {np.nanmax(np.abs(one - other)):.3g} of {scale:.3g}"
    return ""


def operators(tree: Any) -> set[str]:
    """Return the operators of a program."""
    from tvmpass.frontends.relay import ast

    return {node.name for node in nodes(tree) if isinstance(node, ast.Operator)}


def nodes(tree: Any) -> Iterator[Any]:
    """Yield each node of a program once, operands first."""
    seen: set[Any] = set()
    stack = [(function, False) for function in reversed(list(tree.functions.values()))]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(list(node.children())))


def fingerprint(tree: Any) -> str:
    """Return a digest of all that a tree says: two of one digest are the same program."""
    from tvmpass.frontends.relay import ast

    numbers: dict[Any, int] = {}
    said: list[Any] = [list(tree.functions)]

    def number(node: Any) -> int:
        return numbers.setdefault(node, len(numbers))

    for node in nodes(tree):
        fields: list[Any] = [type(node).__name__, number(node), [number(child) for child in node.children()]]
        if isinstance(node, ast.Constant):
            fields += [str(node.value.dtype), node.value.shape, node.value.tobytes().hex()]
        elif isinstance(node, (ast.Operator, ast.Global)):
            fields.append(node.name)
        elif isinstance(node, ast.Call):
            fields.append(_attributes(node.attrs))
        elif isinstance(node, ast.TupleGetItem):
            fields.append(node.index)
        elif isinstance(node, ast.Let):
            fields.append([(number(var), repr(var.type)) for var, _ in node.bindings])
        elif isinstance(node, ast.Function):
            params = [(number(param), param.name, repr(param.type)) for param in node.params]
            fields += [params, repr(node.result), _attributes(node.attrs), node.type_params]
        elif isinstance(node, ast.Unsupported):
            fields.append(node.what)
        said.append(fields)
    return hashlib.sha256(json.dumps(said, default=repr).encode()).hexdigest()


def _attributes(attrs: dict[str, Any]) -> list:
    from tvmpass.frontends.relay import ast

    return sorted(
        (key, value.value.tobytes().hex() if isinstance(value, ast.Constant) else repr(value))
        for key, value in attrs.items()
    )
