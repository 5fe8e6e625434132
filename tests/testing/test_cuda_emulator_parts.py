"""The parts of the emulator that need no compiler: source translation, block choice, the cache."""

from __future__ import annotations

import os

import pytest

from tvmpass.testing.cuda_emulator import Unmodelled, sampled, standard_orders
from tvmpass.testing.cuda_emulator.cache import fetch
from tvmpass.testing.cuda_emulator.launch import FORWARD, RANDOM, REVERSED
from tvmpass.testing.cuda_emulator.translate import kernel_names, shared_granule, translate

KERNEL = 'extern "C" __global__ void __launch_bounds__(32) k({}) {{\n{}\n}}\n'


def test_translation_keeps_lines():
    source = KERNEL.format(
        "float* x", 'asm volatile("cp.async.wait_group 2;"\n : :\n : "memory");\n__syncthreads();'
    )
    made = translate(source)
    assert made.count("\n") == source.count("\n")
    assert "{ emu_cp_async_wait(2); }" in made
    assert made.splitlines()[4] == "__syncthreads();"


def test_shared_variables_get_a_place_each():
    made = translate("__shared__ alignas(64) float a[8];\n__shared__ int b[2][3];\n__shared__ half c;")
    assert "emu::static_shared<emu_array_a>(0, 64)" in made
    assert "typedef int emu_array_b[2][3];" in made and "(1, 1)" in made
    assert "typedef half emu_array_c;" in made


def test_dynamic_shared_memory():
    made = translate("extern __shared__ __align__(64) uchar pool[];")
    assert made == "uchar* pool = static_cast<uchar*>(emu_dynamic_shared());"


def test_operands_of_inline_ptx_may_hold_commas_and_calls():
    made = translate(
        'asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"(f(a, b)), "l"(p + 1), "r"(n));'
    )
    assert "emu_cp_async((f(a, b)), (const void*)(p + 1), 4, (n));" in made


def test_unknown_ptx_is_named_with_its_line():
    with pytest.raises(Unmodelled, match=r"'ldmatrix.sync.aligned.m8n8.x4.shared.b16' \(line 3\)") as caught:
        translate(
            '\n\nasm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0}, [%1];" : "=r"(a) : "r"(b));'
        )
    assert caught.value.line == 3 and caught.value.fault == "unmodelled"


def test_kernels_are_found_once():
    declared = 'extern "C" __global__ void __launch_bounds__(32) k(float* x);\n'
    assert kernel_names(declared + KERNEL.format("float* x", "")) == ["k"]


@pytest.mark.parametrize(
    "body, granule",
    [("float a;", 4), ("half a; float b;", 2), ("nv_bfloat16 a;", 2), ("signed char a;", 1), ("bool a;", 1),
     ("extern __shared__ uchar pool[];", 4)],
)  # fmt: skip
def test_the_smallest_type_decides_how_finely_memory_is_watched(body, granule):
    assert shared_granule(KERNEL.format("float* x", body)) == granule


def test_sampled_blocks_are_corners_last_and_random_ones():
    assert sampled((3, 2, 1), 6, 0) == list(range(6))
    chosen = sampled((10, 20, 1), 6, 0)
    assert {0, 9, 190, 199} < set(chosen) and len(chosen) == 6
    assert chosen == sampled((10, 20, 1), 6, 0) != sampled((10, 20, 1), 6, 1)
    assert len(sampled((4, 4, 4), 6, 0)) == 6 and {0, 63} < set(sampled((4, 4, 4), 6, 0))
    assert sampled((0, 1, 1), 6, 0) == []


def test_orders():
    assert [order.policy for order in standard_orders(4)] == [FORWARD, REVERSED, RANDOM, RANDOM]
    assert len(set(standard_orders(9))) == 9


def test_the_cache_makes_a_file_once(monkeypatch, tmp_path):
    monkeypatch.setenv("TVMPASS_CACHE_DIR", str(tmp_path))
    made = []

    def make(path):
        made.append(path)
        path.write_text("text")

    first, second = fetch("name.o", make), fetch("name.o", make)
    assert first == second == tmp_path / "emulator" / "name.o" and len(made) == 1
    assert os.listdir(first.parent) == ["name.o"]


def test_what_fails_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("TVMPASS_CACHE_DIR", str(tmp_path))

    def make(path):
        path.write_text("half")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        fetch("name.o", make)
    assert os.listdir(tmp_path / "emulator") == []


def test_without_a_shared_folder_one_of_the_process_is_used(monkeypatch, tmp_path):
    monkeypatch.setenv("TVMPASS_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TVMPASS_CACHE_SIZE", "0")
    path = fetch("name.o", lambda p: p.write_text("text"))
    assert path.read_text() == "text" and not (tmp_path / "emulator").exists()
