"""Targets as people type them."""

from __future__ import annotations

import pytest
import tvm

from tvmpass.compile import target as targets
from tvmpass.compile.target import (
    describe_target,
    host_cpu,
    missing_features,
    parse_target,
    required_features,
)
from tvmpass.core.cuda_arch import target_arches
from tvmpass.core.errors import UsageError

HERE = ["llvm", "cpu", " llvm ", "llvm:native", '{"kind": "llvm"}', {"kind": "llvm"}]


@pytest.mark.parametrize("text", HERE)
def test_plain_llvm_is_this_machine(text):
    made = parse_target(text, 3)
    assert made.attrs["mcpu"] == host_cpu()
    assert int(made.attrs["num-cores"]) == 3
    assert describe_target(made) == f"llvm:{host_cpu()}"


def test_a_target_object_gets_the_host_cpu_and_keeps_what_it_says():
    given = tvm.target.Target({"kind": "llvm", "num-cores": 4, "mattr": ["+avx2"]})
    made = parse_target(given, 1)
    assert made.attrs["mcpu"] == host_cpu()
    assert int(made.attrs["num-cores"]) == 4
    assert "+avx2" in list(made.attrs["mattr"])


def test_a_named_cpu():
    made = parse_target("llvm:x86-64-v3", 2)
    assert (made.attrs["mcpu"], int(made.attrs["num-cores"])) == ("x86-64-v3", 2)
    assert "avx2" in required_features(made)
    assert "avx512f" not in required_features(made)
    assert describe_target(made) == "llvm:x86-64-v3"


def test_a_parsed_target_parses_to_itself():
    for text in ("llvm", "llvm:x86-64-v3"):
        made = parse_target(text, 2)
        assert str(parse_target(made, 5)) == str(made)


def test_a_target_for_another_machine_is_left_alone():
    given = tvm.target.Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"})
    assert str(parse_target(given, 2)) == str(given)


@pytest.mark.parametrize(
    "text, match",
    [
        ("llvm:znver33", "unknown CPU 'znver33' for llvm; did you mean 'znver3'"),
        ('{"kind": "llvm", "mcpu": "znver33"}', "unknown CPU 'znver33'"),
        ("lvm", "unknown target 'lvm'; did you mean 'llvm'"),
        ("llvm -mcpu=znver3", "unknown target"),
        ("", "unknown target ''"),
        ("{bad", "not valid JSON"),
        ({"kind": "nope"}, 'Target kind "nope" is not defined'),
        ('{"kind": "c"}', "target kind 'c' is not supported"),
        ("cuda", "no CUDA device answers"),
        ("cuda:90", "unknown CUDA architecture '90'"),
        ("cuda:sm_999", "unknown CUDA architecture 'sm_999'"),
        ("cuda:sm_90,sm_90a", "build it alone"),
    ],
)
def test_bad_targets_are_one_clear_line(text, match):
    with pytest.raises(UsageError, match=match) as error:
        parse_target(text, 1)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "target, arches, shared",
    [
        ("cuda:sm_90", ("sm_90",), 227),
        ("cuda:sm_90,sm_80", ("sm_80", "sm_90"), 163),
        ("cuda:sm_86,sm_90", ("sm_86", "sm_90"), 99),
        ("cuda:sm_90a", ("sm_90a",), 227),
        ({"kind": "cuda", "arch": "sm_80"}, ("sm_80",), 163),
    ],
)
def test_a_cuda_target_keeps_the_smallest_limits(target, arches, shared):
    made = parse_target(target, 1)
    assert target_arches(made) == arches
    assert str(made.attrs["arch"]) == arches[0]
    assert int(made.attrs["max_shared_memory_per_block"]) == shared * 1024
    assert made.host.kind.name == "llvm"
    assert str(parse_target(made, 1)) == str(made)
    assert describe_target(made) == "cuda:" + ",".join(arches)


def test_features_that_the_machine_hides_are_switched_off(monkeypatch):
    implied = required_features(parse_target("llvm", 1))
    assert missing_features(implied) == []
    hidden = implied[-1]
    name = targets._CPUINFO.get(hidden, hidden)
    flags = targets._host_flags() - {name}
    monkeypatch.setattr(targets, "_host_flags", lambda: flags)
    made = parse_target("llvm", 1)
    assert f"-{hidden}" in list(made.attrs["mattr"])
    assert hidden not in required_features(made)
    assert missing_features(required_features(made)) == []


def test_without_cpuinfo_nothing_is_missing(monkeypatch):
    monkeypatch.setattr(targets, "_host_flags", frozenset)
    assert missing_features(["avx512f"]) == []
