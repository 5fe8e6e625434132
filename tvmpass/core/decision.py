"""What the engine says about a site: refusals, estimates and decisions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OUTCOMES = ("applied", "illegal", "unprofitable", "superseded", "rolled_back")

_KEBAB = re.compile(r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$")


@dataclass(frozen=True)
class RefusalKind:
    """A reason for which a rule declines a site.

    ``code`` is kebab-case and stable; ``message`` is a ``str.format`` template
    over the evidence.  Calling the kind with evidence gives a `Refusal`.
    """

    code: str
    message: str

    def __post_init__(self):
        if not _KEBAB.match(self.code):
            raise ValueError(f"refusal code {self.code!r} is not kebab-case")

    def __call__(self, **evidence: Any) -> Refusal:
        return Refusal(self, evidence)


@dataclass(frozen=True)
class Refusal:
    """A returned "no" with its evidence (JSON-able values)."""

    kind: RefusalKind
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def code(self) -> str:
        return self.kind.code

    def text(self) -> str:
        """Render the message with the evidence filled in."""
        return self.kind.message.format(**self.evidence)


@dataclass(frozen=True)
class Estimate:
    """A predicted time in microseconds per execution, and where it came from.

    ``source`` is ``always``, ``learned:<model id>``, ``analytic`` (CUDA:
    ``analytic (uncalibrated for this device)``), ``measured`` or
    ``abstained→analytic``.  ``low`` and ``high`` are mean minus and plus one
    standard deviation of the ensemble (equal to the mean where there is none).
    """

    source: str
    low: float
    mean: float
    high: float

    @classmethod
    def exact(cls, source: str, mean: float) -> Estimate:
        return cls(source, mean, mean, mean)

    def to_json(self) -> dict[str, Any]:
        """Return the estimate as the report shows it."""
        return {"source": self.source, "low": self.low, "mean": self.mean, "high": self.high}


ALWAYS = Estimate("always", 0.0, 0.0, 0.0)


@dataclass
class Decision:
    """The one outcome of one matched site."""

    rule: str
    function: str
    site: str
    origin: tuple[str, ...]
    outcome: str
    by: str | None = None
    refusal: Refusal | None = None
    estimate: Estimate | None = None
    evidence: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        if self.outcome not in OUTCOMES:
            raise ValueError(f"unknown outcome {self.outcome!r}")
