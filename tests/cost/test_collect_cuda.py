"""Collecting records of CUDA kernels, with the simulated device and up to the real one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tvm

from scripts.collect.cuda import CudaCollector
from scripts.collect.runner import SimulatedRunner, build_library
from tests.cost import cuda_kernels as kernels
from tvmpass.compile.codegen import kernel_symbol
from tvmpass.compile.cuda_library import read_library
from tvmpass.compile.cuda_probe import probe
from tvmpass.core.options import Options
from tvmpass.cost.cuda_features import CUDA_FEATURE_NAMES
from tvmpass.cost.dataset import SIMULATED, header, read

ROOT = Path(__file__).parents[2]
OPTIONS = Options(threads=1, cost_model="analytic", tuning_logs="off")


def collected(seed: int) -> list[str]:
    collector = CudaCollector(kernels.TARGET, OPTIONS, SimulatedRunner(kernels.TARGET))
    lines, counts = collector.batch((seed, 0))
    assert counts["graphs"] > 0 and not any(name.startswith("fault") for name in counts)
    return lines


def test_a_batch_gives_records_that_can_be_read(tmp_path):
    lines = collected(7)
    assert lines == collected(7)
    path = tmp_path / "a.jsonl"
    head = header("cuda-sm_90", tvm.__version__, "0", device=SIMULATED, host={"sms": 132})
    path.write_text(json.dumps(head) + "\n" + "".join(lines), encoding="utf-8")
    data = read([path], "cuda-sm_90")
    assert not data.problems and data.simulated and data.facts == {"sms": 132}
    assert data.kernels and all(len(k.features) == len(CUDA_FEATURE_NAMES) for k in data.kernels)
    names = {alternative.name for alternative in data.alternatives}
    assert "off" in names and len(names) > 1
    recipes = {}
    for kernel in data.kernels:
        recipes.setdefault(kernel.kernel_key, set()).add(kernel.recipe)
    assert max(map(len, recipes.values())) > 1


def run(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / "scripts" / "collect_cuda.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.skipif(probe().answers, reason="a CUDA device answers here")
def test_without_a_device_there_is_one_clear_line(tmp_path):
    done = run("--device", "cuda", "--out", str(tmp_path / "a.jsonl"))
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("collect_cuda: no CUDA device answers")
    assert "Traceback" not in done.stderr and not list(tmp_path.iterdir())


def test_simulated_records_need_a_place_of_their_own():
    done = run("--device", "sim")
    assert done.returncode == 2 and "--device sim needs --out" in done.stderr


@pytest.mark.slow
def test_kernels_are_built_for_a_device_elsewhere(tmp_path):
    """What `CudaRunner` times is built here, and the library holds every kernel."""
    made = [kernels.unary(64, 256), kernels.row_sum(64, 1024, 128)]
    functions = {kernel_symbol(f, kernels.TARGET): f for f in made}
    path = build_library(functions, kernels.TARGET, tmp_path / "batch.so")
    library = read_library(path)
    assert len(library.launched) == len(made) and not library.missing(["sm_90"])
