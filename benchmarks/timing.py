"""Time several functions in one process, alternated."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

SECONDS = 20.0
LEAST_ROUNDS = 15
MOST_ROUNDS = 300


def alternate(
    functions: Mapping[str, Callable[[], object]],
    seconds: float = SECONDS,
    least: int = LEAST_ROUNDS,
    most: int = MOST_ROUNDS,
) -> dict[str, list[float]]:
    """Call each function once per round, in turn; return milliseconds per call.

    Two rounds warm up and do not count.  Rounds go on for about ``seconds``,
    but not fewer than ``least`` nor more than ``most``; the order is reversed
    in every second round, so that neither side always runs on warm caches.
    """
    names = list(functions)
    for name in names * 2:
        functions[name]()
    samples: dict[str, list[float]] = {name: [] for name in names}
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < least or (rounds < most and time.perf_counter() < end):
        for name in names if rounds % 2 == 0 else reversed(names):
            start = time.perf_counter()
            functions[name]()
            samples[name].append((time.perf_counter() - start) * 1e3)
        rounds += 1
    return samples


def summary(samples: Mapping[str, list[float]]) -> dict[str, dict[str, float]]:
    """Return least, median and number of rounds per name, in milliseconds."""
    return {
        name: {
            "min_ms": round(min(times), 4),
            "median_ms": round(statistics.median(times), 4),
            "rounds": len(times),
        }
        for name, times in samples.items()
    }


def speedup(samples: Mapping[str, list[float]], ours: str, theirs: str) -> dict[str, float]:
    """Return how many times faster ``ours`` is: by least, by median, and the median per-round ratio."""
    mine, other = samples[ours], samples[theirs]
    pairs = [b / a for a, b in zip(mine, other)]
    return {
        "by_min": round(min(other) / min(mine), 4),
        "by_median": round(statistics.median(other) / statistics.median(mine), 4),
        "by_round": round(statistics.median(pairs), 4),
    }
