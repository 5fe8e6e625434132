"""Time thousands of small CUDA kernels, as training data for the cost model.

    python scripts/collect_cuda.py --device cuda --minutes 14
    python scripts/collect_cuda.py --device sim --batches 40 --out FOLDER

writes one record file, ``<device class>.jsonl``.  Random graphs (see
`collect.graphs`) are cut into kernels in every way that the fusion rules
propose, lowered and scheduled as a build does it, and timed by CUDA events; the
simulated device (`tvmpass.cost.simulated`) answers by formula instead.  Stop it
at any time: every line written is whole.

A machine with a GPU but without nvcc times what another one has built:

    python scripts/collect_cuda.py --prebuild FOLDER --batches 40 --target cuda:sm_90
    python scripts/collect_cuda.py --device cuda --prebuilt FOLDER --batches 40
"""

# ruff: noqa: E402 -- the environment and the path are set before TVM and tvmpass are imported
from __future__ import annotations

import os

os.environ.setdefault("TVM_NUM_THREADS", "1")  # read when TVM's runtime starts

import argparse
import itertools
import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import tvm
from collect.cuda import CudaCollector
from collect.runner import CudaRunner, Prebuilder, Runner, SimulatedRunner, require_device
from collect.worker import Batches, Worker

from tvmpass.compile.target import parse_target
from tvmpass.core.errors import TvmpassError
from tvmpass.core.kernels import KINDS
from tvmpass.core.options import Options
from tvmpass.cost.dataset import header
from tvmpass.cost.device import device_class
from tvmpass.version import VERSION

BATCH_SECONDS = 300.0
"""After this a batch on a real device is given up; nvcc takes most of it."""


def make_runner(device: str, target_name: str, folder: Path | None) -> Runner:
    """Return what times the kernels: the device, the simulation, or what only builds."""
    target = parse_target(target_name, 1)
    if device == "sim":
        return SimulatedRunner(target)
    if device == "none":
        assert folder is not None
        return Prebuilder(target, folder)
    return CudaRunner(target, folder)


def make_collector(device: str, target_name: str, folder: Path | None) -> CudaCollector:
    """Return what collects, in this process or in a worker's."""
    options = Options(threads=1, cost_model="analytic", tuning_logs="off")
    return CudaCollector(parse_target(target_name, 1), options, make_runner(device, target_name, folder))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", choices=("cuda", "sim"), default="cuda", help="what times the kernels")
    parser.add_argument("--target", help="as cuda:sm_90; default this device's, for sim cuda:sm_90")
    parser.add_argument("--minutes", type=float, default=14.0, help="how long to collect (default 14)")
    parser.add_argument("--batches", type=int, help="stop after so many batches, whatever the time")
    parser.add_argument(
        "--out", type=Path, help="record file (*.jsonl) or folder; default tuning_logs for cuda"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the graphs (default 0)")
    parser.add_argument("--prebuild", type=Path, metavar="FOLDER", help="only build, for a device elsewhere")
    parser.add_argument("--prebuilt", type=Path, metavar="FOLDER", help="take built kernels from here")
    arguments = parser.parse_args()
    if arguments.device == "sim" and arguments.out is None and arguments.prebuild is None:
        parser.error("--device sim needs --out: records of no real device have no place in tuning_logs")
    if arguments.prebuild is not None and (arguments.batches is None or arguments.target is None):
        parser.error("--prebuild needs --batches and --target")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does, with the worker
    try:
        return run(arguments)
    except TvmpassError as error:
        print(f"collect_cuda: {error}", file=sys.stderr)
        return 1


def run(arguments: argparse.Namespace) -> int:
    if arguments.prebuild is not None:
        collect(make_collector("none", arguments.target, arguments.prebuild), None, arguments)
        return 0
    name = arguments.target
    if arguments.device == "cuda":
        name = name or f"cuda:{require_device().arch}"
    target = parse_target(name or "cuda:sm_90", 1)
    out = record_file(arguments, device_class(target, 1))
    out.parent.mkdir(parents=True, exist_ok=True)
    given = (arguments.device, name or "cuda:sm_90", arguments.prebuilt)
    runner = make_runner(*given)
    head = header(device_class(target, 1), tvm.__version__, VERSION, device=runner.device, host=runner.facts)
    # A failed launch spoils the whole process for a real device; the simulation cannot fail so.
    collector: Batches
    if arguments.device == "cuda":
        collector = Worker(make_collector, given, BATCH_SECONDS)
    else:
        collector = make_collector(*given)
    with open(out, "w", encoding="utf-8") as stream:
        stream.write(json.dumps(head) + "\n")
        collect(collector, stream, arguments)
    print(f"{out}: {out.stat().st_size / 1e6:.1f} MB")
    return 0


def record_file(arguments: argparse.Namespace, name: str) -> Path:
    """Return the file to write; a simulated device's is named so that nobody takes it for another."""
    out = arguments.out or ROOT / "tuning_logs"
    if out.suffix == ".jsonl":
        return out
    return out / f"{name}{'-sim' if arguments.device == 'sim' else ''}.jsonl"


def collect(collector: Batches, out, arguments: argparse.Namespace) -> None:
    """Collect until the time is up, the batches are done or Ctrl-C; show a line of progress."""
    begin, seconds = time.monotonic(), arguments.minutes * 60.0
    counts: Counter[str] = Counter()
    try:
        for number in itertools.count() if arguments.batches is None else range(arguments.batches):
            elapsed = time.monotonic() - begin
            if arguments.batches is None and elapsed >= seconds:
                break
            lines, more = collector.batch((arguments.seed, number))
            counts += more
            if out is not None:
                out.writelines(lines)
                out.flush()
            kernels = sum(counts[kind] for kind in KINDS)
            shown = f"{elapsed:4.0f} s  batch {number + 1}  {counts['graphs']} graphs  {kernels} kernels"
            print(f"\r{shown}", end="" if sys.stdout.isatty() else "\n", flush=True)
    except KeyboardInterrupt:
        print("\nstopped; what was measured is kept", file=sys.stderr)
    finally:
        if isinstance(collector, Worker):
            collector.stop()
    print("\n" + ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items())))


if __name__ == "__main__":
    raise SystemExit(main())
