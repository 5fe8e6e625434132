"""PassContext: our keys beside TVM's, checked names, and when they are read."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest
import tvm

import tvmpass
from tvmpass.compile.context import PassContext, read_options
from tvmpass.core.errors import UsageError
from tvmpass.core.options import Options


def test_without_a_context_the_defaults_hold():
    assert read_options() == (Options(), [])


def test_our_keys_stand_next_to_tvms():
    config = {
        "tvmpass.fusion": "never",
        "tvmpass.min_speedup": 1.5,
        "tvmpass.threads": 2,
        "tvmpass.fast_math": True,
        "relax.backend.use_cuda_graph": True,
    }
    with PassContext(opt_level=2, config=config) as context:
        assert isinstance(context, tvm.transform.PassContext)
        assert context.config["relax.backend.use_cuda_graph"]
        assert context.config["tvmpass.fusion"] == "never"
        options, notes = read_options()
    assert (options.fusion, options.min_speedup, options.threads) == ("never", 1.5, 2)
    assert options.fast_math is True
    assert type(options.fast_math) is bool
    assert options.level == 2
    assert notes == []


def test_pass_lists_are_read_under_either_name():
    with PassContext(disabled_pass=["GrowEpilogue", "dead-code"], required_pass=["FoldConstants"]):
        options, _ = read_options()
    assert options.disabled == ("GrowEpilogue", "dead-code")
    assert options.required == ("FoldConstants",)


@pytest.mark.parametrize("which", ["disabled_pass", "required_pass"])
@pytest.mark.parametrize("name, near", [("GrowEpilog", "GrowEpilogue"), ("dead-cod", "dead-code")])
def test_an_unknown_rule_names_the_nearest(which, name, near):
    with pytest.raises(UsageError, match=f"unknown rule or pass '{name}'; did you mean '{near}'"):
        PassContext(**{which: [name]})


def test_names_of_tvms_passes_and_of_our_planners_are_known():
    PassContext(disabled_pass=["FuseOps", "tirx.StmtSimplify", "PlanFusion"], required_pass=["FoldConstant"])


def test_a_rule_of_the_users_own_may_be_named():
    @dataclass(frozen=True)
    class OnlyHere(tvmpass.SimplifyRule):
        """Do nothing."""

    PassContext(disabled_pass=["OnlyHere", "only-here"])


@pytest.mark.parametrize(
    "arguments, match",
    [
        ({"config": {"tvmpass.fusionn": "auto"}}, "did you mean 'tvmpass.fusion'"),
        ({"config": {"relax.backend.use_cuda_grap": True}}, "did you mean 'relax.backend.use_cuda_graph'"),
        ({"config": {"tvmpass.context": 1}}, "unknown config key"),
        ({"config": {"relay.FuseOps.max_depth": 10}}, "went with Relay: leave it out"),
        ({"opt_level": 4}, r"outside 0\.\.3"),
        ({"config": {"tvmpass.layout": "NCHW8c"}}, "not available yet"),
    ],
)
def test_errors_come_when_the_context_is_made(arguments, match):
    with pytest.raises(UsageError, match=match):
        PassContext(**arguments)


def test_under_a_stock_context_the_defaults_hold_and_a_note_says_so():
    with tvm.transform.PassContext(opt_level=0, disabled_pass=["FuseOps"]):
        options, notes = read_options()
    assert options == Options()
    assert len(notes) == 1
    assert "stock" in notes[0]
    assert "tvmpass.PassContext" in notes[0]


def test_a_stock_context_inside_ours_hides_our_keys():
    with PassContext(config={"tvmpass.fusion": "never"}), tvm.transform.PassContext(opt_level=3):
        options, notes = read_options()
    assert options.fusion == "auto"
    assert notes


def test_the_outer_context_returns():
    with PassContext(config={"tvmpass.fusion": "never"}):
        with PassContext(config={"tvmpass.fusion": "always"}):
            assert read_options()[0].fusion == "always"
        assert read_options()[0].fusion == "never"
    assert read_options()[0].fusion == "auto"


def test_another_thread_has_a_context_of_its_own():
    seen = []
    with PassContext(config={"tvmpass.fusion": "never"}):
        worker = threading.Thread(target=lambda: seen.append(read_options()[0].fusion))
        worker.start()
        worker.join()
    assert seen == ["auto"]


def test_a_low_level_outside_does_not_skip_tvm_passes():
    """Found as other decisions under ``tvm.transform.PassContext(opt_level=0)``."""
    import numpy as np
    from tvm import relax

    from tvmpass.testing.graphs import graph

    weight = relax.const(np.ones((8, 8), "float32"))
    mod = graph(lambda x: relax.op.nn.relu(relax.op.add(relax.op.matmul(x, weight), x)), ((8, 8),))
    plain = tvmpass.build(mod, "llvm").report.to_json()
    with tvm.transform.PassContext(opt_level=0, disabled_pass=["DeadCodeElimination"]):
        under = tvmpass.build(mod, "llvm").report.to_json()
    assert under.pop("notes") and not plain.pop("notes")
    assert under == plain


def test_a_value_of_the_wrong_type_for_a_key_of_tvm():
    with pytest.raises(UsageError, match="tirx.disable_vectorize to have type bool"):
        PassContext(config={"tirx.disable_vectorize": "maybe"})
