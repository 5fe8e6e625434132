"""The analytic price of CUDA kernels orders them as hardware does."""

import dataclasses

import pytest
from tvm import tirx

from tests.cost import cuda_kernels as kernels
from tvmpass.core.cuda_arch import ARCHES
from tvmpass.cost.cuda_analytic import cuda_analytic_us
from tvmpass.cost.cuda_device import BOARDS, CudaDevice, class_device, cuda_class, representative
from tvmpass.cost.cuda_features import CUDA_FEATURE_NAMES, CUDA_INDEX, cuda_features

DEVICE = CudaDevice.of(kernels.TARGET)


def us(function, device=DEVICE) -> float:
    return cuda_analytic_us(cuda_features(function, kernels.TARGET), device)


def test_price_grows_with_size_from_the_cost_of_a_launch():
    launch = DEVICE.start_us + DEVICE.launch_us
    assert launch < us(kernels.unary(1, 256)) < us(kernels.unary(512, 1024)) < us(kernels.unary(4096, 4096))
    assert us(kernels.unary(1, 256)) < 1.5 * launch


def test_large_elementwise_kernels_run_near_the_memory_rate():
    bytes_moved = 2 * 4 * 16384**2
    ideal = bytes_moved / DEVICE.dram_gbps / 1e3
    assert ideal < us(kernels.unary(16384, 16384, lanes=4)) < 1.6 * ideal


def test_coalesced_is_faster_than_strided():
    copy = kernels.unary(4096, 4096, lambda x: x)
    assert us(kernels.transpose(4096)) > 1.5 * us(copy)


def test_more_waves_are_slower():
    assert us(kernels.unary(8192, 4096)) > 1.5 * us(kernels.unary(4096, 4096))


def test_one_launch_is_cheaper_than_three():
    assert us(kernels.chain(1 << 20, True)) < 0.6 * us(kernels.chain(1 << 20, False))


def test_recompute_of_costly_values_is_dearer():
    rows, columns = 8192, 1024
    inlined, apart = (us(kernels.broadcast(rows, columns, way, costly=24)) for way in (True, False))
    assert inlined > 1.3 * apart


def test_few_threads_hide_no_latency():
    assert us(kernels.unary(1024, 1024, threads=32)) > us(kernels.unary(1024, 1024, threads=256))
    assert us(kernels.row_sum(1, 1 << 16, 32)) > us(kernels.row_sum(1, 1 << 16, 1024))


def test_shared_memory_pays_for_a_product():
    assert us(kernels.product(2048, True)) < us(kernels.product(2048, False))


def test_special_functions_cost_more_than_a_sum():
    plain = us(kernels.unary(4096, 4096, lambda x: x + 1.0))
    costly = us(kernels.unary(4096, 4096, lambda x: tirx.pow(tirx.pow(tirx.pow(x, x), x), x)))
    assert costly > 1.2 * plain


def _features(**amounts):
    import numpy as np

    x = np.zeros(len(CUDA_FEATURE_NAMES), np.float32)
    at_rest = {"launches": 1, "blocks": 1000, "threads": 256, "resident": 4, "accumulators": 16, "width": 4}
    for name, value in {**at_rest, **amounts}.items():
        x[CUDA_INDEX[name]] = np.log1p(value)
    for name in ("coalescing", "lanes", "occupancy"):
        x[CUDA_INDEX[name]] = 1.0
    return x


def test_tensor_cores_beat_float32_for_large_products():
    work = 4096.0**3
    plain = cuda_analytic_us(_features(fma=work, mul=work, instructions=work), DEVICE)
    assert cuda_analytic_us(_features(mma=work), DEVICE) < 0.2 * plain


def test_conflicts_and_scarce_residency_cost():
    base = {"fma": 1e9, "mul": 1e9, "shared.passes": 1e8}
    assert cuda_analytic_us(_features(**{**base, "shared.passes": 4e8}), DEVICE) > 2 * cuda_analytic_us(
        _features(**base), DEVICE
    )
    alone = {"fma": 1e9, "mul": 1e9, "accumulators": 1, "threads": 128}
    assert cuda_analytic_us(_features(**alone, resident=1), DEVICE) > 2 * cuda_analytic_us(
        _features(**alone, resident=8), DEVICE
    )


def test_every_known_architecture_has_a_device():
    for arch in ARCHES:
        device = representative(arch)
        assert device.arch.capability == ARCHES[arch].capability
        assert all(value > 0 for value in dataclasses.asdict(device).values())
        # The float32 peak follows from SMs, lanes and clock.
        peak = 2 * device.sms * device.fp32_lanes * device.ghz / 1e3
        assert device.fp32_tflops == pytest.approx(peak, rel=0.05), BOARDS[f"sm_{device.capability}"][0]


def test_several_architectures_are_priced_for_the_lowest():
    from tvmpass.compile.target import parse_target

    assert CudaDevice.of(parse_target("cuda:sm_90,sm_80", 1)) == representative("sm_80")
    assert cuda_class("sm_90a") == "cuda-sm_90"
    assert class_device("cuda-sm_90") == representative("sm_90a")
