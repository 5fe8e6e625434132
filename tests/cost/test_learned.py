"""The learned model: fits a known truth, abstains elsewhere, repeats byte for byte."""

import json
import time

import numpy as np
import pytest

from tests.cost.records import CLASS, kernel_line, synthetic, time_us, vector, write
from tvmpass.core.errors import TvmpassError
from tvmpass.cost import training
from tvmpass.cost.analytic import analytic_us
from tvmpass.cost.device import Device
from tvmpass.cost.learned import CostModel, pair_vector, shipped_model
from tvmpass.cost.training import train

GRAPHS = 90


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return write(tmp_path_factory.mktemp("logs") / f"{CLASS}.jsonl", synthetic(GRAPHS))


@pytest.fixture(scope="module")
def result(records):
    return train([records], CLASS)


def test_finds_the_truth(result):
    launch = result.model.device.launch_us
    for outputs, share in ((2_000, 1.0), (20_000, 0.0), (90_000, 1.0)):
        x = vector(outputs, outputs * share)
        estimate = result.model.latency(x, "elementwise")
        assert estimate.mean == pytest.approx(time_us(x) + launch, rel=0.15)
        assert 0 < estimate.low <= estimate.mean <= estimate.high
        assert estimate.source == f"learned:{result.model.id}"


def test_pairwise_tells_gain_from_loss(result):
    outputs = 50_000.0
    gain = [vector(outputs, outputs), vector(outputs, 0.0)]
    loss = [vector(outputs / 64, outputs / 64), vector(outputs, 0.0)]
    fused = vector(outputs, outputs)
    mean, sd = result.model.pairwise(fused, gain)
    assert mean + sd < 0
    assert mean == pytest.approx(np.log(time_us(fused) / sum(map(time_us, gain))), abs=0.15)
    mean, sd = result.model.pairwise(fused, loss)
    assert mean - sd > 0.5


def test_metrics_follow_the_schema(result):
    metrics = result.metrics
    assert (metrics["schema"], metrics["device_class"], metrics["records"]) == (1, CLASS, 3 * GRAPHS)
    assert metrics["spearman"] > 0.98
    assert metrics["median_relative_error"] < 0.1
    assert metrics["decision_accuracy"] >= 0.95
    assert 1.0 <= metrics["regret_geomean"] <= 1.02
    assert metrics["regret_geomean"] <= metrics["regret_worst"]
    assert metrics["regret_geomean"] < min(metrics["regret_always"], metrics["regret_never"])
    json.dumps(metrics, allow_nan=False)


def test_every_family_is_left_out_once(tmp_path):
    lines = synthetic(50)
    for line in lines[: len(lines) // 2]:
        if "kind" in line:
            line["kind"] = "reduce"
    metrics = train([write(tmp_path / "a.jsonl", lines)], CLASS).metrics
    assert set(metrics["leave_family_out"]) >= {"spearman", "decision_accuracy", "regret_geomean"}
    families = metrics["families"]
    assert set(families) == {"elementwise", "reduce"}
    assert sum(f["records"] for f in families.values()) == metrics["records"]
    assert sum(f["decisions"] for f in families.values()) == metrics["leave_family_out"]["decisions"]
    for figures in (metrics, *families.values()):
        assert figures["accuracy_always"] + figures["accuracy_never"] == pytest.approx(1.0, abs=1e-4)
        assert min(figures[f"regret_{way}"] for way in ("geomean", "always", "never")) >= 1.0


def test_abstains_from_an_unseen_kind(result):
    x = vector(5_000.0, 0.0)
    assert result.model.latency(x, "elementwise") is not None
    assert result.model.latency(x, "conv") is None
    assert result.model.pairwise(x, [x, x], "conv") is None


def test_abstains_outside_the_range(result):
    assert result.model.latency(vector(5e7, 0.0)) is None
    huge = vector(5e7, 5e7)
    assert result.model.pairwise(huge, [huge, huge]) is None


def test_abstains_between_what_it_has_seen(result):
    """Within every single range, but a mixture that no record comes near."""
    small, large = vector(600.0, 0.0), vector(190_000.0, 190_000.0)
    mixed = np.where(np.arange(len(small)) % 2, small, large)
    assert result.model.latency(mixed) is None


def test_most_of_what_is_like_the_data_is_answered(result):
    fresh = [line for line in synthetic(60, seed=7) if "features" in line]
    answered = [result.model.latency(np.array(line["features"], np.float32), "elementwise") for line in fresh]
    assert sum(a is not None for a in answered) >= 0.95 * len(answered)


def test_training_repeats(records, result, tmp_path):
    again = train([records], CLASS)
    result.model.save(tmp_path / "a.json")
    again.model.save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert again.metrics == result.metrics


def test_saved_model_is_the_same_model(result, tmp_path):
    path = tmp_path / "model.json"
    result.model.save(path)
    loaded = CostModel.load(path)
    assert loaded.id == result.model.id
    x, y = vector(9_000.0, 9_000.0), vector(9_000.0, 0.0)
    assert loaded.latency(x) == result.model.latency(x)
    assert loaded.pairwise(x, [y, y]) == result.model.pairwise(x, [y, y])


def test_trees_agree_with_xgboost(result):
    """What is saved is XGBoost's JSON, and numpy walks it as XGBoost does."""
    import xgboost

    rng = np.random.default_rng(0)
    lines = [line for line in synthetic(30, seed=3) if "features" in line]
    rows = np.array([line["features"] for line in lines], np.float32)
    rows += rng.normal(0, 0.05, rows.shape).astype(np.float32)
    part = result.model.document["latency"]
    ours = np.stack([result.model._latency.ensemble.predict(row) for row in rows], axis=1)
    for booster, mine in zip(part["boosters"], ours):
        theirs = xgboost.Booster()
        theirs.load_model(bytearray(json.dumps(booster).encode()))
        np.testing.assert_allclose(mine, theirs.predict(xgboost.DMatrix(rows)), rtol=0, atol=2e-6)


def test_prediction_is_quick(result):
    x, y = vector(9_000.0, 9_000.0), vector(9_000.0, 0.0)
    begin = time.perf_counter()
    for _ in range(20):
        result.model.latency(x)
        result.model.pairwise(x, [y, y])
    assert (time.perf_counter() - begin) / 40 < 0.02  # a guard against a blunder, not a benchmark


def test_another_thread_count_is_reached_through_the_analytic_ratio(result):
    two = CostModel(result.model.document, units=2)
    x = vector(20_000.0, 20_000.0)
    one, other = result.model.latency(x), two.latency(x)
    assert other.mean == pytest.approx(one.mean, rel=1e-6)  # parallel extent 1: nothing to gain
    assert other.high - other.low > one.high - one.low
    ratio, wider = (m.pairwise(x, [x, vector(20_000.0, 0.0)]) for m in (result.model, two))
    assert ratio[0] == wider[0] and ratio[1] < wider[1] < ratio[1] + 0.04


def test_shipped_model_is_found_by_instruction_set(result, tmp_path):
    result.model.save(tmp_path / f"{CLASS}.model.json")
    assert shipped_model(CLASS, tmp_path).id == result.model.id
    assert shipped_model("x86-64-v3-t4", tmp_path).units == 4
    assert shipped_model("x86-64-v4-t1", tmp_path) is None
    assert shipped_model("x86-64-v3-vnni-t1", tmp_path) is None


def test_too_few_records_is_one_clear_error(tmp_path):
    path = write(tmp_path / "a.jsonl", [kernel_line("k", vector(10.0, 0.0)), "broken"])
    with pytest.raises(TvmpassError, match=r"1 usable records .* at least 50 .*collect_cpu"):
        train([path], CLASS)


@pytest.mark.parametrize(
    "change, why",
    [
        (lambda d: d.update(schema=7), "schema 7"),
        (lambda d: d.update(feature_version=0), "train it anew"),
        (lambda d: d.pop("latency"), "latency"),
        (lambda d: d.update(families="evil"), "not a model file"),
        (lambda d: d.update(device="evil"), "not a model file"),
        (lambda d: d["device"].update(ghz=-1.5), "ghz is -1.5"),
        (lambda d: d.update(device_class="evil"), "device class 'evil'"),
        (lambda d: d["latency"]["domain"].update(columns=[9999] * 3), "do not fit"),
        (lambda d: _tree(d).update(left_children=[0] * len(_tree(d)["left_children"])), "out of order"),
        (lambda d: _tree(d).update(split_indices=[9999] * len(_tree(d)["split_indices"])), "outside"),
        (lambda d: _tree(d).update(split_conditions=[0.0]), "differ in length"),
        (lambda d: d["latency"].update(boosters=[]), "without trees|concatenate"),
    ],
)
def test_a_damaged_model_is_one_clear_error(result, tmp_path, change, why):
    document = json.loads(json.dumps(result.model.document))
    change(document)
    path = tmp_path / "model.json"
    path.write_text(json.dumps(document))
    with pytest.raises(TvmpassError, match=why):
        CostModel.load(path)


def _tree(document):
    trees = document["latency"]["boosters"][0]["learner"]["gradient_booster"]["model"]["trees"]
    return next(tree for tree in trees if len(tree["left_children"]) > 1)


def test_a_file_that_is_no_model_is_one_clear_error(tmp_path):
    path = tmp_path / "model.json"
    for content, why in (("not json", "not JSON"), ("[]", "not a JSON object"), ("{}", "schema None")):
        path.write_text(content)
        with pytest.raises(TvmpassError, match=why):
            CostModel.load(path)
    with pytest.raises(TvmpassError, match="No such file"):
        CostModel.load(tmp_path / "none.json")


def test_pair_vector_compares_with_the_sum():
    device = Device()
    x = vector(1000.0, 1000.0)
    made = pair_vector(x, [x, x], device)
    assert len(made) == len(set(range(len(made))))
    np.testing.assert_allclose(made[: len(x)], x, rtol=0, atol=0)
    own = analytic_us(x, device)
    assert made[-5] == 2.0
    assert made[-2] == pytest.approx(np.log(own / (2 * own)), abs=1e-5)
    assert training.BAGS >= 5
