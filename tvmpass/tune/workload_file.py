"""A workload as a file: how one process hands it to another."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx

from tvmpass.compile.codegen import kernel_config
from tvmpass.core.options import Options

from .work import Workload

NAME = "workload.json"


@dataclass(frozen=True)
class Unit:
    """What a child needs of a workload; ``config`` are TVM's own keys in force."""

    function: tirx.PrimFunc
    target: tvm.target.Target
    options: Options
    device_class: str
    config: dict[str, Any]

    def context(self):
        """Return the PassContext under which its kernels are compiled."""
        return tvm.transform.PassContext(opt_level=3, config=self.config)


def target_text(target: tvm.target.Target) -> str:
    """Return a target as JSON text."""
    return json.dumps(_containers(target.export()))


def _containers(value: Any) -> Any:
    """Return a value of TVM's containers as plain JSON values."""
    if isinstance(value, (str, bool, int, float)) or value is None:
        return value
    if hasattr(value, "items"):
        return {str(k): _containers(v) for k, v in value.items()}
    if hasattr(value, "__iter__"):
        return [_containers(v) for v in value]
    return str(value)


def write_workload(workload: Workload, folder: Path) -> None:
    """Write what children need of ``workload`` into ``folder``."""
    document = {
        "function": tvm.ir.save_json(workload.function),
        "target": target_text(workload.target),
        "options": dataclasses.asdict(workload.options),
        "device_class": workload.device_class,
        "config": {key: _plain(value) for key, value in kernel_config(in_place=True).items()},
    }
    (folder / NAME).write_text(json.dumps(document))


def read_workload(folder: Path) -> Unit:
    """Read what `write_workload` wrote."""
    document = json.loads((folder / NAME).read_text())
    options = document["options"]
    for name in ("disabled", "required"):
        options[name] = tuple(options[name])
    return Unit(
        tvm.ir.load_json(document["function"]),
        tvm.target.Target(json.loads(document["target"])),
        Options(**options),
        document["device_class"],
        document["config"],
    )


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str)) else int(value)
