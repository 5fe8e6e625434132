"""Start ``tvmpass tune`` as a user does, stop it, and look at what it leaves."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import models
from .bench import ONE_THREAD, Bench

MARK = "ACCEPTANCE_TUNE"
"""Environment variable by which every process of a tune is found again."""


class Tune:
    """One running ``tvmpass tune`` and, by ``mark``, every process that it started."""

    def __init__(
        self,
        bench: Bench,
        name: str,
        path: str,
        logs: Path,
        *options: str,
        shape: tuple[int, ...] | None = None,
    ):
        self.mark = secrets.token_hex(8)
        self.result = logs.parent / f"{logs.name}-{self.mark}.json"
        logs.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tvmpass", "tune", path, "--threads", "1", "--logs", str(logs)]
        command += ["--shape", shape_text(name, shape), "--json", str(self.result), *options]
        environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(bench.root), MARK: self.mark}
        self.process = subprocess.Popen(
            command,
            cwd=bench.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=_hears_ctrl_c,
        )

    def end(self, timeout: float) -> tuple[int, str]:
        """Wait for the end; return exit code and output."""
        try:
            output, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        return self.process.returncode, output

    def document(self) -> dict[str, Any]:
        """Return what ``--json`` wrote."""
        data = json.loads(self.result.read_text())
        self.result.unlink()
        return data

    def left(self) -> list[int]:
        """Return the processes of this tune that still run."""
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0") and _runs(folder):
                    found.append(int(folder.name))
            except OSError:
                continue  # it ended, or is not ours
        return found


def _hears_ctrl_c() -> None:
    """Undo what a shell does to commands that it starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _runs(folder: Path) -> bool:
    return (folder / "stat").read_text().rpartition(")")[2].split()[0] != "Z"


def shape_text(name: str, shape: tuple[int, ...] | None = None) -> str:
    """Return how ``--shape`` gives the input of a model, one of `models` where no shape is given."""
    return "x:" + ",".join(map(str, shape or models.MODELS[name][1]))


def candidates(logs: Path) -> list[dict[str, Any]]:
    """Return the candidates' lines of the one record file in ``logs``."""
    return [line for line in lines(logs) if line.get("role") == "candidate"]


def lines(logs: Path) -> list[dict[str, Any]]:
    """Return every whole line of the one record file in ``logs``."""
    (path,) = logs.glob("*.tuned.jsonl")
    return [json.loads(line) for line in path.read_bytes().splitlines(True) if line.endswith(b"\n")]


def waiting(logs: Path) -> set[tuple[str, str]]:
    """Return kernel and candidate of what was measured but is not recorded yet."""
    recorded = {(line["kernel_key"], _text(line)) for line in candidates(logs)}
    sessions = [line["session"] for line in lines(logs) if "session" in line]
    screened = {(s["kernel_key"], _text(s)) for s in sessions if s.get("event") == "screened"}
    return screened - recorded


def _text(line: Mapping[str, Any]) -> str:
    return line["recipe"] if line["recipe"] is not None else json.dumps(line["trace"])


def problems(logs: Path) -> list[str]:
    """Return what the reader of record files finds wrong."""
    from tvmpass.compile.records import read_file

    (path,) = logs.glob("*.tuned.jsonl")
    return read_file(path).problems
