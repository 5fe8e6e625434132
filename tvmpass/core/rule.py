"""The one abstraction: a rule matches, checks, weighs, rewrites.

Three kinds: a `SimplifyRule` rewrites at once, a `ProposalRule` only proposes
candidates for the planner, a `ScheduleRule` is one scheduling step on TIR.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from .decision import Refusal, RefusalKind
from .errors import UsageError

if TYPE_CHECKING:
    from .site import Candidate, FunctionView, Site


@functools.cache
def kebab(class_name: str) -> str:
    """Turn ``FuseMatmulBias`` into ``fuse-matmul-bias``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", class_name).lower()


@dataclass(frozen=True)
class Rule:
    """Common to all rules; subclasses are frozen dataclasses, their fields the options."""

    level: ClassVar[int] = 1
    """The opt_level from which the rule runs."""
    refusals: ClassVar[tuple[RefusalKind, ...]] = ()
    """Every kind that ``check`` may return."""
    preserves: ClassVar[frozenset[str]] = frozenset()
    """Names of the analyses that stay valid after a rewrite."""

    @classmethod
    def rule_name(cls) -> str:
        """Return the kebab-case name, made from the class name."""
        return kebab(cls.__name__)

    @property
    def name(self) -> str:
        return self.rule_name()

    @classmethod
    def summary(cls) -> str:
        """Return the first line of the docstring."""
        return (cls.__doc__ or "").strip().splitlines()[0] if cls.__doc__ else ""

    def __str__(self) -> str:
        """Print as ``name{option=4}``; options at their default are left out."""
        shown = [
            f"{f.name}={_show(getattr(self, f.name))}"
            for f in dataclasses.fields(self)
            if getattr(self, f.name) != f.default
        ]
        return self.name + ("{" + ",".join(shown) + "}" if shown else "")

    @classmethod
    def parse_options(cls, text: str) -> Rule:
        """Make a rule from ``option=4,other=true`` (the part between braces)."""
        fields = {f.name: f for f in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            key, sep, raw = item.partition("=")
            if not sep or key not in fields:
                known = ", ".join(fields) or "none"
                raise UsageError(f"{cls.rule_name()}: unknown option {item!r}; options are: {known}")
            values[key] = _parse(raw, fields[key].default, f"{cls.rule_name()}.{key}")
        return cls(**values)


@dataclass(frozen=True)
class SimplifyRule(Rule):
    """A graph rule that rewrites at once, in tuple order, to a fixed point."""

    level: ClassVar[int] = 1
    reassociates: ClassVar[bool] = False
    """True where the rewrite changes the order of float operations (folding a
    batch norm into weights): overflow and the kind of a non-finite result may
    then differ, and numeric verification allows for it."""

    def __call__(self, mod):
        """Return ``mod`` with the rule applied to its fixed point."""
        from .engine import run_rule

        return run_rule(self, mod)[0]

    def __tvm_ffi_object__(self):
        """Stand as a TVM pass wherever TVM takes one, as in ``Sequential([DeadCode()])``."""
        import tvm

        return tvm.transform.module_pass(
            lambda mod, _: self(mod), opt_level=self.level, name=type(self).__name__
        )

    def pattern(self):
        """Return ``(DFPattern, {name: sub-pattern})``."""
        raise TypeError(f"{type(self).__name__} defines neither pattern() nor match()")

    def match(self, view: FunctionView) -> Iterable[Site]:
        """Yield the sites in ``view``; the default walks `pattern` over all bindings."""
        return view.match_pattern(self)

    def check(self, site: Site) -> Refusal | None:
        """Return None where the rewrite is correct at ``site``, else why not."""
        return None

    def rewrite(self, site: Site):
        """Return the expression that replaces the value of ``site.root``.

        It may be a nested call tree over ``site``'s operands; the engine
        normalises it, installs it and re-deduces types.
        """
        raise NotImplementedError

    def verify(self, site: Site, after) -> Refusal | None:
        """Return None where ``after`` is what was promised; the engine checks types itself."""
        return None


@dataclass(frozen=True)
class ProposalRule(SimplifyRule):
    """A graph rule that proposes candidates; the planner chooses among them."""

    level: ClassVar[int] = 2
    plans: ClassVar[str] = "fusion"
    """Which plan the rule takes part in: ``fusion``, ``layout`` or ``packing``."""

    def propose(self, site: Site) -> Sequence[Candidate]:
        """Return the legal candidates of a checked site, longest first."""
        raise NotImplementedError

    def rewrite(self, site: Site):
        raise TypeError("a ProposalRule never rewrites: the planner emits its candidates")


@dataclass(frozen=True)
class ScheduleRule(Rule):
    """One scheduling step on a `tvm.s_tir.Schedule`."""

    level: ClassVar[int] = 0

    def check(self, schedule, kernel) -> Refusal | None:
        """Return None where the step may be applied to ``kernel`` as scheduled so far."""
        return None

    def rewrite(self, schedule, kernel) -> None:
        """Apply the step; ``schedule`` is a copy that the caller may drop."""
        raise NotImplementedError


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _parse(raw: str, default: Any, where: str) -> Any:
    raw = raw.strip()
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[raw.lower()]
        if isinstance(default, int):
            return int(raw)
        if isinstance(default, float):
            return float(raw)
        return raw
    except (KeyError, ValueError):
        raise UsageError(f"{where}: {raw!r} is not a {type(default).__name__}") from None
