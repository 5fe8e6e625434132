#!/usr/bin/env python3
"""Check and time everything on this machine's CUDA device within a time limit.

Run by ``scripts/cuda_measure.sh``.  What is done is on disk at once: a run that
is stopped leaves a summary of what it got to, marked ``"finished": false``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SHARES = {"tests": 0.40, "cases": 0.30, "models": 0.10, "records": 0.20}
"""Of the time limit; what a step does not need goes to those after it."""
REPEATS, REPEAT_MS = 10, 20
DONE, WRONG, NO_DEVICE, SHORT = 0, 1, 3, 4
"""Exit codes; the last: what was done is right, and not everything was done in time."""
SPARE_SECONDS = 5.0
"""Kept back for writing the summary."""


@dataclass
class Run:
    """One measuring run: its time limit, its folder, and what is known so far."""

    out: Path
    seconds: float
    device: str
    begin: float = field(default_factory=time.monotonic)
    summary: dict[str, Any] = field(default_factory=lambda: {"schema": 1, "finished": False})
    complete: bool = True

    def left(self) -> float:
        """Return the seconds that are left."""
        return self.seconds - SPARE_SECONDS - (time.monotonic() - self.begin)

    def until(self, step: str) -> float:
        """Return the seconds that ``step`` may take: up to the end of its share."""
        names = list(SHARES)
        share = sum(SHARES[name] for name in names[: names.index(step) + 1])
        return min(self.left(), self.begin + share * self.seconds - time.monotonic())

    def left_out(self, text: str) -> None:
        """Note what there was no time for; the run is then not finished."""
        self.complete = False
        self.summary["notes"].append(f"{text} (time limit)")

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.begin:6.1f} s] {text}", file=sys.stderr, flush=True)

    def save(self) -> None:
        """Write the summary, whole or not at all."""
        path = self.out / "summary.json"
        temporary = path.with_suffix(".tmp")
        self.summary["seconds"] = round(time.monotonic() - self.begin, 1)
        temporary.write_text(json.dumps(self.summary, indent=1) + "\n")
        os.replace(temporary, path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=8.0, help="time limit (default 8)")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "cuda-measured", help="results go here")
    parser.add_argument("--prebuilt", type=Path, default=ROOT / "build" / "cuda", help="built libraries")
    # The machinery itself can be tried on a CPU, with libraries that were built for one.
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.minutes <= 0:
        parser.error("--minutes must be positive")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    arguments.out.mkdir(parents=True, exist_ok=True)
    run = Run(arguments.out, arguments.minutes * 60, arguments.device)
    try:
        return measure(run, arguments.prebuilt)
    except KeyboardInterrupt:
        run.say("stopped; what was measured is in summary.json")
        return 130
    finally:
        run.save()


def measure(run: Run, prebuilt: Path) -> int:
    """Do every step; return the exit code."""
    from tvmpass.compile.cuda_probe import probe

    found = probe()
    run.summary |= {"commit": commit(), "device": {"name": found.name, "arch": found.arch}, "notes": []}
    run.save()
    index = read_index(prebuilt, run)
    if run.device == "cuda" and not found.answers:
        return rehearse(run, prebuilt, index, found)
    run.say(f"device: {found.reason if run.device == 'cuda' else 'this CPU'}")
    failed = tests(run)
    failed += timed_cases(run, prebuilt, [item for item in index if item.get("size") == "large"])
    failed += timed_models(run, prebuilt, [item for item in index if "model" in item])
    if run.device == "cuda":
        failed += records(run, prebuilt / "records", found.arch)
    run.summary["finished"] = run.complete
    run.say(f"{run.out / 'summary.json'}: {len(run.summary['cases'])} timed, {failed} things wrong")
    return WRONG if failed else DONE if run.complete else SHORT


def rehearse(run: Run, prebuilt: Path, index: list[dict], found) -> int:
    """Do what needs no device, and say where it stopped."""
    tests(run)
    missing = unresolved(prebuilt, index)
    run.summary["loaded"] = {"libraries": len(index), "not_resolvable": missing}
    for line in missing:
        run.say(line)
    run.summary["stopped"] = f"no CUDA device answers: {found.reason}"
    run.say(f"stopped before the device: {found.reason}; {len(index)} libraries load, {len(missing)} do not")
    return WRONG if missing or found.state == "broken" else NO_DEVICE


def unresolved(prebuilt: Path, index: list[dict]) -> list[str]:
    """Load every library; return what is wrong with each that lacks a kernel."""
    import tvmpass
    from tvmpass.compile.cuda_library import resolvable

    lines = []
    for item in index:
        try:
            missing = resolvable(tvmpass.load_artifact(prebuilt / item["file"]))
        except tvmpass.TvmpassError as error:
            lines.append(str(error))
            continue
        if missing:
            lines.append(f"{item['file']} lacks {', '.join(missing)}")
    return lines


def read_index(prebuilt: Path, run: Run) -> list[dict[str, Any]]:
    """Return what was built before; nothing there is a note, not an error."""
    path = prebuilt / "index.json"
    if not path.exists():
        run.summary["notes"].append(f"no libraries in {prebuilt.name}: python -m scripts.cuda.prebuild")
        return []
    document = json.loads(path.read_text())
    run.summary["built_for"] = document["target"]
    run.summary["notes"] += [f"{item['name']} was not built: {item['error']}" for item in document["failed"]]
    return document["items"]


def commit() -> str:
    """Return the commit: of the bundle this was unpacked from, else git's."""
    bundle = ROOT.parent / "manifest.json"
    if bundle.exists():
        return str(json.loads(bundle.read_text())["commit"])
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def tests(run: Run) -> int:
    """Run ``pytest -m cuda``; return how many tests failed."""
    junit = run.out / "tests.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-m", "cuda", f"--junitxml={junit}", "tests/cuda"]
    seconds = run.until("tests")
    run.say(f"pytest -m cuda, at most {seconds:.0f} s")
    with open(run.out / "tests.txt", "w", encoding="utf-8") as log:
        code = limited(command, seconds, log)
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    reasons: dict[str, int] = defaultdict(int)
    if code is None:
        run.left_out("the tests did not end")
    if junit.exists():
        for case in ElementTree.parse(junit).iter("testcase"):
            if case.get("name") is None:  # the test that was interrupted
                continue
            kinds = {child.tag for child in case}
            outcome = "failed" if kinds & {"failure", "error"} else "skipped" if kinds else "passed"
            counts[outcome] += 1
            for child in case:
                if child.tag == "skipped":
                    reasons[child.get("message", "")] += 1
    elif code is not None:
        run.summary["notes"].append(f"pytest gave {code} and no results")
        counts["failed"] = 1
    run.summary["tests"] = {**counts, "skip_reasons": dict(reasons)}
    run.say(", ".join(f"{number} {outcome}" for outcome, number in counts.items()))
    run.save()
    return counts["failed"]


def limited(command: list[str], seconds: float, log: Any = None) -> int | None:
    """Run a command; None where it had to be stopped.  It is asked first, then ended."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT if log else None)
    try:
        return process.wait(max(1.0, seconds))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return None
    except BaseException:
        process.kill()
        raise


def timed_cases(run: Run, prebuilt: Path, items: list[dict]) -> int:
    """Time every large case, fused and unfused, by device events; return how many failed."""
    from scripts.cuda.cases import cases

    known = cases("large")
    seconds, done = run.until("cases"), run.summary.setdefault("cases", [])
    run.say(f"{len(items)} libraries to time, at most {seconds:.0f} s")
    stop, wrong = time.monotonic() + seconds, 0
    # Both forms of a case stand side by side, so that a stop leaves whole pairs.
    for item in sorted(items, key=lambda item: (item["case"], item["fusion"])):
        if time.monotonic() >= stop:
            run.left_out(f"not timed: {item['name']}")
            continue
        path, arrays = prebuilt / item["file"], known[item["case"]].arrays()
        entry = attempt(run, item, partial(time_library, run, path, arrays))
        wrong += "error" in entry
        if "median_us" in entry:
            second = entry["median_us"] * 1e-6
            entry["gb_per_s"] = round(item["bytes"] / second / 1e9, 1)
            entry["tflop_per_s"] = round(item["flops"] / second / 1e12, 3)
        keys = ("case", "family", "dtype", "fusion", "kernels", "launches", "bytes", "flops")
        done.append({**{key: item[key] for key in keys}, **entry})
        run.summary["families"] = by_family(done)
        run.save()
    return wrong


def attempt(run: Run, item: dict, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do one measurement; a library that fails is said and costs only itself."""
    try:
        entry = work()
    except Exception as error:  # TVM raises several classes when a launch fails
        entry = {"error": " ".join(str(error).split())[-300:]}
    shown = entry.get("error") or f"{entry['median_us']:.1f} us"
    run.say(f"{item['name']}: {shown}")
    return entry


def time_library(run: Run, path: Path, arrays: list[np.ndarray]) -> dict[str, Any]:
    """Return the times of one run in µs, the inputs already on the device.

    TVM's evaluator puts CUDA events around many runs in a row and divides; the
    launches of one run follow each other as they would in use.
    """
    import tvm

    import tvmpass

    library = tvmpass.load_artifact(path)
    device = tvm.cuda(0) if run.device == "cuda" else tvm.cpu()
    machine = library.vm(device)
    machine.save_function("main", "timed", *[tvm.runtime.tensor(array, device) for array in arrays])
    timer = machine.time_evaluator("timed", device, number=1, repeat=REPEATS, min_repeat_ms=REPEAT_MS)
    samples = sorted(seconds * 1e6 for seconds in timer().results)
    return {
        "median_us": round(statistics.median(samples), 3),
        "samples_us": [round(sample, 3) for sample in samples],
    }


def by_family(done: list[dict]) -> dict[str, dict[str, dict[str, float]]]:
    """Sum up per family and dtype: the best rates, and what fusion gained (geometric mean)."""
    table: dict[str, dict[str, dict[str, float]]] = {}
    gains: dict[tuple[str, str], list[float]] = defaultdict(list)
    times = {(e["case"], e["fusion"]): e["median_us"] for e in done if "median_us" in e}
    for entry in done:
        if "median_us" not in entry:
            continue
        best = table.setdefault(entry["family"], {}).setdefault(
            entry["dtype"], {"gb_per_s": 0.0, "tflop_per_s": 0.0}
        )
        for key in ("gb_per_s", "tflop_per_s"):
            best[key] = max(best[key], entry[key])
        plain = times.get((entry["case"], "unfused"))
        if entry["fusion"] == "fused" and plain is not None:
            gains[entry["family"], entry["dtype"]].append(plain / entry["median_us"])
    for (family, dtype), ratios in gains.items():
        table[family][dtype]["fused_speedup"] = round(math.exp(statistics.fmean(map(math.log, ratios))), 3)
    return table


def timed_models(run: Run, prebuilt: Path, items: list[dict]) -> int:
    """Time each model and compare its outputs with the CPU's; return how many are wrong."""
    import tvmpass
    from scripts.cuda.cases import error

    seconds, done, wrong = run.until("models"), run.summary.setdefault("models", []), 0
    stop = time.monotonic() + seconds
    for item in items:
        if time.monotonic() >= stop:
            run.left_out(f"not timed: {item['name']}")
            continue
        with np.load(prebuilt / item["arrays"], allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}

        def work(item=item, arrays=arrays) -> dict[str, Any]:
            library = tvmpass.load_artifact(prebuilt / item["file"])
            errors = {}
            for label in item["tolerance"]:
                (got,) = library.run({"x": arrays[f"{label}/in"]})
                errors[label] = error(got, arrays[f"{label}/out"].astype("float64"))
            times = time_library(run, prebuilt / item["file"], [arrays["line/in"]])
            right = all(errors[label] <= limit for label, limit in item["tolerance"].items())
            return {**times, "errors": {k: float(f"{v:.3g}") for k, v in errors.items()}, "right": right}

        entry = attempt(run, item, work)
        wrong += not entry.get("right", False)
        done.append(
            {"model": item["model"], "kernels": item["kernels"], "launches": item["launches"], **entry}
        )
        run.save()
    return wrong


def records(run: Run, built: Path, arch: str) -> int:
    """Collect records for the cost model with the time that is left; return 1 where that failed.

    ``built`` holds kernels that were compiled elsewhere for one architecture;
    without nvcc here there are no others.
    """
    seconds = run.left()
    if seconds < 10:
        run.left_out("no records")
        return 0
    path = run.out / "records.jsonl"
    command = [sys.executable, str(ROOT / "scripts" / "collect_cuda.py"), "--device", "cuda"]
    command += ["--target", f"cuda:{arch}", "--out", str(path)]
    target, compiles = built / "target", has_nvcc()
    fits = target.exists() and target.read_text().strip() == f"cuda:{arch}"
    if fits:
        command += ["--prebuilt", str(built)]
    if compiles:
        command += ["--minutes", f"{max(0.1, (seconds - 10) / 60):.2f}"]
    elif fits:
        command += ["--batches", str(len(list(built.glob("*.so"))))]
    else:
        run.summary["notes"].append(f"no records: no nvcc here and no kernels built for {arch}")
        return 0
    run.say(f"records for the cost model, at most {seconds:.0f} s")
    with open(run.out / "records.txt", "w", encoding="utf-8") as log:
        code = limited(command, seconds, log)
    count = max(0, len(path.read_text(encoding="utf-8").splitlines()) - 1) if path.exists() else 0
    run.summary["records"] = {"file": path.name, "records": count}
    run.say(f"{count} records")
    if code not in (0, None) or not count:
        run.summary["notes"].append("collecting records failed; records.txt says why")
        return 1
    return 0


def has_nvcc() -> bool:
    """Return whether kernels can be compiled here."""
    from tvmpass.compile.cuda_toolchain import find_nvcc
    from tvmpass.compile.host_compiler import host_compiler
    from tvmpass.core.errors import TvmpassError

    try:
        find_nvcc()
        host_compiler()
    except TvmpassError:
        return False
    return True


if __name__ == "__main__":
    raise SystemExit(main())
