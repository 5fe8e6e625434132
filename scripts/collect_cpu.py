"""Measure thousands of small kernels on this CPU, as training data for the cost model.

    python scripts/collect_cpu.py --minutes 14 --train

writes ``tuning_logs/<device class>.jsonl`` and, with ``--train``, fits
``tuning_logs/<device class>.model.json`` to it.  Random graphs (see
`collect.graphs`) are cut into kernels in every way that the fusion rules
propose, lowered and scheduled as a build does it, compiled many to a module,
and timed with one thread.  Stop it at any time: every line written is whole.
"""

# ruff: noqa: E402 -- the environment and the path are set before TVM and tvmpass are imported
from __future__ import annotations

import os

os.environ.setdefault("TVM_NUM_THREADS", "1")  # read when TVM's runtime starts

import argparse
import itertools
import json
import platform
import signal
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import tvm
from collect.measure import Collector
from collect.worker import Worker

from tir_passes.recipes import RECIPE_VERSION
from tvmpass.compile.target import parse_target
from tvmpass.core.options import Options
from tvmpass.cost.dataset import header
from tvmpass.cost.device import device_class, host_facts
from tvmpass.cost.learned import MODEL_SUFFIX
from tvmpass.version import VERSION

BATCH_SECONDS = 45.0
"""After this a batch is given up: its process is ended and a new one started."""


def make_collector(target_name: str) -> Collector:
    """Return what collects in the worker's process."""
    options = Options(threads=1, cost_model="analytic", tuning_logs="off")
    return Collector(parse_target(target_name, 1), options)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=14.0, help="how long to collect (default 14)")
    parser.add_argument("--target", default="llvm", help="what to compile for; this machine must run it")
    parser.add_argument("--out", type=Path, help="record file; default tuning_logs/<device class>.jsonl")
    parser.add_argument("--seed", type=int, default=0, help="of the graphs (default 0)")
    parser.add_argument("--append", action="store_true", help="add to the record file; use another seed")
    parser.add_argument("--train", action="store_true", help="fit the model of the same name afterwards")
    arguments = parser.parse_args()

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does, with the worker
    target = parse_target(arguments.target, 1)
    name = device_class(target, 1)
    out = arguments.out or ROOT / "tuning_logs" / f"{name}.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    continuing = arguments.append and out.exists()
    with open(out, "a" if continuing else "w", encoding="utf-8") as stream:
        if not continuing:
            facts = {**host_facts(), "machine": platform.machine(), "mcpu": str(target.attrs.get("mcpu", ""))}
            stream.write(json.dumps(header(name, tvm.__version__, VERSION, host=facts)) + "\n")
        worker = Worker(make_collector, (arguments.target,), BATCH_SECONDS)
        collect(worker, stream, arguments.seed, arguments.minutes * 60.0)
    print(f"{out}: {out.stat().st_size / 1e6:.1f} MB")
    return fit(out, name) if arguments.train else 0


def collect(worker: Worker, out, seed: int, seconds: float) -> None:
    """Collect until the time is up or Ctrl-C; show a line of progress."""
    begin = time.monotonic()
    counts: Counter[str] = Counter()
    try:
        for number in itertools.count():
            if (elapsed := time.monotonic() - begin) >= seconds:
                break
            lines, more = worker.batch((seed, number))
            counts += more
            out.writelines(lines)
            out.flush()
            kernels = sum(count for kind, count in counts.items() if kind in RECIPE_VERSION)
            shown = f"{elapsed:4.0f}/{seconds:.0f} s  {counts['graphs']} graphs  {kernels} kernels"
            print(f"\r{shown}", end="" if sys.stdout.isatty() else "\n", flush=True)
    except KeyboardInterrupt:
        print("\nstopped; what was measured is kept", file=sys.stderr)
    finally:
        worker.stop()
    print("\n" + ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items())))


def fit(records: Path, name: str) -> int:
    """Fit the model beside the record file and print its held-out metrics."""
    from tvmpass.cost.training import train

    result = train([records], name)
    path = records.with_name(name + MODEL_SUFFIX)
    result.model.save(path)
    for problem in result.problems:
        print(problem, file=sys.stderr)
    print(json.dumps(result.metrics, indent=2))
    print(f"{path}: model {result.model.id}, {path.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
