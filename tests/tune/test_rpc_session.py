"""What a server's machine is asked before anything runs on it."""

import re
from types import SimpleNamespace

import pytest

from tvmpass.compile.target import parse_target
from tvmpass.tune.rpc_session import facts_of, lives, unfit

X86 = "x86_64-unknown-linux-gnu"


class Session:
    """A server's machine as a session shows it; without ``cpu`` it has no compiler to ask."""

    def __init__(
        self, triple: str = X86, cpu: str | None = "x86-64-v4", gpu: str | None = None, up: bool = True
    ):
        self.told = {"target.llvm_get_system_triple": triple, "target.llvm_get_system_cpu": cpu}
        self.gpu, self.up = gpu, up

    def get_function(self, name: str):
        if not self.up:
            raise RuntimeError("code=kShutdown")
        if self.told.get(name, "") is None:
            raise AttributeError(name)
        return lambda: self.told.get(name, "")

    def cuda(self, index: int):
        return SimpleNamespace(
            exist=self.gpu is not None,
            compute_version=self.gpu,
            multi_processor_count=132,
            device_name="H100",
        )


@pytest.mark.parametrize(
    "target, session, expected",
    [
        ("llvm:x86-64-v4", Session(), None),
        ("llvm:x86-64-v3", Session(), None),
        ("llvm:x86-64-v4", Session(cpu=None), None),
        ("llvm:x86-64-v4", Session(cpu="x86-64-v3"), r"its CPU \(x86-64-v3\) lacks .*avx512f"),
        ("llvm:x86-64-v3", Session("aarch64-linux-gnu", "neoverse-n1"), "its CPU is aarch64, not x86_64"),
        ("cuda:sm_90", Session(gpu="9.0"), None),
        ("cuda:sm_80,sm_90", Session(gpu="8.6"), None),
        ("cuda:sm_90", Session(gpu="8.0"), "its GPU is sm_80, not sm_90"),
        ("cuda:sm_90", Session(), "no CUDA device answers there"),
    ],
)
def test_a_machine_that_cannot_run_the_code_is_told_apart(target, session, expected):
    found = unfit(session, parse_target(target, 1))
    if expected is None:
        assert found is None
    else:
        assert re.search(expected, found)


def test_facts_for_the_header():
    assert facts_of(Session(), str(parse_target("llvm", 1))) == {"machine": "x86_64", "mcpu": "x86-64-v4"}
    assert facts_of(Session(cpu=None), str(parse_target("llvm", 1))) == {}
    assert facts_of(Session(gpu="9.0"), str(parse_target("cuda:sm_90", 1))) == {"sms": 132, "name": "H100"}


def test_whether_a_session_still_answers():
    assert lives(Session())
    assert not lives(Session(up=False))
