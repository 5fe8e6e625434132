"""Targets as people type them, turned into TVM targets."""

from __future__ import annotations

import functools
import json
from typing import Any

import tvm

from tvmpass.core.cuda_arch import (
    ARCHES,
    MAX_THREADS_PER_BLOCK,
    WARP,
    capability,
    smallest,
    target_arches,
)
from tvmpass.core.errors import UsageError, nearest
from tvmpass.core.quiet import quiet

_X86_LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")

# Features of the host that code generation uses and a hypervisor may hide.
# LLVM's names to those of /proc/cpuinfo where they differ.
_CPUINFO = {
    "sse3": "pni", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "cx16": "cx16", "lzcnt": "abm", "bmi": "bmi1",
    "avx512vnni": "avx512_vnni", "avx512vbmi2": "avx512_vbmi2", "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq", "avx512bf16": "avx512_bf16", "avx512fp16": "avx512_fp16",
    "avxvnni": "avx_vnni", "avx512vp2intersect": "avx512_vp2intersect",
    "amx-tile": "amx_tile", "amx-int8": "amx_int8", "amx-bf16": "amx_bf16",
}  # fmt: skip
_CHECKED = (
    "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt",
    "movbe",
    "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512ifma", "avx512vbmi", "avx512vbmi2",
    "avx512vnni", "avx512bitalg", "avx512vpopcntdq", "avx512bf16", "avx512fp16", "avxvnni",
    "amx-tile", "amx-int8", "amx-bf16", "gfni", "vaes", "vpclmulqdq",
)  # fmt: skip


def parse_target(target: Any, threads: int) -> tvm.target.Target:
    """Return a TVM target for what a user typed.

    ``llvm`` is this machine's CPU; ``llvm:x86-64-v3`` (or any LLVM CPU name)
    another one; ``cuda:sm_80,sm_90`` NVIDIA devices of these architectures; a
    ``Target``, a dict, JSON text or a TVM tag is taken as it is, with the host
    CPU and thread count filled in where it names none.  Raises
    `UsageError` for a target that is not known.
    """
    if isinstance(target, tvm.target.Target):
        return _complete(target, threads)
    if isinstance(target, dict):
        return _complete(_make(target, str(target)), threads)
    text = str(target).strip()
    if text.startswith("{"):
        try:
            return _complete(_make(json.loads(text), text), threads)
        except json.JSONDecodeError as error:
            raise UsageError(f"target {text!r} is not valid JSON: {error}") from None
    kind, _, detail = text.partition(":")
    if kind in ("llvm", "cpu"):
        return _cpu(detail, threads)
    if kind == "cuda":
        return _cuda(detail)
    if "/" in text:
        return _complete(_make(text, text), threads)
    hint = nearest(kind, ("llvm", "cuda"))
    raise UsageError(f"unknown target {text!r}{hint}; try llvm, llvm:x86-64-v3 or cuda:sm_90")


def _make(spec: Any, text: str) -> tvm.target.Target:
    try:
        return tvm.target.Target(spec)
    except Exception as error:  # TVM raises several classes here
        line = [ln.strip() for ln in str(error).splitlines() if ln.strip()][-1]
        raise UsageError(f"target {text!r} is not valid: {line[:200]}") from None


def _complete(target: tvm.target.Target, threads: int) -> tvm.target.Target:
    """Fill in what ``target`` leaves open: the host CPU and the thread count."""
    kind = target.kind.name
    if kind == "cuda":
        return _cuda(",".join(target_arches(target)))
    if kind != "llvm":
        raise UsageError(f"target kind {kind!r} is not supported; use llvm")
    spec = {name: _plain(value) for name, value in dict(target.attrs).items()}
    here = str(tvm.target.codegen.llvm_get_system_triple())
    if spec.pop("mtriple", here) != here:
        return target
    return _local(spec, threads)


def _plain(value: Any) -> Any:
    if isinstance(value, (str, int)):
        return value
    return [str(item) for item in value]


def _cpu(name: str, threads: int) -> tvm.target.Target:
    return _local({"mcpu": name} if name not in ("", "native") else {}, threads)


def _local(spec: dict[str, Any], threads: int) -> tvm.target.Target:
    """Make a target for CPUs like this one from its attributes."""
    name = spec.get("mcpu")
    if name:
        known = [str(n) for n in tvm.target.codegen.llvm_get_cpu_archlist(_make({"kind": "llvm"}, "llvm"))]
        if name not in known:
            raise UsageError(f"unknown CPU {name!r} for llvm{nearest(name, [*known, *_X86_LEVELS])}")
        return _make({"kind": "llvm", "num-cores": threads, **spec}, f"llvm:{name}")
    made: dict[str, Any] = {"kind": "llvm", "num-cores": threads, **spec, "mcpu": host_cpu()}
    hidden = missing_features(required_features(_make(made, "llvm")))
    if hidden:  # a hypervisor may hide what the CPU model implies
        made["mattr"] = [*made.get("mattr", ()), *(f"-{feature}" for feature in hidden)]
    return _make(made, "llvm")


def _cuda(detail: str) -> tvm.target.Target:
    """Make a target for one or more architectures: scheduled for the smallest limits of all."""
    if not detail:
        detail = _device_arch()
    names = list(dict.fromkeys(name.strip() for name in detail.split(",")))
    for name in names:
        if name not in ARCHES:
            hint = nearest(name, ARCHES) or f"; known are {', '.join(ARCHES)}"
            raise UsageError(f"unknown CUDA architecture {name!r}{hint}")
    alone = [name for name in names if not name[-1].isdigit()]
    if alone and len(names) > 1:
        raise UsageError(f"target cuda:{detail}: code for {alone[0]} runs on nothing else; build it alone")
    names.sort(key=capability)
    limits = smallest(names)
    spec = {
        "kind": "cuda",
        "arch": limits.name,
        "keys": ["cuda", "gpu", *names],
        "max_threads_per_block": MAX_THREADS_PER_BLOCK,
        "max_shared_memory_per_block": limits.shared_per_block,
        "thread_warp_size": WARP,
        "host": {"kind": "llvm", "mcpu": _host_baseline()},
    }
    return _make(spec, f"cuda:{detail}")


def _device_arch() -> str:
    """Return the architecture of this machine's first CUDA device; `UsageError` without one."""
    with quiet():
        device = tvm.cuda(0)
        try:
            version = str(device.compute_version) if device.exist else ""
        except Exception:  # TVM raises where its CUDA runtime cannot be loaded
            version = ""
    if not version:
        reason = "no CUDA device answers on this machine"
        raise UsageError(f"target 'cuda' asks the device, and {reason}; name one: cuda:sm_80 or cuda:sm_90")
    return f"sm_{version.replace('.', '')}"


def _host_baseline() -> str:
    """Return the plainest CPU of this machine's architecture: the host only launches kernels."""
    return "x86-64" if str(tvm.target.codegen.llvm_get_system_triple()).startswith("x86_64") else "generic"


@functools.cache
def host_cpu() -> str:
    """Return LLVM's name of this machine's CPU."""
    return str(tvm.target.codegen.llvm_get_system_cpu())


def required_features(target: tvm.target.Target) -> list[str]:
    """Return the instruction-set features that code for ``target`` may use."""
    if target.kind.name != "llvm":
        return []
    features = {str(f) for f in tvm.target.codegen.llvm_get_cpu_features(target)}
    return [name for name in _CHECKED if name in features]


def missing_features(features: list[str]) -> list[str]:
    """Return those of ``features`` that this machine's CPU does not report."""
    flags = _host_flags()
    if not flags:
        return []
    return [name for name in features if _CPUINFO.get(name, name) not in flags]


@functools.cache
def _host_flags() -> frozenset[str]:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.startswith(("flags", "Features")):
                    return frozenset(line.partition(":")[2].split())
    except OSError:
        pass  # not Linux, or hidden: nothing can be checked
    return frozenset()


def describe_target(target: tvm.target.Target) -> str:
    """Return the short form that a report shows: ``llvm:znver5``."""
    attrs = dict(target.attrs)
    detail = ",".join(target_arches(target)) if target.kind.name == "cuda" else attrs.get("mcpu")
    return f"{target.kind.name}:{detail}" if detail else target.kind.name
