"""Candidates that misbehave when they run, as small C libraries under the symbol of a real one."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tvmpass.tune.build_job import SYMBOL
from tvmpass.tune.builder import Builder, Built, Failed
from tvmpass.tune.work import Candidate, Workload

PREFIX = "planted-"

BODIES = {
    "segfault": "raise(SIGSEGV);",
    "hang": "for (;;) pause();",
    "wrong": "",
    "slow": "usleep(300000);",
    "exit": "_exit(0);",
    "beyond": "float *c = ((DLTensor *)((Any *)arguments)[count - 1].value)->data; c[64 * 64 + 7] = 1.0f;",
}
_SOURCE = """
#include <signal.h>
#include <stdint.h>
#include <unistd.h>
typedef struct {{ int32_t type, padding; int64_t value; }} Any;
typedef struct {{ void *data; }} DLTensor;
int __tvm_ffi_{symbol}(void *self, const void *arguments, int count, void *result) {{ {body} return 0; }}
"""


def planted(name: str) -> Candidate:
    """Return the candidate that does what `BODIES` says under ``name``."""
    return Candidate(recipe=PREFIX + name)


class PlantedBuilder:
    """A builder that gives planted candidates their library and leaves the others to a real one."""

    def __init__(self, builder: Builder, folder: Path):
        self.builder, self.folder = builder, folder
        self.prepare = builder.prepare

    def build(self, jobs: list[tuple[Workload, Candidate]]) -> list[Built | Failed]:
        real = iter(self.builder.build([job for job in jobs if not _is_planted(job[1])]))
        return [self._library(c) if _is_planted(c) else next(real) for _, c in jobs]

    def _library(self, candidate: Candidate) -> Built:
        name = (candidate.recipe or "").removeprefix(PREFIX)
        path = self.folder / f"{name}.so"
        if not path.exists():
            source = _SOURCE.format(symbol=SYMBOL, body=BODIES[name])
            command = ["g++", "-x", "c", "-shared", "-fPIC", "-o", str(path), "-"]
            subprocess.run(command, input=source, text=True, check=True)
        return Built(path, [0.0])


def _is_planted(candidate: Candidate) -> bool:
    return (candidate.recipe or "").startswith(PREFIX)
