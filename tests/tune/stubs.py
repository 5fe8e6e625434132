"""A small model to tune, and a runner that answers without building anything."""

from __future__ import annotations

import hashlib

import numpy as np
from tvm import relax

from tvmpass.testing.graphs import graph, named
from tvmpass.tune.work import Measurement

R = relax.op
CONFIG = {"tvmpass.threads": 1, "tvmpass.cost_model": "analytic"}


class Killed(BaseException):
    """The process is gone: nothing behind it runs, as after kill -9."""


def model(width: int = 48, extra: bool = False):
    """Return a module of a product and a row softmax, and with ``extra`` a second product."""
    weights = np.random.default_rng(0).standard_normal((32, width)).astype("float32")

    def body(x):
        product = named("product", R.matmul(x, relax.const(weights)))
        result = named("softmax", R.nn.softmax(product))
        if extra:
            other = relax.const(np.ones((width, 16), "float32"))
            result = named("second", R.matmul(result, other))
        return result

    return graph(body, ((64, 32),))


class StubRunner:
    """Answers by a formula; ``truth`` maps a kernel key and a candidate's text to a ratio.

    A first measurement is ``lucky`` times the truth.  After ``limit`` answers it
    raises ``ending``.
    """

    name = "stub"

    def __init__(self, truth=None, lucky=1.0, limit=None, ending=Killed, workers=4):
        self.truth = truth or drawn
        self.lucky, self.limit, self.ending, self.workers = lucky, limit, ending, workers
        self.facts = {"host": "stub"}
        self.log: list[tuple[str, str, bool]] = []
        self.closed = 0

    def measure(self, jobs, done) -> None:
        for job in jobs:
            if self.limit is not None and len(self.log) >= self.limit:
                raise self.ending
            key, text = job.workload.kernel_key, job.candidate.text
            self.log.append((key, text, job.thorough))
            ratio = self.truth(key, text)
            if isinstance(ratio, str):
                done(job, Measurement(ratio, cause="planted"))
                continue
            seen = ratio if job.thorough else ratio * self.lucky
            done(job, Measurement("ok", 100 * seen, [100 * seen], 100.0, float(seen < 1), None))

    def close(self) -> None:
        self.closed += 1

    @property
    def screened(self) -> list[tuple[str, str]]:
        """Return what was measured in short, in order."""
        return [(key, text) for key, text, thorough in self.log if not thorough]


def drawn(key: str, text: str) -> float:
    """Return a ratio from 0.8 to 1.3, always the same for a kernel and a candidate."""
    number = int.from_bytes(hashlib.sha256((key + text).encode()).digest()[:4], "big")
    return 0.8 + 0.5 * number / 2**32
