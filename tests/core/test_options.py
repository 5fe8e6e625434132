"""Options: every key, its default, and the error for what is not one."""

from __future__ import annotations

import dataclasses
import os

import pytest

from tvmpass.core.errors import UsageError
from tvmpass.core.options import Options


def test_defaults_are_the_documented_ones():
    made = Options.from_config({})
    assert (made.fusion, made.min_speedup, made.layout, made.quantize) == ("auto", 1.03, "auto", "off")
    assert (made.cost_model, made.tuning_logs, made.verify) == ("auto", "lookup", "structure")
    assert (made.tile, made.pipeline, made.unroll, made.tensorize) == ("auto",) * 4
    assert (made.price_budget, made.fast_math, made.seed, made.level) == (300, False, 0, 3)
    assert made.threads == len(os.sched_getaffinity(0))


STEPS = ("tile", "pipeline", "unroll", "tensorize")


def test_keys():
    names = {key.removeprefix("tvmpass.") for key in Options.keys()}  # noqa: SIM118
    assert {n for n in names if n.startswith("tir.")} == {f"tir.{n}" for n in STEPS}
    assert {n for n in names if not n.startswith("tir.")} == {
        "fusion", "min_speedup", "layout", "quantize", "cost_model", "tuning_logs", "verify", "price_budget",
        "fast_math", "threads", "seed",
    }  # fmt: skip


@pytest.mark.parametrize(
    "key, near",
    [("tvmpass.fusio", "fusion"), ("tvmpass.min_speed", "min_speedup"), ("tvmpass.tir.tiles", "tile")],
)
def test_an_unknown_key_names_the_nearest(key, near):
    with pytest.raises(UsageError, match=f"unknown config key '{key}'; did you mean '.*{near}'"):
        Options.from_config({key: 1})


@pytest.mark.parametrize("level", [-1, 4, 99, "3", None])
def test_opt_level_outside_0_to_3(level):
    with pytest.raises(UsageError, match=r"outside 0\.\.3"):
        Options.from_config({}, level)


@pytest.mark.parametrize("layout", ["NCHW8c", "NCHW16c"])
def test_blocked_layouts_are_an_error_for_now(layout):
    with pytest.raises(UsageError, match=f"{layout}.*not available yet"):
        Options.from_config({"tvmpass.layout": layout})


@pytest.mark.parametrize(
    "key, value, match",
    [
        ("fusion", "alway", "expected one of auto, always, never; did you mean 'always'"),
        ("verify", "all", "expected one of structure, off, numeric"),
        ("min_speedup", "much", "could not convert"),
        ("min_speedup", float("nan"), "between"),
        ("min_speedup", 0, "between"),
        ("threads", 0, "at least 1"),
        ("threads", "some", "invalid literal"),
        ("price_budget", "lots", "invalid literal"),
        ("price_budget", -1, "not be negative"),
        ("fast_math", "maybe", "expected true or false"),
        ("seed", None, "int"),
        ("seed", -1, "not be negative"),
        ("cost_model", 3, "PathLike"),
        ("tuning_logs", "/nope", "an existing folder"),
    ],
)
def test_a_wrong_value_names_key_and_value(key, value, match):
    with pytest.raises(UsageError, match=match) as error:
        Options.from_config({f"tvmpass.{key}": value})
    assert str(error.value).startswith(f"tvmpass.{key}={value!r}: ")


@pytest.mark.parametrize("raw, value", [("true", True), (False, False), (1, True), ("0", False)])
def test_booleans_as_people_write_them(raw, value):
    assert Options.from_config({"tvmpass.fast_math": raw}).fast_math is value


def test_text_of_the_command_line_is_converted():
    text = {"min_speedup": "1.5", "price_budget": "7", "threads": "all"}
    made = Options.from_config({f"tvmpass.{key}": value for key, value in text.items()})
    assert (made.min_speedup, made.price_budget) == (1.5, 7)
    assert made.threads >= 1


STEPS = ("tile", "pipeline", "unroll", "tensorize")


def test_keys_of_tvm_are_left_to_tvm():
    assert Options.from_config({"relax.backend.use_cuda_graph": True}) == Options()


def test_options_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options().fusion = "never"
