"""Rules as values: names, options, printing and parsing."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest

from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.core.rule import ScheduleRule, SimplifyRule, kebab


@dataclass(frozen=True)
class TileMatmul(ScheduleRule):
    """Tile a matmul.

    More text.
    """

    m: int = 4
    ratio: float = 0.5
    packed: bool = False
    name_of: str = "x"


@pytest.mark.parametrize(
    "name, expected",
    [
        ("FuseMatmulBias", "fuse-matmul-bias"),
        ("PreferNHWC", "prefer-nhwc"),
        ("NHWCFirst", "nhwc-first"),
        ("Conv2dTile", "conv2d-tile"),
        ("A", "a"),
    ],
)
def test_kebab(name, expected):
    assert kebab(name) == expected


def test_name_and_summary():
    assert TileMatmul().name == TileMatmul.rule_name() == "tile-matmul"
    assert TileMatmul.summary() == "Tile a matmul."


@pytest.mark.parametrize(
    "rule, text",
    [
        (TileMatmul(), "tile-matmul"),
        (TileMatmul(m=6), "tile-matmul{m=6}"),
        (TileMatmul(m=6, ratio=0.25), "tile-matmul{m=6,ratio=0.25}"),
        (TileMatmul(packed=True, name_of="y"), "tile-matmul{packed=true,name_of=y}"),
    ],
)
def test_prints_and_parses_back(rule, text):
    assert str(rule) == text
    assert TileMatmul.parse_options(text.partition("{")[2].rstrip("}")) == rule


@pytest.mark.parametrize(
    "text, match",
    [
        ("n=4", "tile-matmul: unknown option 'n=4'; options are: m, ratio, packed, name_of"),
        ("m", "unknown option 'm'"),
        ("m=four", "tile-matmul.m: 'four' is not a int"),
        ("packed=yes", "tile-matmul.packed: 'yes' is not a bool"),
    ],
)
def test_wrong_options(text, match):
    with pytest.raises(UsageError, match=match):
        TileMatmul.parse_options(text)


def test_rules_are_frozen_and_compare_by_value():
    assert TileMatmul(m=6) == TileMatmul(m=6)
    with pytest.raises(dataclasses.FrozenInstanceError):
        TileMatmul().m = 3


def test_a_rule_without_pattern_or_match_says_so():
    @dataclass(frozen=True)
    class Empty(SimplifyRule):
        """Do nothing."""

    from tvm import relax

    from tvmpass.core.engine import run_rule
    from tvmpass.testing.graphs import graph

    message = r"rule empty: match raised .*Empty defines neither pattern\(\) nor match\(\)"
    with pytest.raises(TvmpassError, match=message):
        run_rule(Empty(), graph(lambda x: relax.op.exp(x), ((3,),)))


def test_a_simplify_rule_is_a_tvm_pass_by_its_class_name():
    import tvm
    from tvm import relax

    from relay_passes.simplify import EliminateIdentities
    from tvmpass.testing.graphs import graph, operators

    mod = graph(lambda x: relax.op.exp(relax.op.negative(relax.op.negative(x))), ((3,),))
    rule = EliminateIdentities()
    assert operators(rule(mod)) == ["negative", "exp"]  # what is dead stays for its own rule
    steps = tvm.transform.Sequential([rule, relax.transform.DeadCodeElimination()])
    assert operators(steps(mod)) == ["exp"]
    with tvm.transform.PassContext(disabled_pass=["EliminateIdentities"]):
        assert operators(steps(mod)) == ["negative", "negative", "exp"]
    with tvm.transform.PassContext(opt_level=0):
        assert operators(steps(mod)) == ["negative", "negative", "exp"]
