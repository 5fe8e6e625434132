"""Fusion alternatives of a small model: how it is cut, what is measured and written."""

from collections import Counter

import numpy as np
import pytest
from tvm import relax

import tvmpass
from tests.tir_passes.cases import OPTIONS, TARGET
from tvmpass.compile.kernel_key import kernel_key
from tvmpass.core.site import FunctionView
from tvmpass.cost import dataset
from tvmpass.cost.device import device_class
from tvmpass.cost.samples import fused_pairs, graph_groups
from tvmpass.testing.graphs import graph
from tvmpass.tune.fusion_alternatives import Collected, collect, cut, few, group_key
from tvmpass.tune.records import RecordFile, entry_of
from tvmpass.tune.tasks import plan_tasks
from tvmpass.tune.work import TRAIN, Measurement

R = relax.op
CLASS = device_class(TARGET, 1)


def network():
    """Two equal blocks (product, bias, relu, scale) and one more of another size."""
    generator = np.random.default_rng(0)

    def block(x, width, out):
        weight = relax.const(generator.normal(size=(width, out)).astype("float32"))
        bias = relax.const(generator.normal(size=(out,)).astype("float32"))
        x = R.nn.relu(R.add(R.matmul(x, weight), bias))
        return R.multiply(x, relax.const(np.float32(0.5)))

    return graph(lambda x: block(block(block(x, 16, 16), 16, 16), 16, 24), ((8, 16),))


@pytest.fixture(scope="module")
def pipeline():
    return plan_tasks(network(), TARGET, OPTIONS, CLASS)[1]


class Runner:
    """Gives each kernel a time; the keys in ``failing`` crash."""

    def __init__(self, failing=(), most: int = 1 << 30):
        self.failing, self.most = set(failing), most
        self.jobs: list = []

    def measure(self, jobs, done):
        for job in jobs:
            if len(self.jobs) == self.most:
                raise KeyboardInterrupt
            self.jobs.append(job)
            key = job.workload.kernel_key
            if key in self.failing:
                done(job, Measurement("crash", cause="it died"))
            else:
                features = [1.0] * 78
                done(job, Measurement("ok", 10.0 + len(self.jobs), [10.0], 10.0, 0.5, features))


def run(pipeline, runner, known=()) -> tuple[Collected, list, list]:
    kernels, lines = [], []
    found = collect(pipeline, runner, CLASS, known, lambda *k: kernels.append(k), lines.append)
    return found, kernels, lines


def test_a_region_is_cut_apart_whole_and_in_parts():
    mod = network()
    view = FunctionView(mod, "main")
    region = list(view.bindings)[:4]
    cuts, functions = cut(view, region, [region, region[:2]])
    assert [c.name for c in cuts] == ["off", "on", "partial:0,1"]
    assert [len(c.parts) for c in cuts] == [4, 1, 3]
    assert cuts[2].parts[1:] == cuts[0].parts[2:]
    assert {part for c in cuts for part in c.parts} == set(functions)


def test_of_many_chains_the_ends_and_some_between_are_kept():
    assert few([1, 2, 3]) == [1, 2, 3]
    assert few(list(range(10))) == [0, 3, 6, 9]
    assert few(list(range(10)), lambda count: [0, count - 1]) == [0, 1, 8, 9]


def test_each_kernel_is_measured_once_and_every_site_has_its_lines(pipeline):
    runner = Runner()
    found, kernels, lines = run(pipeline, runner)
    keys = [job.workload.kernel_key for job in runner.jobs]
    assert len(keys) == len(set(keys)) == len(kernels) == found.kernels
    assert all(job.candidate.role == TRAIN for job in runner.jobs)
    assert all(job.candidate.recipe == job.workload.candidate0.recipe for job in runner.jobs)
    assert found.sites == found.measured == len({line["group_key"] for line in lines}) >= 2
    times = {job.workload.kernel_key: m.median_us for job, m in zip(runner.jobs, (k[2] for k in kernels))}
    for line in lines:
        assert line["median_us"] == pytest.approx(sum(times[k] for k in line["kernel_keys"]), rel=1e-4)
    names = Counter(line["alternative"].partition(":")[0] for line in lines)
    assert names["off"] == names["on"] == found.sites and names["partial"] >= 2
    off = next(line for line in lines if line["alternative"] == "off")
    assert off["group_key"] == group_key(off["kernel_keys"])
    assert sum(found.best.values()) == found.sites


def test_kernels_have_the_keys_of_builds(pipeline):
    runner = Runner()
    run(pipeline, runner)
    keys = {job.workload.kernel_key for job in runner.jobs}
    planned = {kernel_key(f, CLASS, pipeline.options) for f in pipeline.unscheduled.values()}
    assert planned & keys


def test_sites_that_have_lines_are_not_measured_again(pipeline):
    _, _, lines = run(pipeline, Runner())
    runner = Runner()
    known = {line["group_key"] for line in lines}
    found, kernels, again = run(pipeline, runner, known)
    assert (runner.jobs, kernels, again) == ([], [], [])
    assert found.known == found.sites and found.measured == 0
    one = sorted(known)[0]
    _, _, rest = run(pipeline, runner, {one})
    assert {line["group_key"] for line in rest} == known - {one}


def test_an_alternative_whose_kernel_failed_is_left_out(pipeline):
    _, _, lines = run(pipeline, Runner())
    on = next(line for line in lines if line["alternative"] == "on")
    off = next(line for line in lines if line["group_key"] == on["group_key"])
    found, kernels, left = run(pipeline, Runner(on["kernel_keys"]))
    assert found.failed == 1 and sum(k[2].status == "crash" for k in kernels) == 1
    same = [line["alternative"] for line in left if line["group_key"] == on["group_key"]]
    assert "off" in same and "on" not in same
    _, _, none = run(pipeline, Runner(off["kernel_keys"][:1]))
    assert on["group_key"] not in {line["group_key"] for line in none}


def test_what_was_complete_at_an_interruption_is_written(pipeline):
    kernels, lines = [], []
    with pytest.raises(KeyboardInterrupt):
        collect(pipeline, Runner(most=12), CLASS, (), lambda *k: kernels.append(k), lines.append)
    assert len(kernels) == 12
    assert lines and lines[0]["alternative"] == "off"


def test_training_reads_the_lines(pipeline, tmp_path):
    with RecordFile.open(tmp_path, CLASS, {}) as file:
        collect(pipeline, Runner(), CLASS, (), lambda *k: file.append(entry_of(*k)), file.append)
    data = dataset.read([file.path], CLASS)
    assert data.problems == []
    assert fused_pairs(data, graph_groups(data))


@pytest.mark.slow
def test_a_tune_measures_them_once_and_says_what_came_out(tmp_path):
    with tvmpass.PassContext(config={"tvmpass.threads": 1}):
        first, second = (
            tvmpass.tune(network(), "llvm", logs=tmp_path, trials=1, collect=True) for _ in range(2)
        )
    assert first.fusion["sites"] == first.fusion["measured"] >= 2 and first.fusion["failed"] == 0
    assert second.fusion["known"] == first.fusion["sites"] and second.fusion["kernels"] == 0
    data = dataset.read([first.path], CLASS)
    assert data.problems == []
    sites = {line.group_key for line in data.alternatives}
    assert len(sites) == first.fusion["sites"]
    assert fused_pairs(data, graph_groups(data))
