"""Measuring on real RPC servers on loopback: what happens when they, or candidates, fail."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from tests.tir_passes.cases import OPTIONS, TARGET, matmul
from tests.tune.planted import PlantedBuilder, planted
from tests.tune.rpc_farm import Farm, free_port
from tests.tune.workloads import workload
from tir_passes.recipes import recipes
from tvmpass.compile.target import parse_target
from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.core.kernels import classify
from tvmpass.tune import rpc_runner
from tvmpass.tune.forkserver import Outcome
from tvmpass.tune.rpc_dispatch import LOST, SILENT, UNREACHED
from tvmpass.tune.rpc_runner import RpcRunner, failure_of
from tvmpass.tune.work import Candidate, Job, Measurement

pytestmark = pytest.mark.slow

WORKLOAD = workload(matmul(64, 64, 64))
RECIPES = [Candidate(recipe=str(r)) for r in recipes(classify(WORKLOAD.function), TARGET, OPTIONS)]


@pytest.fixture
def farm(tmp_path):
    with Farm(tmp_path) as made:
        made.start_tracker()
        yield made


@pytest.fixture
def two(farm):
    farm.servers = [farm.start_server("cpu") for _ in range(2)]
    return farm


@pytest.fixture
def open_runner(farm, tmp_path):
    """Return a function that opens a runner on the farm; it builds planted candidates too."""
    opened = []

    def make(**options) -> RpcRunner:
        runner = RpcRunner("127.0.0.1", farm.port, "cpu", TARGET, OPTIONS, say=said.append, **options)
        opened.append(runner)
        runner.said = said
        runner.builder = PlantedBuilder(runner.builder, tmp_path)
        return runner

    said: list[str] = []
    yield make
    for runner in opened:
        runner.close()


def measure(runner, candidates, during=lambda count: None) -> dict[str, Measurement]:
    """Measure candidates; each must be answered exactly once.  ``during`` gets the count so far."""
    found: dict[str, Measurement] = {}

    def done(job: Job, measurement: Measurement) -> None:
        assert job.candidate.text not in found
        found[job.candidate.text] = measurement
        during(len(found))

    runner.measure([Job(WORKLOAD, candidate) for candidate in candidates], done)
    assert list(found) and set(found) == {c.text for c in candidates}
    return found


def test_all_servers_work_and_every_job_is_answered_once(two, open_runner):
    runner = open_runner()
    assert runner.workers == 4
    assert runner.facts["mcpu"] and runner.facts["rpc_key"] == "cpu"
    found = measure(runner, RECIPES[:8])
    assert {m.status for m in found.values()} == {"ok"}
    assert {m.worker for m in found.values()} == set(two.tracker.status("cpu").servers)
    for m in found.values():
        assert m.median_us and m.candidate0_us and m.wins is not None and m.features and m.spent_s > 0
        assert m.checked == "reference"
    two.wait_for(lambda: two.tracker.status("cpu").free == 2)
    left = [p for p in two.folder.glob("rpc-server-*/**/*") if p.is_file()]
    assert left == []  # what was uploaded went with its session


def test_each_kind_of_bad_candidate_costs_only_itself(two, open_runner):
    bad = {"segfault": "crash", "exit": "crash", "hang": "timeout", "wrong": "wrong", "beyond": "wrong"}
    runner = open_runner(run_seconds=3.0)
    candidates = [*map(planted, bad), *RECIPES[:4]]
    found = measure(runner, candidates)
    for name, status in bad.items():
        assert found["planted-" + name].status == status, found["planted-" + name].cause
        assert found["planted-" + name].cause
    assert {found[c.text].status for c in RECIPES[:4]} == {"ok"}
    assert found["planted-segfault"].cause.count("127.0.0.1:") == 2  # it was tried twice
    assert found["planted-beyond"].cause == "wrote beyond the end of argument 3"
    assert found["planted-hang"].cause.startswith("no end after 3 s")


def test_jobs_of_a_server_that_is_killed_are_measured_elsewhere_and_late_ones_join(two, open_runner):
    runner = open_runner()
    workers = []

    def during(count: int) -> None:
        if count == 1:
            two.kill(two.servers[0])
        if count == 3:
            workers.append(two.start_server("cpu"))

    found = measure(runner, [planted("slow"), *RECIPES[:11]], during)
    statuses = Counter(m.status for m in found.values())
    assert statuses == {"ok": 11, "wrong": 1}
    assert len({m.worker for m in found.values()}) >= 2


def test_a_server_that_is_frozen_is_given_up_and_used_again_when_it_thaws(two, open_runner, monkeypatch):
    monkeypatch.setattr(rpc_runner, "SLACK_S", 1.0)
    runner = open_runner(run_seconds=3.0)
    frozen = two.servers[0].pid

    def during(count: int) -> None:
        if count == 1:
            os.killpg(frozen, signal.SIGSTOP)

    try:
        found = measure(runner, RECIPES[:8], during)
    finally:
        os.killpg(frozen, signal.SIGCONT)
    assert {m.status for m in found.values()} == {"ok"}
    two.wait_for(lambda: two.tracker.status("cpu").free == 2)
    assert len({m.worker for m in measure(runner, RECIPES[8:14]).values()}) == 2


def test_a_tracker_that_is_started_again_goes_unnoticed_by_the_jobs(two, open_runner):
    runner = open_runner()

    def during(count: int) -> None:
        if count == 1:
            two.kill(two.processes[0])
            two.start_tracker()

    found = measure(runner, RECIPES[:6], during)
    assert {m.status for m in found.values()} == {"ok"}


def test_with_no_server_left_it_ends_and_says_so(two, open_runner):
    runner = open_runner(patience_s=2.0)

    def during(count: int) -> None:
        for server in two.servers:
            two.kill(server)

    with pytest.raises(TvmpassError, match=r"no server of the key 'cpu'.* candidates are not measured"):
        measure(runner, RECIPES[:8], during)
    assert any("waiting" in line for line in runner.said)


def test_an_exception_of_the_caller_ends_everything_at_once_and_the_runner_works_on(two, open_runner):
    runner = open_runner()

    def interrupted(count: int) -> None:
        raise KeyboardInterrupt

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        measure(runner, RECIPES[:12], interrupted)
    assert time.monotonic() - begin < 20.0
    assert threading.active_count() < 5
    assert {m.status for m in measure(runner, RECIPES[:2]).values()} == {"ok"}


def test_ctrl_c_leaves_no_process_behind(two, tmp_path):
    code = f"""
import tests.tune.test_rpc_runner as t
runner = t.RpcRunner("127.0.0.1", {two.port}, "cpu", t.TARGET, t.OPTIONS)
try:
    t.measure(runner, t.RECIPES, lambda count: print(count, flush=True))
except KeyboardInterrupt:
    print("interrupted", flush=True)
finally:
    runner.close()
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment, cwd=os.getcwd()
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "1"
    process.send_signal(signal.SIGINT)
    assert "interrupted" in process.stdout.read()
    assert process.wait(20.0) == 0
    assert list(tmp_path.glob("tvmpass-tune-*")) == []
    ended = subprocess.run(["pgrep", "-f", str(tmp_path / "tvmpass-tune")], capture_output=True, text=True)
    assert ended.stdout == ""


def test_what_is_missing_is_said_at_once(farm):
    with pytest.raises(
        TvmpassError, match="has no server of the key 'cpu'; servers there: none at all; start"
    ):
        RpcRunner("127.0.0.1", farm.port, "cpu", TARGET, OPTIONS)
    farm.start_server("cpu-a")
    with pytest.raises(TvmpassError, match=r"did you mean 'cpu-a'\?; servers there: cpu-a \(1\)"):
        RpcRunner("127.0.0.1", farm.port, "cpu_a", TARGET, OPTIONS)
    with pytest.raises(TvmpassError, match="no CUDA device answers there"):
        RpcRunner("127.0.0.1", farm.port, "cpu-a", parse_target("cuda:sm_90", 1), OPTIONS)
    with pytest.raises(TvmpassError, match="no RPC tracker answers at .*rpc_tracker --host"):
        RpcRunner("127.0.0.1", free_port(), "cpu", TARGET, OPTIONS)
    with pytest.raises(UsageError, match="without blanks"):
        RpcRunner("127.0.0.1", farm.port, "my cpu", TARGET, OPTIONS)


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setattr(rpc_runner, "_NEEDED", ("psutil", "no_such_module"))
    with pytest.raises(TvmpassError, match=r"needs no_such_module: pip install 'tvmpass\[rpc\]'"):
        RpcRunner("127.0.0.1", 1, "cpu", TARGET, OPTIONS)


@pytest.mark.parametrize(
    "status, value, connected, kind",
    [
        ("ok", {"status": "ok"}, True, None),
        ("ok", {"lost": "gone"}, True, LOST),
        ("ok", {"unfit": "no GPU"}, True, UNREACHED),
        ("error", None, False, UNREACHED),
        ("crash", None, False, UNREACHED),
        ("crash", None, True, LOST),
        ("timeout", None, True, SILENT),
    ],
)
def test_what_an_outcome_means(status, value, connected, kind):
    failure = failure_of(Outcome(1, status, value, "why", 1.0), connected)
    assert (failure.kind if failure else None) == kind
