"""The rules and tests that docs/write_a_rule.md shows work as printed."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tvm import relax

from tvmpass.testing.graphs import graph
from tvmpass.testing.rule_checks import proposals

PAGE = Path(__file__).parents[2] / "docs" / "write_a_rule.md"


@pytest.fixture(scope="module")
def shown():
    """Run the page's Python blocks, in order, in one module."""
    module = ModuleType("shown_in_write_a_rule")
    sys.modules[module.__name__] = module
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M):
        exec(compile(block, str(PAGE), "exec"), module.__dict__)  # our own documentation
    yield module.__dict__
    del sys.modules[module.__name__]


@pytest.mark.parametrize("name", ["test_applies", "test_refuses_sigmoid_read_elsewhere", "test_same_numbers"])
def test_page_tests_pass(shown, name):
    shown[name]()


def test_page_proposal(shown):
    weight = relax.const(np.ones((4, 4), "float32"))
    mod = graph(lambda x, b: relax.op.add(relax.op.matmul(x, weight), b), ((3, 4),), ((4,),))
    assert list(proposals(shown["FuseMatmulBias"](), mod).values()) == [["matmul + add"]]
