"""A built model: run it, export it to one file, load it again.

An exported file is a shared library; loading it runs its code.  It carries a
block of JSON (inputs, outputs, CPU features, report) that is read before any
of that code, so that a file built for another CPU is refused, not executed.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvmpass.core.cuda_arch import capability
from tvmpass.core.errors import TvmpassError, UsageError, last_line, nearest
from tvmpass.core.files import replacing
from tvmpass.core.quiet import quiet
from tvmpass.core.report import Report

from .codegen import Compiled, link
from .deep_stack import call_deep
from .host_compiler import host_compiler

_MAGIC = b"\x00tvmpass-artifact-1\x00"
_MAX_METADATA = 256 << 20
SCHEMA = 1


@dataclass(frozen=True)
class InputInfo:
    """Name, dims (ints, or names of symbolic dims) and dtype of one input."""

    name: str
    shape: tuple[int | str, ...] | None
    dtype: str | None


@dataclass(frozen=True)
class Metadata:
    """What an artifact says about itself."""

    inputs: tuple[InputInfo, ...]
    outputs: tuple[str, ...]
    target: str
    kind: str
    features: tuple[str, ...]
    tvm: str
    recursive: bool = False
    """Whether the model calls itself, more than a loop does, and needs a large stack."""

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Metadata:
        if data.get("schema") != SCHEMA:
            raise TvmpassError(f"artifact schema {data.get('schema')!r} is not supported; expected {SCHEMA}")
        inputs = tuple(
            InputInfo(str(i["name"]), None if i["shape"] is None else tuple(i["shape"]), i["dtype"])
            for i in data["inputs"]
        )
        for entry in inputs:
            _check_info(entry)
        if data["kind"] not in ("llvm", "cuda"):
            raise ValueError(f"unknown kind of target {data['kind']!r}")
        outputs, features = tuple(data["outputs"]), tuple(map(str, data["features"]))
        recursive = bool(data.get("recursive", False))
        made = cls(inputs, outputs, str(data["target"]), data["kind"], features, data["tvm"], recursive)
        for arch in made.arches:
            capability(arch)
        return made

    @property
    def arches(self) -> tuple[str, ...]:
        """The CUDA architectures of the target; none where it is a CPU."""
        _, _, detail = self.target.partition(":")
        return tuple(detail.split(",")) if self.kind == "cuda" else ()


def _check_info(info: InputInfo) -> None:
    """Raise `ValueError` or `TypeError` for a dtype or a dimension that cannot be."""
    if info.dtype is not None:
        np.dtype(info.dtype)
    for dim in info.shape or ():
        if not (isinstance(dim, str) and dim.isprintable()) and not (isinstance(dim, int) and dim >= 0):
            raise ValueError(f"input {info.name!r} has the dimension {dim!r}")


class Artifact:
    """A built module with its inputs, outputs and report.

    ``report`` is the `Report` of the build.
    """

    def __init__(
        self,
        metadata: Metadata,
        report: Report,
        *,
        compiled: Compiled | None = None,
        path: Path | None = None,
    ):
        self.metadata = metadata
        self.report = report
        self.path = path
        """The file it was loaded from; None for one built in this process."""
        self._compiled = compiled

    @cached_property
    def executable(self):
        """The TVM module that a `relax.VirtualMachine` runs, linked or loaded on first use.

        Raises `TvmpassError` for a CUDA artifact where CUDA modules cannot be loaded.
        """
        if self.metadata.kind == "cuda":
            self._need("CUDA runtime")
        if self.path is not None:
            return _load(self.path)
        with tempfile.TemporaryDirectory() as folder, quiet():
            output = Path(folder) / "model.so"
            self._link(output)
            # The loader maps the file; it may go once it is open.
            return _load(output)

    def load(self) -> None:
        """Link or load the executable now, not at the first run."""
        _ = self.executable

    def _link(self, output: Path, extra: Sequence[Path] = ()) -> None:
        if self._compiled is None:
            raise TvmpassError("this artifact was loaded from a file: copy that file instead of exporting it")
        try:
            link(self._compiled, output, host_compiler("linking an artifact needs"), extra)
        except TvmpassError:
            raise
        except Exception as error:  # TVM raises several classes
            raise TvmpassError(f"linking failed: {last_line(error)}") from error

    def _need(self, what: str) -> None:
        """Raise `TvmpassError` where the CUDA runtime, or a fitting device, is missing."""
        from .cuda_runtime import check_device, ensure_cuda_runtime

        try:
            with quiet():
                ensure_cuda_runtime()
                if what == "device":
                    check_device(self.arches)
        except TvmpassError as error:
            raise TvmpassError(f"{self.path or 'the artifact'} was built for CUDA: {error}") from None

    @property
    def arches(self) -> tuple[str, ...]:
        """The CUDA architectures it holds code for; none where it runs on the CPU."""
        return self.metadata.arches

    @property
    def input_info(self) -> tuple[InputInfo, ...]:
        return self.metadata.inputs

    @property
    def output_names(self) -> tuple[str, ...]:
        return self.metadata.outputs

    def vm(self, device: Any = None) -> relax.VirtualMachine:
        """Return a new virtual machine on ``device`` (default: the target's first)."""
        if device is None:
            device = self._device
        elif isinstance(device, str):
            device = tvm.device(device, 0)
        if self.metadata.kind == "cuda":
            self._need("device")
        with quiet():
            return relax.VirtualMachine(self.executable, device)

    @property
    def _device(self):
        return tvm.cpu() if self.metadata.kind == "llvm" else tvm.device(self.metadata.kind, 0)

    @cached_property
    def _default_vm(self) -> relax.VirtualMachine:
        return self.vm()

    def run(self, inputs: Mapping[str, Any] | None = None, **named: Any) -> list[np.ndarray]:
        """Run once; return the outputs as arrays in output order.

        ``inputs`` maps names to arrays of the input's shape and dtype (nested
        tuples of outputs are flattened).  Arrays are made contiguous where they
        are not; a wrong name, shape or dtype raises `UsageError`.
        """
        arguments = self.check_inputs({**(inputs or {}), **named})
        vm = self._default_vm
        try:
            tensors = [tvm.runtime.tensor(a, self._device) for a in arguments]
            main = vm["main"]
            result = call_deep(lambda: main(*tensors)) if self.metadata.recursive else main(*tensors)
        except Exception as error:  # TVM raises several classes from inside the VM
            raise TvmpassError(f"running the model failed: {last_line(error)}") from error
        return flatten(result)

    def check_inputs(self, given: Mapping[str, Any]) -> list[np.ndarray]:
        """Return the inputs in call order, checked; raise `UsageError` otherwise."""
        names = [i.name for i in self.input_info]
        for name in given:
            if name not in names:
                hint = nearest(name, names)
                raise UsageError(f"unknown input {name!r}{hint}; inputs are: {', '.join(names)}")
        missing = [n for n in names if n not in given]
        if missing:
            raise UsageError(f"missing input{'s' if len(missing) > 1 else ''}: {', '.join(missing)}")
        symbols: dict[str, tuple[int, str]] = {}
        return [_check_input(info, given[info.name], symbols) for info in self.input_info]

    def export(self, path: str | os.PathLike) -> None:
        """Write one shared library; it runs with TVM's runtime alone.

        Needs a C++ compiler to link.  Raises `TvmpassError` where there is none
        or the file cannot be written; nothing half-written is left.
        """
        payload = zlib.compress(
            json.dumps({"metadata": self.metadata.to_json(), "report": self.report.to_json()}).encode(), 6
        )
        with replacing(path) as temporary, tempfile.TemporaryDirectory() as folder:
            source = _metadata_source(payload, Path(folder))
            output = Path(folder) / "artifact.so"
            with quiet():
                self._link(output, [source])
            shutil.copyfile(output, temporary)


def load_artifact(path: str | os.PathLike) -> Artifact:
    """Load an exported artifact. This runs the file's code once its header is accepted.

    Raises `TvmpassError` for a file that tvmpass did not write, that is cut
    short, or that needs CPU features this machine lacks.  A CUDA artifact is
    only read and checked here, on any machine; it is loaded when it is run.
    """
    path = Path(path)
    data = _read_metadata(path)
    try:
        metadata = Metadata.from_json(data["metadata"])
        report = Report.from_json(data["report"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise TvmpassError(f"{path}: the artifact's header is damaged ({last_line(error)})") from None
    from .target import missing_features

    missing = missing_features(list(metadata.features))
    if missing:
        raise TvmpassError(
            f"{path} was built for {metadata.target} and needs {', '.join(missing)}, "
            "which this CPU does not have; build again with --target llvm"
        )
    artifact = Artifact(metadata, report, path=path)
    if metadata.kind == "cuda":
        from .cuda_library import check_library

        check_library(path, artifact.arches)
    else:
        artifact.load()
    return artifact


def read_artifact_report(path: str | os.PathLike) -> Any:
    """Return the report in an artifact as JSON, unchecked; nothing of the file is run.

    Raises `TvmpassError` for a file that tvmpass did not write or that is cut short.
    """
    data = _read_metadata(Path(path))
    return data.get("report") if isinstance(data, dict) else None


def _load(path: Path):
    try:
        with quiet():
            return tvm.runtime.load_module(str(path.resolve()))
    except Exception as error:  # TVM raises several classes
        raise TvmpassError(f"{path} cannot be loaded: {last_line(error)}") from error


def _read_metadata(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            start = view.rfind(_MAGIC)
            if start < 0:
                raise TvmpassError(f"{path} is not a tvmpass artifact (no header in it)")
            start += len(_MAGIC)
            size = int.from_bytes(view[start : start + 8], "little")
            payload = view[start + 8 : start + 8 + size]
            _check_complete(path, view)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "the file is empty"
        raise TvmpassError(f"cannot read {path}: {reason}") from None
    if len(payload) != size:
        raise TvmpassError(f"{path} is cut short")
    try:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(payload, _MAX_METADATA)
        return json.loads(text)
    except (zlib.error, json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        raise TvmpassError(f"{path}: the artifact's header is damaged") from None


def _check_complete(path: Path, view: mmap.mmap) -> None:
    """Refuse a truncated ELF file: the loader would map past its end and crash."""
    if view[:4] != b"\x7fELF" or len(view) < 64:
        raise TvmpassError(f"{path} is not a shared library")
    section_table = int.from_bytes(view[40:48], "little")
    entries = int.from_bytes(view[58:60], "little") * int.from_bytes(view[60:62], "little")
    if section_table + entries > len(view):
        raise TvmpassError(f"{path} is cut short")


def _metadata_source(payload: bytes, folder: Path) -> Path:
    blob, source = folder / "metadata.bin", folder / "metadata.s"
    blob.write_bytes(_MAGIC + len(payload).to_bytes(8, "little") + payload)
    source.write_text(
        f'.section .rodata.tvmpass,"a"\n.globl tvmpass_artifact\ntvmpass_artifact:\n.incbin "{blob}"\n'
        '.section .note.GNU-stack,"",%progbits\n'
    )
    return source


def _check_input(info: InputInfo, value: Any, symbols: dict[str, tuple[int, str]]) -> np.ndarray:
    array = np.asarray(value)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if info.dtype is not None and array.dtype.name != info.dtype:
        raise UsageError(f"input {info.name!r} has dtype {array.dtype.name}, the model needs {info.dtype}")
    if info.shape is not None:
        wanted = "x".join(str(d) for d in info.shape) or "scalar"
        found = "x".join(str(d) for d in array.shape) or "scalar"
        fits = len(array.shape) == len(info.shape) and all(
            not isinstance(want, int) or want == have for want, have in zip(info.shape, array.shape)
        )
        if not fits:
            raise UsageError(f"input {info.name!r} has shape {found}, the model needs {wanted}")
        for want, have in zip(info.shape, array.shape):
            if isinstance(want, str) and want.isidentifier():
                first, where = symbols.setdefault(want, (have, info.name))
                if first != have:
                    other = f"{have} in {info.name!r}"
                    raise UsageError(f"dim {want!r} is {first} in input {where!r} but {other}")
    return np.ascontiguousarray(array).reshape(array.shape)


def flatten(result: Any) -> list[np.ndarray]:
    """Return the tensors of a VM result as arrays, nested tuples flattened in order."""
    if hasattr(result, "numpy"):
        return [result.numpy()]
    if isinstance(result, (int, float, bool)):
        return [np.asarray(result)]
    if isinstance(result, tvm.runtime.ShapeTuple):
        return [np.asarray(list(result), "int64")]
    return [array for item in result for array in flatten(item)]
