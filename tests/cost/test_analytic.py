"""The analytic price orders kernels as hardware does."""

import dataclasses

import pytest

from tests.cost.kernels import TARGET, broadcast, matmul, unary
from tvmpass.cost.analytic import analytic_us
from tvmpass.cost.device import Device
from tvmpass.cost.features import features

DEVICE = Device(vector_bytes=32)


def _us(function, device=DEVICE):
    return analytic_us(features(function, TARGET), device)


def test_price_grows_with_size():
    assert DEVICE.launch_us < _us(unary(16, 64)) < _us(unary(64, 64)) < _us(unary(1024, 64))


def test_scalar_arithmetic_costs_more_than_vectorised():
    def polynomial(x):
        return ((x * 0.5 + 1.0) * x + 2.0) * x + 3.0

    assert _us(unary(64, 512, polynomial, vectorised=False)) > 2 * _us(unary(64, 512, polynomial))


def test_a_curve_left_as_a_call_is_scalar_either_way():
    assert _us(unary(64, 512)) > 64 * 512 * DEVICE.libm_ns / 1000


def test_a_wider_tile_is_faster():
    assert _us(matmul(64, 128, 256, tile=8)) < 0.5 * _us(matmul(64, 128, 256, tile=1))


def test_recompute_costs():
    assert _us(broadcast(64, 512, True)) > 3 * _us(broadcast(64, 512, False))


def test_threads_divide_only_parallel_work():
    from tvm import s_tir

    two = dataclasses.replace(DEVICE, threads=2)
    serial = unary(256, 512)
    assert _us(serial, two) == pytest.approx(_us(serial), rel=1e-6)
    schedule = s_tir.Schedule(serial)
    schedule.parallel(schedule.get_loops(schedule.get_sblock("b"))[0])
    assert _us(schedule.mod["main"], two) < 0.6 * _us(serial)
