"""The feature vector sees what makes a kernel fast or slow."""

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from tests.cost.kernels import TARGET, broadcast, matmul, schedule_of, unary
from tvmpass.cost.features import FEATURE_NAMES, INDEX, amounts, features


def _named(function, **options):
    values = amounts(features(function, TARGET, **options))
    return dict(zip(FEATURE_NAMES, values.tolist()))


def test_vector_is_finite_and_repeats():
    function = matmul(32, 64, 48, tile=4)
    x = features(function, TARGET)
    assert x.dtype == np.float32 and x.shape == (len(FEATURE_NAMES),)
    assert np.isfinite(x).all()
    np.testing.assert_array_equal(x, features(function, TARGET))
    assert len(set(FEATURE_NAMES)) == len(FEATURE_NAMES)


def test_names_of_the_function_do_not_matter():
    def doubled(name):
        a = te.placeholder((8, 8), name=name)
        return schedule_of(a, te.compute((8, 8), lambda i, j: a[i, j] * 2.0, name=name + "_out")).mod["main"]

    made = [doubled("a"), doubled("other")]
    np.testing.assert_array_equal(features(made[0], TARGET), features(made[1], TARGET))


def test_counts_are_exact_for_an_elementwise_kernel():
    seen = _named(unary(16, 64))
    assert seen["exp.v"] == pytest.approx(16 * 64, rel=1e-5)
    assert seen["exp"] == 0.0
    assert seen["load.unit.v"] == pytest.approx(16 * 64, rel=1e-5)
    assert seen["store.unit.v"] == pytest.approx(16 * 64, rel=1e-5)
    assert seen["bytes_in"] == pytest.approx(16 * 64 * 4, rel=1e-5)
    assert seen["lanes"] == pytest.approx(8, rel=1e-5)


def test_scalar_intrinsics_are_told_from_vectorised_ones():
    scalar, vector = _named(unary(16, 64, vectorised=False)), _named(unary(16, 64))
    assert scalar["exp"] == vector["exp.v"] > 0
    assert scalar["exp.v"] == 0.0
    assert scalar["vector_share"] == 0.0 < vector["vector_share"]


@pytest.mark.parametrize("make", [lambda n: unary(n, 64), lambda n: matmul(n, 64, 32)])
def test_larger_kernels_count_more(make):
    small, large = _named(make(16)), _named(make(64))
    for name in ("bytes_in", "bytes_out", "outputs", "iterations"):
        assert large[name] > small[name]


def test_recompute_shows_in_the_intrinsics():
    staged, inlined = _named(broadcast(32, 128, False)), _named(broadcast(32, 128, True))
    assert staged["exp"] == pytest.approx(128, rel=1e-5)
    assert inlined["exp"] == pytest.approx(32 * 128, rel=1e-5)
    assert staged["intermediate_bytes"] == pytest.approx(512, rel=1e-5)
    assert inlined["intermediate_bytes"] == 0.0


def test_a_value_that_does_not_depend_on_the_inner_loop_counts_once():
    a, column = te.placeholder((16, 64), name="a"), te.placeholder((16,), name="column")
    out = te.compute((16, 64), lambda i, j: a[i, j] + tirx.exp(column[i]), name="c")
    assert _named(schedule_of(a, column, out).mod["main"])["exp"] == pytest.approx(16, rel=1e-5)


def test_a_value_written_twice_in_one_statement_counts_once():
    a = te.placeholder((64,), name="a")
    out = te.compute((64,), lambda i: tirx.exp(a[i]) * (tirx.exp(a[i]) + 1.0), name="c")
    seen = _named(schedule_of(a, out).mod["main"])
    assert seen["exp"] == pytest.approx(64, rel=1e-5)
    assert seen["load.unit"] == pytest.approx(64, rel=1e-5)


def test_neighbours_are_different_loads():
    a = te.placeholder((65,), name="a")
    out = te.compute((64,), lambda i: a[i] + a[i + 1], name="c")
    assert _named(schedule_of(a, out).mod["main"])["load.unit"] == pytest.approx(128, rel=1e-5)


def test_stride_classes():
    a = te.placeholder((64, 64), name="a")
    index = te.placeholder((64,), "int32", name="index")
    transposed = te.compute((64, 64), lambda i, j: a[j, i], name="t")
    gathered = te.compute((64, 64), lambda i, j: a[i, index[j]], name="g")
    repeated = te.compute((64, 64), lambda i, j: a[i, 0] + 1.0, name="r")
    total = pytest.approx(64 * 64, rel=1e-5)
    assert _named(schedule_of(a, transposed).mod["main"])["load.strided"] == total
    assert _named(schedule_of(a, index, gathered).mod["main"])["load.gather"] == total
    same = _named(schedule_of(a, repeated).mod["main"])
    assert same["load.same"] == pytest.approx(64, rel=1e-5) and same["load.unit"] == 0.0


def test_flat_loops_read_rows_in_order():
    """One fused loop that splits its index again still walks memory in order."""
    a = te.placeholder((48, 64), name="a")
    schedule = schedule_of(a, te.compute((48, 64), lambda i, j: a[i, j] + 1.0, name="b"))
    block = schedule.get_sblock("b")
    flat = schedule.fuse(*schedule.get_loops(block))
    assert _named(schedule.mod["main"])["load.unit"] == pytest.approx(48 * 64, rel=1e-5)
    _, lanes = schedule.split(flat, [None, 8])
    schedule.vectorize(lanes)
    seen = _named(schedule.mod["main"])
    assert seen["load.unit.v"] == seen["store.unit.v"] == pytest.approx(48 * 64, rel=1e-5)


def test_repeats_of_a_value_are_seen():
    """A value inlined into both sides of its reader, again and again."""
    a = te.placeholder((8,), name="a")

    def chain(i):
        value = a[i]
        for _ in range(4):
            value = tirx.Select(value > 0.0, value, 1.0)
        return value

    seen = _named(schedule_of(a, te.compute((8,), chain, name="b")).mod["main"])
    assert seen["written"] > 2**4
    assert seen["select"] == pytest.approx(2 * 4 * 8, rel=1e-5)


def test_a_named_value_is_written_once():
    a = te.placeholder((8,), name="a")
    t = tirx.Var("t", "float32")
    out = te.compute((8,), lambda i: tirx.Let(t, tirx.exp(a[i]), t * t + t), name="b")
    seen = _named(schedule_of(a, out).mod["main"])
    assert seen["exp"] == pytest.approx(8, rel=1e-5)
    assert seen["written"] < 8


def test_register_tile_shortens_the_chain():
    narrow, wide = _named(matmul(32, 64, 48, tile=1)), _named(matmul(32, 64, 48, tile=8))
    assert narrow["fma.v"] == wide["fma.v"] == pytest.approx(32 * 64 * 48, rel=1e-5)
    assert narrow["tile"] == pytest.approx(8, rel=1e-5)
    assert wide["tile"] == pytest.approx(64, rel=1e-5)
    assert wide["chain"] < narrow["chain"]
    assert wide["load.unit.v"] < 0.3 * narrow["load.unit.v"], "unrolled rows share what they read"
    assert wide["reduction"] == pytest.approx(48, rel=1e-5)


def test_reduction_left_whole_is_seen_to_test_in_every_step():
    a = te.placeholder((16, 64), name="a")
    k = te.reduce_axis((0, 64), name="k")
    out = te.compute((16,), lambda i: te.sum(a[i, k], axis=k), name="s")
    seen = _named(schedule_of(a, out).mod["main"])
    assert seen["guard"] == pytest.approx(16 * 64, rel=1e-5)
    assert seen["store.unit"] + seen["store.same"] == pytest.approx(16, rel=1e-5)


def test_a_nest_beyond_the_cache_moves_bytes():
    assert _named(unary(8, 64))["from_memory_bytes"] == 0.0
    huge = _named(unary(8192, 8192))
    assert huge["from_memory_bytes"] >= 2 * 8192 * 8192 * 4


def test_symbolic_dims_count_by_example():
    n = te.var("n", dtype="int64")
    a = te.placeholder((n, 64), name="a")
    function = schedule_of(a, te.compute((n, 64), lambda i, j: tirx.exp(a[i, j]), name="b")).mod["main"]
    default = _named(function)["exp"]
    assert default == pytest.approx(4 * 64, rel=1e-5)
    assert _named(function, example_extents={"n": 32})["exp"] == pytest.approx(8 * default, rel=1e-5)


def test_versions_and_positions_agree():
    assert [INDEX[name] for name in FEATURE_NAMES] == list(range(len(FEATURE_NAMES)))
    assert isinstance(TARGET, tvm.target.Target)
