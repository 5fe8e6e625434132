"""A: models and graphs built for two architectures where only the extra `cuda` and g++ are."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from . import models
from .bench import Bench, Verdict

TARGET, ARCHES = "cuda:sm_80,sm_90", ("sm_80", "sm_90")
# Attention, products, norms, softmax, convolutions (depthwise too), gather and scatter, fp16, an open dim.
GRAPHS = (
    "timm_convit_tiny_35_51",
    "timm_cait_xxs24_224_fb_dist_in1k_17_22",
    "tf_openai_community_gpt2_47_62_fp16",
    "tf_albert_base_v2_43_47",
    "tf_nli_deberta_v3_xsmall_92_107_fp16",
    "single_softmax",
    "tv_lraspp_mobilenet_v3_large_189_198",
    "timm_coat_tiny_260_270",
    "pyg_edgecnn_2_15",
    "legal_dynamic_batch",
)
KINDS = {"matmul", "conv", "depthwise", "norm-softmax", "reduce", "elementwise", "movement"}
NOT_INSTALLED = ("onnxruntime", "torch", "pytest")
"""What a venv with the extra `cuda` alone does not hold."""

PROBE = """
import importlib.util, json, sys
import tvmpass
from tvmpass.compile.cuda_library import read_library, resolvable
from tvmpass.compile.cuda_toolchain import find_nvcc
artifact = tvmpass.load_artifact(sys.argv[1])
library = read_library(sys.argv[1])
print(json.dumps({
    "missing": resolvable(artifact), "launched": len(library.launched),
    "code": sorted({c for found in library.code.values() for c in found}),
    "nvcc": str(find_nvcc().path), "prefix": sys.prefix,
    "extra_packages": [n for n in %r if importlib.util.find_spec(n)],
}))
"""


def point(bench: Bench) -> Verdict:
    paths = models.fetch(bench.cache)
    with tempfile.TemporaryDirectory() as folder:
        place: list[Venv] = []

        def one(name: str) -> dict:
            if not place:
                place.append(Venv(bench, Path(folder)))
            if name in paths:
                shape = ",".join(map(str, models.MODELS[name][1]))
                return place[0].build(name, paths[name], [f"x:{shape}"])
            corpus = bench.shared / "corpus"
            record = json.loads((corpus / f"{name}.json").read_text())
            shapes = [f"{i['name']}:{','.join(map(str, i['shape']))}" for i in record["inputs"]]
            return place[0].build(name, str(corpus / f"{name}.onnx"), shapes)

        results = bench.items("A", (*models.MODELS, *GRAPHS), one)
    return judge(results, whole=not bench.only)


def judge(results: dict[str, dict], whole: bool) -> Verdict:
    """Give the verdict; the kernel kinds must all occur where every graph was built."""
    faults = [f"{name}: {r.get('error') or '; '.join(r['faults'])}" for name, r in results.items() if bad(r)]
    good = [r for r in results.values() if "error" not in r]
    kinds = {kind for r in good for kind in r["kinds"]}
    if whole and KINDS - kinds:
        faults.append(f"no kernel of kind {', '.join(sorted(KINDS - kinds))} among them")
    spills = {name: r["spills"] for name, r in results.items() if r.get("spills")}
    kernels = sum(r["kernels"] for r in good)
    listed = "; ".join(f"{name}: {', '.join(found)}" for name, found in spills.items()) or "none"
    fallbacks = sum(r["fallbacks"] for r in good)
    text = f"{len(good)} libraries, {kernels} kernels ({fallbacks} by the fallback); spills: {listed}"
    return Verdict(not faults, "; ".join([*faults, text])[:1500], results)


def bad(result: dict) -> bool:
    return "error" in result or bool(result["faults"])


class Venv:
    """A new environment with `.[cuda]` of a clean clone, and a PATH without nvcc."""

    def __init__(self, bench: Bench, folder: Path):
        self.folder = folder
        self.python = folder / "venv" / "bin" / "python"
        for command in (
            ["git", "clone", "--quiet", str(bench.root), str(folder / "clone")],
            [sys.executable, "-m", "venv", str(folder / "venv")],
            [str(self.python), "-m", "pip", "install", "--quiet", f"{folder / 'clone'}[cuda]"],
        ):
            subprocess.run(command, check=True, capture_output=True, timeout=1800)
        # The compilers alone: a system toolkit may have put nvcc into any folder of the usual PATH.
        tools = folder / "tools"
        tools.mkdir()
        for tool in ("g++", "gcc", "cc", "c++", "as", "ld", "cpp", "uname", "sh"):
            if found := shutil.which(tool):
                (tools / tool).symlink_to(found)
        kept = {k: v for k, v in os.environ.items() if not re.match(r"CUDA|NVCC|PYTHON|VIRTUAL|LD_", k)}
        self.environment = {
            **kept,
            "PATH": f"{folder / 'venv' / 'bin'}{os.pathsep}{tools}",
            "TVMPASS_CACHE_DIR": str(folder / "cache"),
            "TVM_NUM_THREADS": "1",
        }
        if shutil.which("nvcc", path=self.environment["PATH"]):
            raise RuntimeError("nvcc is on the PATH of the clean environment")

    def build(self, name: str, model: str, shapes: list[str]) -> dict[str, Any]:
        """Build with the command line, look into the library, hold the report against the limits."""
        output, report = self.folder / f"{name}.so", self.folder / f"{name}.json"
        command = ["-m", "tvmpass", "build", model, "-o", str(output), "--target", TARGET]
        command += ["--report", str(report)]
        for shape in shapes:
            command += ["--shape", shape]
        done = self._run(command, 1800)
        if done.returncode:
            return {"error": f"exit {done.returncode}: {done.stderr.strip().splitlines()[-1][-400:]}"}
        probed = self._run(["-c", PROBE % (NOT_INSTALLED,), str(output)], 120)
        if probed.returncode:
            return {"error": f"loading again: {probed.stderr.strip().splitlines()[-1][-400:]}"}
        seen = json.loads(probed.stdout)
        kernels = json.loads(report.read_text())["kernels"]
        faults = [fault for kernel in kernels for fault in limit_faults(kernel)]
        if seen["missing"]:
            faults.append(f"not resolvable: {', '.join(seen['missing'])}")
        if not seen["launched"]:
            faults.append("its host code launches no kernel")
        if not set(seen["code"]) >= {80, 90}:
            faults.append(f"machine code for {seen['code']} only")
        if not seen["nvcc"].startswith(seen["prefix"]):
            faults.append(f"nvcc came from {seen['nvcc']}, not from the venv")
        if seen["extra_packages"]:
            faults.append(f"the venv is not clean: {', '.join(seen['extra_packages'])}")
        return {
            "faults": faults,
            "kernels": len(kernels),
            "device_kernels": seen["launched"],
            "fallbacks": sum(k["schedule"].startswith("fallback") for k in kernels),
            "kinds": sorted({k["kind"] for k in kernels}),
            "spills": [f"{k['name']} {spilled(k)}" for k in kernels if spilled(k)],
            "library_bytes": output.stat().st_size,
            "schedules": {
                k["name"]: k["schedule"] + (f" ({k['note']})" if k["note"] else "") for k in kernels
            },
        }

    def _run(self, command: list[str], timeout: float) -> subprocess.CompletedProcess:
        return subprocess.run(
            [str(self.python), *command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )


def limit_faults(kernel: dict[str, Any]) -> list[str]:
    """Return how a kernel breaks the limits of an architecture, from its entry in the report."""
    from tvmpass.core.cuda_arch import ARCHES as FACTS
    from tvmpass.core.cuda_arch import MAX_REGISTERS_PER_THREAD, STATIC_SHARED_BYTES

    faults = []
    for arch in ARCHES:
        found = (kernel["cuda"] or {}).get(arch)
        if found is None:
            faults.append(f"{kernel['name']} has no resources for {arch}")
            continue
        static, shared = found["static_shared_bytes"], found["dynamic_shared_bytes"]
        within = (
            found["registers"] <= MAX_REGISTERS_PER_THREAD
            and static <= STATIC_SHARED_BYTES
            and static + shared <= FACTS[arch].shared_per_block
            and 0 < found["occupancy"] <= 1
        )
        if not within:
            faults.append(f"{kernel['name']} is beyond {arch}: {found}")
    return faults


def spilled(kernel: dict[str, Any]) -> str:
    """Return ``8 B (sm_90)`` for the architectures on which a kernel spills."""
    found = {arch: row["spill_bytes"] for arch, row in (kernel["cuda"] or {}).items() if row["spill_bytes"]}
    return ", ".join(f"{number} B ({arch})" for arch, number in found.items())
