#!/usr/bin/env python3
"""Run acceptance points, resume after a stop, write what was measured.

    scripts/accept.py main-job            every point
    scripts/accept.py main-job B H        some points
    scripts/accept.py main-job C --item legal_zero_size
    scripts/accept.py cuda                the points of the CUDA target
    scripts/accept.py tune                the points of tuning
    scripts/accept.py relay               the points of Relay programs

Each item (a model, a graph, a case) is run in a process of its own and kept as
a file under results/; an item that was done on the same commit is not done
again unless --fresh is given.  The summary is results/NAME.json.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.acceptance import cuda, main_job, relay, tune  # noqa: E402
from scripts.acceptance.bench import Bench  # noqa: E402

SUITES = {"main-job": main_job.POINTS, "cuda": cuda.POINTS, "tune": tune.POINTS, "relay": relay.POINTS}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("points", nargs="*", help="letters; all when none is given")
    parser.add_argument("--shared", default=str(ROOT.parent / "shared"), help="folder of corpus and cases")
    parser.add_argument("--results", default=str(ROOT / "results"))
    parser.add_argument("--item", action="append", help="only this item of a point; may be repeated")
    parser.add_argument("--fresh", action="store_true", help="measure again what was measured already")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once where no time is taken")
    arguments = parser.parse_args()
    suite = SUITES[arguments.suite]
    wanted = [point.upper() for point in arguments.points] or list(suite)
    unknown = [point for point in wanted if point not in suite]
    if unknown:
        parser.error(f"no point {', '.join(unknown)}; there are {', '.join(suite)}")
    bench = Bench(
        root=ROOT,
        shared=Path(arguments.shared),
        folder=Path(arguments.results) / arguments.suite,
        fresh=arguments.fresh,
        only=frozenset(arguments.item or ()),
        jobs=arguments.jobs,
    )
    failed = []
    for letter in wanted:
        title, point = suite[letter]
        print(f"== {letter}: {title}", flush=True)
        verdict = point(bench)
        bench.conclude(letter, title, verdict)
        print(f"== {letter}: {'PASS' if verdict.passed else 'FAIL'}: {verdict.text}", flush=True)
        if not verdict.passed:
            failed.append(letter)
    print(f"summary: {bench.summary_path}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
