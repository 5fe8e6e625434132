"""A CUDA device for the children of a runner: launches go to the emulator.

Put on the path as ``sitecustomize`` of the process that forks, with the libraries
of ``tests/compile/fake_cuda.c`` where the loader finds them.  The child that
builds writes down the CUDA text; the child that runs emulates it.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import tvmpass.compile.cuda_build as cuda_build
import tvmpass.tune.run_job as run_job

FOLDER = Path(os.environ["FAKE_GPU_FOLDER"])
_emit, _find, _run = cuda_build.emit_cuda, run_job.find_device, run_job.run_here


def emit(*arguments):
    source = _emit(*arguments)
    for kernel in source.kernels:
        parameters = [asdict(parameter) for parameter in kernel.parameters]
        known = {"name": kernel.name, "parameters": parameters, "source": source.source}
        (FOLDER / f"{kernel.name}.json").write_text(json.dumps(known))
    return source


def run(**arguments):
    from tests.compile.fake_device import DRIVER, Order, emulated

    kernels = {}
    for path in FOLDER.glob("*.json"):
        known = json.loads(path.read_text())
        parameters = [SimpleNamespace(**parameter) for parameter in known["parameters"]]
        kernel = SimpleNamespace(name=known["name"], parameters=parameters)
        kernels[known["name"]] = SimpleNamespace(source=known["source"]), kernel
    faults: list[str] = []
    handler = emulated(kernels, [], faults, Order())
    DRIVER.fake_on_launch(handler)
    found = _run(**arguments)
    return {**found, "cause": faults[0]} if faults else found


cuda_build.emit_cuda = emit
run_job.run_here = run
