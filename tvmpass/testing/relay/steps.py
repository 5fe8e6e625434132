"""Recursion over a tree of any depth: generators that yield what they wait for."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

Step = Generator["Step", Any, Any]
"""A computation that yields other computations and is sent their results."""


def run(step: Step) -> Any:
    """Run a computation and all that it waits for, on a stack of its own.

    The depth is bound by memory only, never by Python's limit of recursion.
    """
    waiting: list[Step] = [step]
    result: Any = None
    while waiting:
        try:
            waiting.append(waiting[-1].send(result))
            result = None
        except StopIteration as end:
            waiting.pop()
            result = end.value
    return result
