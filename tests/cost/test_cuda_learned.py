"""Records and models of CUDA devices: the same path as for a CPU, with facts of their own."""

import json

import numpy as np
import pytest
import tvm

from tests.cost import cuda_kernels as kernels
from tests.cost.records import kernel_line, write
from tests.cost.records import vector as cpu_vector
from tvmpass.compile.latency import Latency, add
from tvmpass.core.decision import Estimate
from tvmpass.core.errors import TvmpassError
from tvmpass.core.options import Options
from tvmpass.cost.cuda_analytic import UNCALIBRATED, cuda_analytic_us
from tvmpass.cost.cuda_device import CudaDevice
from tvmpass.cost.cuda_features import CUDA_FEATURE_NAMES, CUDA_INDEX, cuda_features
from tvmpass.cost.dataset import SIMULATED, header, read
from tvmpass.cost.hardware import CPU, CUDA, hardware_for, hardware_of
from tvmpass.cost.learned import CostModel, shipped_model
from tvmpass.cost.simulated import SimulatedDevice
from tvmpass.cost.training import train

CLASS = "cuda-sm_90"
DEVICE = CudaDevice.of(kernels.TARGET)
AT_REST = cpu_vector(1.0, 0.0)


def vector(outputs: float, curves: float, noise: float = 4.0) -> np.ndarray:
    """Features of an elementwise kernel: sizes, curves evaluated, everything else at rest."""
    amounts = {"launches": 1, "bytes_in": 4 * outputs, "bytes_out": 4 * outputs, "outputs": outputs}
    amounts |= {"load.bytes": 4 * outputs, "store.bytes": 4 * outputs, "l2_bytes": 8 * outputs, "width": 4}
    amounts |= {"exp": curves, "blocks": 1 + outputs / 256, "threads": 256, "resident": 8, "index": noise}
    x = np.zeros(len(CUDA_FEATURE_NAMES), dtype=np.float32)
    for name, value in amounts.items():
        x[CUDA_INDEX[name]] = np.log1p(value)
    for name in ("coalescing", "lanes", "occupancy"):
        x[CUDA_INDEX[name]] = 1.0
    return x


def time_us(x: np.ndarray) -> float:
    """The known truth: curves are dear, launches cheap."""
    outputs, curves = np.expm1(x[CUDA_INDEX["outputs"]]), np.expm1(x[CUDA_INDEX["exp"]])
    return float((outputs + 40.0 * curves) / 1e5 + 0.5)


def cuda_line(key: str, x: np.ndarray, time: float) -> dict:
    short = [round(float(v), 3) for v in x]
    return kernel_line(key, AT_REST, median_us=time, features=short)


def synthetic(graphs: int = 100, seed: int = 0) -> list[dict]:
    """Pairs of kernels and their fusion: it saves a pass, or computes curves again."""
    rng = np.random.default_rng(seed)
    lines = []
    for g in range(graphs):
        outputs = float(np.exp(rng.uniform(np.log(5e3), np.log(5e6))))
        small = outputs / float(rng.choice([1, 1, 4, 16, 64]))
        made = [
            vector(small, small),
            vector(outputs, 0.0, rng.uniform(0, 9)),
            vector(outputs, outputs, rng.uniform(0, 9)),
        ]
        keys = [f"g{g}-a", f"g{g}-b", f"g{g}-f"]
        times = [time_us(x) for x in made]
        for key, x, time in zip(keys, made, times):
            lines.append(cuda_line(key, x, time))
        base = {"group_key": f"g{g}"}
        lines.append({**base, "alternative": "off", "kernel_keys": keys[:2], "median_us": sum(times[:2])})
        lines.append({**base, "alternative": "on", "kernel_keys": keys[2:], "median_us": times[2]})
    return lines


def write_cuda(path, lines, **extra):
    """Write a record file of a CUDA device; ``extra`` goes into its header."""
    head = header(CLASS, tvm.__version__, "0.0.0", **extra)
    path.write_text("\n".join(json.dumps(line) for line in [head, *lines]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    return write_cuda(folder / f"{CLASS}.jsonl", synthetic(), device="cuda", host={"sms": 114})


@pytest.fixture(scope="module")
def result(records):
    return train([records], CLASS)


def test_a_device_class_has_its_kind_of_hardware():
    assert hardware_of(CLASS) is CUDA and hardware_of("x86-64-v3-t4") is CPU
    assert hardware_for(DEVICE) is CUDA
    assert header(CLASS, "0", "0")["feature_version"] == CUDA.feature_version


def test_learns_the_truth_of_the_device(result):
    model = result.model
    assert (model.device_class, model.device.sms) == (CLASS, 114)
    assert result.metrics["decision_accuracy"] > 0.9 and "simulated" not in result.metrics
    assert result.metrics["spearman"] > 0.95
    assert result.metrics["median_relative_error"] < 0.15
    x = vector(2e5, 2e5)
    estimate = model.latency(x, "elementwise")
    assert estimate.source == f"learned:{model.id}" and not model.id.startswith("sim-")
    assert estimate.mean == pytest.approx(time_us(x) + DEVICE.launch_us, rel=0.15)


def test_pairwise_overrules_the_analytic_price(result):
    outputs = 1e6
    parts, fused = [vector(outputs / 64, outputs / 64), vector(outputs, 0.0)], vector(outputs, outputs)
    analytic = [cuda_analytic_us(x, DEVICE) for x in (fused, *parts)]
    assert analytic[0] < sum(analytic[1:])
    mean, sd = result.model.pairwise(fused, parts)
    assert mean - sd > 0.5


def test_abstains_outside_what_it_has_seen(result):
    assert result.model.latency(vector(1e9, 0.0), "elementwise") is None
    assert result.model.latency(vector(1e5, 0.0), "matmul") is None


def test_another_number_of_sms_widens_the_spread(result):
    more = CostModel(result.model.document, units=228)
    x = vector(2e6, 2e6)
    one, other = result.model.latency(x), more.latency(x)
    assert other.mean < one.mean
    assert other.high / other.low > one.high / one.low


def test_the_nearest_number_of_sms_ships(result, tmp_path):
    for name, sms, seed in (("a", 114, 0), ("b", 144, 1)):
        made = train([write_cuda(tmp_path / f"{name}.jsonl", synthetic(30, seed), host={"sms": sms})], CLASS)
        suffix = "" if name == "a" else "-b"
        made.model.save(tmp_path / f"{CLASS}{suffix}.model.json")
    assert shipped_model(CLASS, tmp_path, sms=120).measured_units == 114
    assert shipped_model(CLASS, tmp_path, sms=140).measured_units == 144
    assert shipped_model("cuda-sm_80", tmp_path, sms=140) is None


def test_simulated_records_stay_apart(records, tmp_path):
    pretended = write_cuda(tmp_path / "sim.jsonl", synthetic(30), device=SIMULATED, host={"sms": 132})
    together = read([pretended, records], CLASS)
    assert not together.simulated and together.facts == {"sms": 114}
    assert any("simulated device" in problem for problem in together.problems)
    alone = train([pretended], CLASS)
    assert alone.metrics["simulated"] is True and alone.model.id.startswith("sim-")
    alone.model.save(tmp_path / f"{CLASS}.model.json")
    assert shipped_model(CLASS, tmp_path, sms=132) is None


def test_devices_of_one_class_are_not_mixed(records, tmp_path):
    other = write_cuda(tmp_path / "other.jsonl", synthetic(10, 3), device="cuda", host={"sms": 78})
    data = read([records, other], CLASS)
    assert data.facts == {"sms": 114}
    assert any("another device" in problem for problem in data.problems)


def test_prices_without_a_model_say_that_nothing_was_measured():
    latency = Latency(kernels.TARGET, Options(threads=1, cost_model="analytic"))
    function = kernels.unary(256, 1024)
    x = latency.features(function)
    np.testing.assert_array_equal(x, cuda_features(function, kernels.TARGET))
    estimate = latency.kernel(x, "elementwise")
    assert estimate.source == latency.source == UNCALIBRATED
    assert estimate.mean == pytest.approx(cuda_analytic_us(x, DEVICE))
    learned = Estimate("learned:x", 1.0, 1.0, 1.0)
    assert add([learned, estimate]).source == UNCALIBRATED
    assert add([estimate, Estimate.exact("abstained→analytic", 1.0)]).source == "abstained→analytic"


def test_a_model_prices_a_build(result, tmp_path):
    path = tmp_path / "model.json"
    result.model.save(path)
    latency = Latency(kernels.TARGET, Options(threads=1, cost_model=str(path)))
    assert latency.source == f"learned:{result.model.id}"
    assert latency.kernel(vector(1e5, 0.0), "elementwise").source == latency.source
    assert latency.kernel(vector(1e9, 0.0), "elementwise").source == "abstained→analytic"


def test_a_model_of_other_hardware_is_one_clear_error(result, tmp_path):
    path = tmp_path / "model.json"
    result.model.save(path)
    cpu = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})
    with pytest.raises(TvmpassError, match=r"is of cuda-sm_90, the target is x86-64-v3-t1"):
        Latency(cpu, Options(threads=1, cost_model=str(path)))


def test_too_few_records_name_the_script(tmp_path):
    path = write_cuda(tmp_path / "a.jsonl", synthetic(2))
    with pytest.raises(TvmpassError, match=r"usable records of cuda-sm_90.*collect_cuda"):
        train([path], CLASS)
    cpu = write(tmp_path / "b.jsonl", [kernel_line("k", AT_REST)])
    with pytest.raises(TvmpassError, match="0 usable records of cuda-sm_90"):
        train([cpu], CLASS)


def test_the_simulated_device_repeats_and_disagrees_with_the_analytic_price():
    device = SimulatedDevice(DEVICE)
    apart, inlined = (kernels.broadcast(4096, 1024, way, costly=2) for way in (False, True))
    assert device.samples_us(inlined) == device.samples_us(inlined)
    assert max(device.samples_us(inlined)) < 1.03 * device.time_us(inlined)
    analytic = [cuda_analytic_us(cuda_features(f, kernels.TARGET), DEVICE) for f in (inlined, apart)]
    assert analytic[0] < analytic[1]
    assert device.time_us(inlined) > 2 * device.time_us(apart)
    tiny = kernels.unary(1, 256)
    assert device.time_us(tiny) < 0.5 * cuda_analytic_us(cuda_features(tiny, kernels.TARGET), DEVICE)
