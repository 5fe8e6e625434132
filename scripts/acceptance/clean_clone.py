"""A: both commands of the README from a clean clone, and the wheel on its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .bench import Bench, Verdict

HOUR = 3600.0
PROBE = """
import json, tvmpass
from tvmpass.settings import shipped_logs
logs = shipped_logs()
print(json.dumps({"rules": len(tvmpass.rules()), "logs": sorted(p.name for p in logs.iterdir()),
                  "where": tvmpass.__file__}))
"""


def point(bench: Bench) -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"

        def one(name: str) -> dict:
            if not clone.exists():
                subprocess.run(["git", "clone", "--quiet", str(bench.root), str(clone)], check=True)
            return {"demo": demo, "test": test, "wheel": wheel}[name](clone)

        results = bench.items("A", ("demo", "test", "wheel"), one)
    bad = [f"{name}: {r.get('error')}" for name, r in results.items() if not r.get("ok")]
    text = ", ".join(f"{name} {r['seconds']:.0f} s" for name, r in results.items() if "seconds" in r)
    return Verdict(not bad, "; ".join(bad) or text, results)


def _make(clone: Path, goal: str) -> tuple[subprocess.CompletedProcess, float]:
    # The commands make their own environment: nothing of this one may leak in.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment["PATH"] = os.pathsep.join(
        part for part in environment["PATH"].split(os.pathsep) if not part.startswith(sys.prefix + os.sep)
    )
    start = time.perf_counter()
    done = subprocess.run(
        ["make", goal], cwd=clone, env=environment, capture_output=True, text=True, timeout=HOUR
    )
    return done, round(time.perf_counter() - start, 1)


def demo(clone: Path) -> dict:
    """Run ``make demo`` and look at what it left."""
    done, seconds = _make(clone, "demo")
    made = [path for path in ("cls.so", "cls.json", "cls.html") if (clone / "build/demo" / path).exists()]
    good = done.returncode == 0 and len(made) == 3 and "sites matched a rule" in done.stdout
    return {"ok": good, "seconds": seconds, "error": None if good else _tail(done)}


def test(clone: Path) -> dict:
    """Run ``make test`` and read pytest's last line."""
    done, seconds = _make(clone, "test")
    closing = re.findall(r"^.*\d+ passed.*$", done.stdout, re.MULTILINE)
    good = done.returncode == 0 and bool(closing)
    return {
        "ok": good,
        "seconds": seconds,
        "closing": closing[-1] if closing else None,
        "error": None if good else _tail(done),
    }


def wheel(clone: Path) -> dict:
    """Install the wheel alone and use it from an empty folder."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        python = base / "venv" / "bin" / "python"
        empty = base / "empty"
        empty.mkdir()
        steps = [
            [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(base), str(clone)],
            [sys.executable, "-m", "venv", str(base / "venv")],
        ]
        for step in steps:
            subprocess.run(step, check=True, capture_output=True, timeout=HOUR)
        (built,) = base.glob("tvmpass-*.whl")
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", str(built)], check=True, capture_output=True
        )
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        done = subprocess.run(
            [str(python), "-c", PROBE], cwd=empty, env=environment, capture_output=True, text=True
        )
        size = built.stat().st_size
    import json

    found = json.loads(done.stdout) if done.returncode == 0 else {}
    good = bool(found.get("rules")) and any(n.endswith(".json") for n in found.get("logs", ()))
    return {
        "ok": good,
        "seconds": round(time.perf_counter() - start, 1),
        "wheel_bytes": size,
        **found,
        "error": None if good else _tail(done),
    }


def _tail(done: subprocess.CompletedProcess) -> str:
    return f"exit {done.returncode}: " + " | ".join((done.stderr or done.stdout).strip().splitlines()[-4:])
