"""What is counted in a scheduled CUDA kernel."""

import time

import numpy as np
import pytest
import tvm
from tvm import tirx

from tests.cost import cuda_kernels as kernels
from tvmpass.cost.cuda_features import (
    CUDA_FEATURE_NAMES,
    CUDA_INDEX,
    CUDA_LOGGED,
    cuda_amounts,
    cuda_features,
)
from tvmpass.cost.cuda_lanes import conflicts, sectors
from tvmpass.cost.cuda_work import measure_cuda


def described(function, **examples) -> dict[str, float]:
    x = cuda_amounts(cuda_features(function, kernels.TARGET, examples))
    return {name: float(x[position]) for name, position in CUDA_INDEX.items()}


def test_vector_is_finite_and_named():
    x = cuda_features(kernels.product(256, staged=True), kernels.TARGET)
    assert x.dtype == np.float32 and x.shape == (len(CUDA_FEATURE_NAMES),)
    assert len(set(CUDA_FEATURE_NAMES)) == len(CUDA_FEATURE_NAMES) and len(CUDA_FEATURE_NAMES) > CUDA_LOGGED
    assert np.isfinite(x).all() and (x >= 0).all()


def test_launch_and_bytes_of_an_elementwise_kernel():
    found = described(kernels.unary(64, 1024, lanes=4))
    assert found["blocks"] == pytest.approx(64, rel=1e-5)
    assert found["threads"] == pytest.approx(256, rel=1e-5)
    assert found["launches"] == pytest.approx(1, rel=1e-5)
    size = 4 * 64 * 1024
    for name in ("bytes_in", "bytes_out", "load.bytes", "store.bytes"):
        assert found[name] == pytest.approx(size, rel=1e-5), name
    assert found["wasted_bytes"] == 0 and found["coalescing"] == 1.0
    assert found["width"] == pytest.approx(16, rel=1e-5)
    assert found["exp"] == pytest.approx(64 * 1024, rel=1e-5)
    assert found["load.requests"] == pytest.approx(64 * 1024 / 4 / 32, rel=1e-5)


def test_every_stage_that_binds_threads_is_a_launch():
    apart, together = described(kernels.chain(4096, False)), described(kernels.chain(4096, True))
    assert apart["launches"] == pytest.approx(3, rel=1e-5)
    assert together["launches"] == pytest.approx(1, rel=1e-5)
    assert apart["intermediate_bytes"] == pytest.approx(2 * 4 * 4096, rel=1e-5)
    assert apart["load.bytes"] == pytest.approx(3 * together["load.bytes"], rel=1e-5)


def test_a_column_read_wastes_seven_eighths_of_a_sector():
    found = described(kernels.transpose(512))
    assert found["load.bytes"] == pytest.approx(8 * found["store.bytes"], rel=1e-5)
    assert found["wasted_bytes"] == pytest.approx(7 / 8 * found["load.bytes"], rel=1e-5)


def test_a_flat_index_reaches_past_its_row():
    """Schedules address a matrix as ``a[0, flat]``; all of it is touched, not one row."""
    flat, plain = (
        measure_cuda(f).launches[0].accesses for f in (kernels.flat_copy(512), kernels.unary(512, 512))
    )
    assert [a.unique_bytes for a in flat] == [a.unique_bytes for a in plain] == [4 * 512 * 512] * 2


def test_a_gather_is_scattered():
    found = described(kernels.gather(4096, 100_000))
    assert found["scattered"] == pytest.approx(4096 / 32, rel=1e-5)
    assert found["load.bytes"] == pytest.approx(4096 * 4 + 4096 * 32, rel=1e-5)


def test_recompute_is_counted_where_it_happens():
    apart, inlined = (described(kernels.broadcast(64, 512, inlined, 1)) for inlined in (False, True))
    assert apart["exp"] == pytest.approx(512, rel=1e-5)
    assert inlined["exp"] == pytest.approx(64 * 512, rel=1e-5)


def test_symbolic_extents_take_their_examples():
    function = kernels.symbolic(128)
    few, many = described(function, n=10), described(function, n=1000)
    assert few["blocks"] == pytest.approx(10, rel=1e-5)
    assert many["exp"] == pytest.approx(128_000, rel=1e-5)


def test_a_reduction_across_threads_shuffles():
    warp, block = described(kernels.row_sum(64, 1024, 32)), described(kernels.row_sum(64, 1024, 256))
    assert warp["shuffles"] == pytest.approx(64 * 32 * 5, rel=1e-5)
    assert warp["barriers"] == 0 and block["barriers"] >= 1
    assert block["shared_bytes"] > 0


def test_a_product_in_shared_memory():
    plain, staged = described(kernels.product(256, False)), described(kernels.product(256, True))
    assert staged["fma"] == pytest.approx(256**3, rel=1e-5)
    assert staged["shared_bytes"] == pytest.approx(2 * 64 * 16 * 4, rel=1e-5)
    assert staged["load.bytes"] < plain["load.bytes"]
    assert staged["barriers"] == pytest.approx(2 * 256 / 16, rel=1e-5)
    assert staged["accumulators"] == pytest.approx(16, rel=1e-5)
    # A value in shared memory is read once for four multiply-adds, from each side.
    assert staged["shared.requests"] == pytest.approx(256**3 / 32 * 2 / 4, rel=0.1)


def test_what_is_staged_in_registers_is_computed_in_every_iteration():
    """The loop over a window is unrolled, and no index of the update mentions it."""
    found = described(kernels.windowed(256, 9))
    assert found["fma"] == pytest.approx(256 * 9, rel=1e-5)


def test_stages_multiply_shared_memory():
    one, three = described(kernels.product(256, True)), described(kernels.product(256, True, stages=3))
    assert three["shared_bytes"] == pytest.approx(3 * one["shared_bytes"], rel=1e-5)
    assert three["stages"] == pytest.approx(3, rel=1e-5)
    assert three["async_bytes"] > 0 and one["async_bytes"] == 0


def test_sectors_and_conflicts_of_a_warp():
    lanes, every = np.arange(32), np.ones(32, dtype=bool)
    assert sectors(4 * lanes, every) == 4
    assert sectors(16 * lanes, every) == 16
    assert sectors(128 * lanes, every) == 32
    assert sectors(4 * lanes, lanes == 0) == 1
    assert conflicts(4 * lanes, every, 4) == (1, 1)
    assert conflicts(8 * lanes, every, 4) == (2, 1)
    assert conflicts(128 * lanes, every, 4) == (32, 1)
    assert conflicts(0 * lanes, every, 4) == (1, 1)
    assert conflicts(16 * lanes, every, 16) == (4, 4)


def test_code_without_threads_is_one_launch_of_one_thread():
    from tvm import te

    a = te.placeholder((100,), name="a")
    function = te.create_prim_func([a, te.compute((100,), lambda i: tirx.exp(a[i]), name="b")])
    (launch,) = measure_cuda(function).launches
    assert (launch.blocks, launch.threads) == (1, 1)
    assert launch.work.counts["exp"] == 100


def test_tensorised_work_is_counted():
    """The arithmetic of a tensorised block is gone from the TIR; its regions tell it."""
    from tvmpass.cost.cuda_tensor import tensor_call, tensor_work

    def buffer(name, scope, dtype="float16"):
        return tirx.decl_buffer((1, 32, 32), dtype, name=name, scope=scope)

    c = buffer("c", "wmma.accumulator", "float32")
    a, b = buffer("a", "wmma.matrix_a"), buffer("b", "wmma.matrix_b")

    def region(of):
        return tirx.BufferRegion(of, [tvm.ir.Range(0, 1), tvm.ir.Range(0, 16), tvm.ir.Range(0, 16)])

    class Block:
        reads, writes = [region(c), region(a), region(b)], [region(c)]

    found = tensor_work("tvm_mma_sync", Block, lambda e: float(int(e)), lambda b: (1024.0, 32.0, 1.0))
    assert found.multiply_adds == 16**3
    assert tensor_call(tirx.Evaluate(tirx.const(0))) is None


def test_features_are_quick():
    function = kernels.product(512, True)
    cuda_features(function, kernels.TARGET)
    begin = time.perf_counter()
    for _ in range(5):
        cuda_features(function, kernels.TARGET)
    assert (time.perf_counter() - begin) / 5 < 0.1  # a guard against a blunder, not a benchmark
