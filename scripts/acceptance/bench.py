"""What every acceptance point needs: items, results on disk, child processes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

ONE_THREAD = {"TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
MARK = "ACCEPTANCE-RESULT "


@dataclass
class Verdict:
    """Whether a point holds, in one line, with its figures."""

    passed: bool
    text: str
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass
class Bench:
    """One run of a suite; every item's result is a file below ``folder``."""

    root: Path
    shared: Path
    folder: Path
    fresh: bool = False
    only: frozenset[str] = frozenset()
    jobs: int = 2

    @property
    def summary_path(self) -> Path:
        return self.folder.with_suffix(".json")

    @cached_property
    def commit(self) -> str:
        """Return the commit, with a hash of what differs from it in the work tree."""

        def git(*words: str) -> str:
            done = subprocess.run(["git", *words], cwd=self.root, capture_output=True, text=True, check=True)
            return done.stdout.strip()

        change = git("diff", "HEAD")
        mark = "+" + hashlib.sha256(change.encode()).hexdigest()[:8] if change else ""
        return git("rev-parse", "--short=12", "HEAD") + mark

    @cached_property
    def cache(self) -> Path:
        """Return a folder for what is downloaded once."""
        folder = self.folder.parent / "cache"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def items(
        self,
        point: str,
        names: Iterable[str],
        work: Callable[[str], dict[str, Any]],
        parallel: bool = False,
        version: str | None = None,
    ) -> dict[str, dict[str, Any]]:
        """Do each item that is not done on this commit; return all results.

        ``version`` stands in for the commit where the result does not depend on
        it (a rival).  ``parallel`` allows several at once: only where no time
        is measured.
        """
        names = [name for name in names if not self.only or name in self.only]
        results: dict[str, dict[str, Any]] = {}

        def one(name: str) -> None:
            kept = self._kept(point, name, version)
            if kept is None:
                start = time.perf_counter()
                try:
                    kept = work(name)
                except Exception as error:  # the other items are still worth knowing
                    kept = {"error": f"{type(error).__name__}: {error}"}
                kept["wall_s"] = round(time.perf_counter() - start, 2)
                self._keep(point, name, version, kept)
                print(f"   {point} {name}: {_brief(kept)}", flush=True)
            results[name] = kept

        with ThreadPoolExecutor(self.jobs if parallel else 1) as pool:
            list(pool.map(one, names))
        return {name: results[name] for name in names}

    def child(
        self,
        function: str,
        *arguments: Any,
        timeout: float = 600,
        env: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Call ``module:function`` of this package in a process of its own.

        The function returns a dict.  A process that dies or hangs gives
        ``{"error": …}`` with its last lines.
        """
        command = [sys.executable, "-m", "scripts.acceptance.child", function, json.dumps(arguments)]
        environment = {**os.environ, **ONE_THREAD, **(env or {}), "PYTHONPATH": str(self.root)}
        try:
            done = subprocess.run(
                command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            return {"error": f"no end after {timeout:.0f} s"}
        for line in reversed(done.stdout.splitlines()):
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
        tail = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        return {"error": f"exit {done.returncode}: " + " | ".join(tail)[-800:]}

    def cli(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess:
        """Run ``tvmpass`` as a user does."""
        environment = {**os.environ, **options.pop("env", {}), "PYTHONPATH": str(self.root)}
        options.setdefault("timeout", 300)
        return subprocess.run(
            [sys.executable, "-m", "tvmpass", *map(str, arguments)],
            env=environment,
            capture_output=True,
            text=True,
            **options,
        )

    def conclude(self, point: str, title: str, verdict: Verdict) -> None:
        """Write the verdict of a point into the summary."""
        summary: dict[str, Any] = {"schema": 1, "points": {}}
        if self.summary_path.exists():
            summary = json.loads(self.summary_path.read_text())
        summary["points"][point] = {
            "title": title,
            "passed": verdict.passed,
            "text": verdict.text,
            "commit": self.commit,
            "settings": settings(),
            "figures": verdict.figures,
        }
        summary["points"] = dict(sorted(summary["points"].items()))
        write_json(self.summary_path, summary)

    def kept(self, point: str) -> dict[str, dict[str, Any]]:
        """Return what is on disk of a point on this commit, without doing anything."""
        results = {}
        for path in sorted((self.folder / point).glob("*.json")):
            kept = json.loads(path.read_text())
            if kept["version"] == self.commit:
                results[path.stem] = kept["result"]
        return results

    def _path(self, point: str, name: str) -> Path:
        return self.folder / point / (name.replace("/", "_") + ".json")

    def _kept(self, point: str, name: str, version: str | None) -> dict[str, Any] | None:
        path = self._path(point, name)
        if self.fresh or not path.exists():
            return None
        kept = json.loads(path.read_text())
        return kept["result"] if kept["version"] == (version or self.commit) else None

    def _keep(self, point: str, name: str, version: str | None, result: dict[str, Any]) -> None:
        write_json(
            self._path(point, name),
            {"version": version or self.commit, "settings": settings(), "result": result},
        )


def settings() -> dict[str, Any]:
    """Return what the figures depend on."""
    import platform
    from importlib import metadata

    names = ("apache-tvm", "apache-tvm-ffi", "onnxruntime", "numpy", "onnx", "onnxslim")
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "versions": {name: metadata.version(name) for name in names},
    }


def write_json(path: Path, document: Any) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, suffix=".tmp") as temporary:
        json.dump(document, temporary, indent=1, ensure_ascii=False, default=str)
        temporary.write("\n")
    os.replace(temporary.name, path)


def _brief(result: Mapping[str, Any]) -> str:
    if "error" in result:
        return f"error: {result['error']}"
    shown = {k: v for k, v in result.items() if isinstance(v, (bool, int, float, str)) and k != "report"}
    return ", ".join(f"{key} {value}" for key, value in shown.items())[:300]
