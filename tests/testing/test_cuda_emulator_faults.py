"""The emulator catches what goes wrong on a device, and says what and where."""

from __future__ import annotations

import numpy as np
import pytest

from tvmpass.testing.cuda_emulator import EmulationError, Order, emulate_kernel
from tvmpass.testing.cuda_emulator.native import fills_variables

COPIES = """
__forceinline__ __device__ void copy(void* dst, void* src) {
  unsigned int at = __cvta_generic_to_shared(dst);
  asm volatile("cp.async.cg.shared.global [%0], [%1], %2;" :: "r"(at), "l"(src), "n"(16));
}
__forceinline__ __device__ void commit() { asm volatile("cp.async.commit_group;" : :); }
__forceinline__ __device__ void wait_0() { asm volatile("cp.async.wait_group 0;" : : : "memory"); }
__forceinline__ __device__ void wait_1() { asm volatile("cp.async.wait_group 1;" : : : "memory"); }
"""


def kernel(body: str) -> str:
    parameters = "float* in, float* out"
    return COPIES + f'extern "C" __global__ void __launch_bounds__(64) kernel({parameters}) {{\n{body}\n}}\n'


def run(body: str, size: int = 256, **options):
    x = np.random.default_rng(0).standard_normal(size).astype("float32")
    options = {"block": (64,), **options}
    return emulate_kernel(kernel(body), [x, np.zeros(size, "float32")], **options)


# fault, the same kernel right and wrong (the text between the two braces is left out or put in)
FAULTS = {
    "a barrier is missing": (
        "race",
        """__shared__ float a[64];
        a[threadIdx.x] = in[threadIdx.x];
        {__syncthreads();|}
        out[threadIdx.x] = a[threadIdx.x ^ 32];""",
    ),
    "a barrier is missing before a buffer is used again": (
        "race",
        """__shared__ float a[64];
        for (int k = 0; k < 3; ++k) {{
          {__syncthreads();|}
          a[threadIdx.x] = in[threadIdx.x + 64 * k];
          __syncthreads();
          out[threadIdx.x] += a[63 - threadIdx.x];
        }}""",
    ),
    "two threads store different values at one place": (
        "race",
        """__shared__ float a[64];
        a[{threadIdx.x|threadIdx.x / 2}] = in[threadIdx.x];
        __syncthreads();
        if (threadIdx.x < 32) out[threadIdx.x] = a[threadIdx.x];""",
    ),
    "lanes of a warp exchange without a barrier": (
        "race",
        """__shared__ float a[64];
        a[threadIdx.x] = in[threadIdx.x];
        {__syncwarp();|}
        out[threadIdx.x] = a[threadIdx.x ^ 1];""",
    ),
    "a warp barrier does not order two warps": (
        "race",
        """__shared__ float a[64];
        a[threadIdx.x] = in[threadIdx.x];
        {__syncthreads();|__syncwarp();}
        out[threadIdx.x] = a[threadIdx.x ^ 32];""",
    ),
    "a sum is read while others add to it": (
        "race",
        """__shared__ float a[1];
        if (threadIdx.x == 0) a[0] = 0.0f;
        __syncthreads();
        atomicAdd(a, 1.0f);
        {__syncthreads();|}
        out[threadIdx.x] = a[0];""",
    ),
    "a wait leaves one group too many": (
        "async copy in flight",
        """__shared__ alignas(16) float a[256];
        copy(a + threadIdx.x * 4, in + threadIdx.x * 4);
        commit();
        {wait_0();|wait_1();}
        __syncthreads();
        out[threadIdx.x] = a[255 - threadIdx.x];""",
    ),
    "a copy is never waited for": (
        "async copy in flight",
        """__shared__ alignas(16) float a[256];
        copy(a + threadIdx.x * 4, in + threadIdx.x * 4);
        {commit();|}
        wait_0();
        __syncthreads();
        out[threadIdx.x] = a[255 - threadIdx.x];""",
    ),
    "a copy overwrites what others still read": (
        "race",
        """__shared__ alignas(16) float a[256];
        for (int k = 0; k < 2; ++k) {{
          copy(a + threadIdx.x * 4, in + threadIdx.x * 4);
          commit(); wait_0();
          __syncthreads();
          out[threadIdx.x] += a[255 - threadIdx.x] * k;
          {__syncthreads();|}
        }}""",
    ),
    "another thread's copy is read without a barrier": (
        "race",
        """__shared__ alignas(16) float a[256];
        copy(a + threadIdx.x * 4, in + threadIdx.x * 4);
        commit(); wait_0();
        {__syncthreads();|}
        out[threadIdx.x] = a[threadIdx.x * 4 / 2];""",
    ),
    "shared memory is read before it is written": (
        "uninitialised",
        """__shared__ float a[128];
        a[threadIdx.x] = in[threadIdx.x];
        __syncthreads();
        out[threadIdx.x] = a[threadIdx.x + {0|1}];""",
    ),
    "a barrier is in a branch that not all threads take": (
        "diverged barrier",
        """if (threadIdx.x < {64|63}) {{
          out[threadIdx.x] = in[threadIdx.x];
          __syncthreads();
        }}""",
    ),
    "threads wait at different barriers": (
        "diverged barrier",
        """if (threadIdx.x < {64|32}) {{
          __syncthreads();
          out[threadIdx.x] = 1.0f;
        }} else {{
          __syncthreads();
        }}""",
    ),
    "a barrier in a loop is reached too often by some": (
        "diverged barrier",
        """for (int k = 0; k < {4|4 + (threadIdx.x > 40)}; ++k) {{
          __syncthreads();
          out[threadIdx.x] += in[threadIdx.x];
        }}""",
    ),
    "a shuffle names lanes that do not take part": (
        "diverged warp operation",
        """if (threadIdx.x % 32 < 16)
          out[threadIdx.x] = __shfl_xor_sync({0xffff|0xffffffff}, in[threadIdx.x], 1);
        __syncthreads();""",
    ),
    "a shuffle's mask leaves out who calls it": (
        "diverged warp operation",
        "out[threadIdx.x] = __shfl_xor_sync({0xffffffff|0x7fffffff}, in[threadIdx.x], 1);",
    ),
    "a load behind an array": ("out of bounds", "out[threadIdx.x] = in[threadIdx.x + {192|193}];"),
    "a store before an array": ("out of bounds", "out[(int)threadIdx.x - {0|1}] = in[threadIdx.x];"),
    "a vector load that ends behind an array": (
        "out of bounds",
        "*(float2*)(out + 2 * threadIdx.x) = *(float2*)(in + 2 * threadIdx.x + {128|130});",
    ),
    "a shared array's index is too large": (
        "out of bounds",
        """__shared__ float a[64];
        a[threadIdx.x + {0|1}] = 1.0f;""",
    ),
    "a pointer leaves a shared array": (
        "out of bounds",
        """__shared__ float a[64];
        __shared__ float b[64];
        float* p = a + {0|4};
        for (int i = 0; i < 64; ++i) if (threadIdx.x == i) p[i] = 1.0f;
        b[threadIdx.x] = 2.0f;""",
    ),
    "a local array's index is too large": (
        "out of bounds",
        """float local[4];
        for (int i = 0; i < 4; ++i) local[i] = in[i];
        out[threadIdx.x] = local[(threadIdx.x / {16|8}) % 8];""",
    ),
    "a misaligned vector load": (
        "misaligned",
        """int at = threadIdx.x < 63 ? threadIdx.x * 4 + {0|1} : 0;
        *(float4*)(out + threadIdx.x * 4) = *(float4*)(in + at);""",
    ),
    "a misaligned vector store to shared memory": (
        "misaligned",
        """__shared__ alignas(16) float a[132];
        if (threadIdx.x < 32) *(float4*)(a + threadIdx.x * 4 + {0|2}) = *(float4*)(in + threadIdx.x * 4);""",
    ),
    "a misaligned asynchronous copy": (
        "misaligned",
        """__shared__ alignas(16) float a[256];
        copy(a + threadIdx.x * 4, in + (threadIdx.x < 63 ? threadIdx.x * 4 + {0|2} : 0));""",
    ),
    "a misaligned load of a tensor-core fragment": (
        "misaligned",
        """using namespace nvcuda::wmma;
        __shared__ alignas(32) half a[272];
        for (int i = threadIdx.x; i < 272; i += 64) a[i] = (half)0.0f;
        __syncthreads();
        fragment<matrix_a, 16, 16, 16, half, row_major> f;
        load_matrix_sync(f, a + {16|8}, 16);""",
    ),
    "a tensor-core operation in part of a warp": (
        "diverged warp operation",
        """using namespace nvcuda::wmma;
        fragment<accumulator, 16, 16, 16, float> f;
        fill_fragment(f, 0.0f);
        if (threadIdx.x < {32|31}) store_matrix_sync(out, f, 16, mem_row_major);""",
    ),
    "two blocks store at one place": (
        "race in global memory",
        "out[threadIdx.x + {blockIdx.x * 64|0}] = in[threadIdx.x + blockIdx.x * 64];",
    ),
    "a block reads what another stores": (
        "race in global memory",
        """int i = threadIdx.x + blockIdx.x * 64;
        out[i] = in[i];
        out[i] += out[{i|threadIdx.x}];""",
    ),
    "threads of a block exchange through global memory": (
        "race in global memory",
        """out[threadIdx.x + blockIdx.x * 64] = in[threadIdx.x];
        {__syncthreads();|}
        float other = out[(threadIdx.x ^ 32) + blockIdx.x * 64];
        __syncthreads();
        out[threadIdx.x + blockIdx.x * 64] = other;""",
    ),
}  # fmt: skip


def variants(text: str) -> tuple[str, str]:
    """Split ``{right|wrong}``; doubled braces are braces."""
    import re

    pair = re.compile(r"(?<!\{)\{([^{}|]*)\|([^{}|]*)\}(?!\})")
    right, wrong = pair.sub(r"\1", text), pair.sub(r"\2", text)
    return tuple(t.replace("{{", "{").replace("}}", "}") for t in (right, wrong))  # type: ignore[return-value]


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name):
    fault, text = FAULTS[name]
    right, wrong = variants(text)
    grid = (2,) if "global" in fault else (1,)
    assert run(right, grid=grid).stable
    # What one block reads of another shows only where it runs after it.
    every = (Order(0), Order(1), Order(2, seed=3))
    for order in every[:1] if name == "a block reads what another stores" else every:
        with pytest.raises(EmulationError) as caught:
            run(wrong, grid=grid, orders=[order])
        # Where nothing was stored yet, a load too early is one of uninitialised memory.
        accepted = (fault, "uninitialised") if fault == "race" else (fault,)
        assert caught.value.fault in accepted, caught.value


def test_the_message_names_kernel_block_thread_and_line():
    body = "__syncthreads();\nout[threadIdx.x + 193] = in[threadIdx.x];"
    with pytest.raises(EmulationError) as caught:
        run(body, orders=1)
    message = str(caught.value)
    assert message.count("\n") == 0
    assert "byte 1024 of argument 1, which has 1024" in message
    assert "kernel, block (0, 0, 0), thread (63, 0, 0)" in message
    assert kernel(body).splitlines()[caught.value.line - 1] == "out[threadIdx.x + 193] = in[threadIdx.x];"


@pytest.mark.parametrize(
    "body", ["while (in[0] != 0.5f) out[threadIdx.x] += 1.0f;", "for (;;) __syncthreads();"]
)
def test_a_run_that_does_not_end_is_ended(body):
    with pytest.raises(EmulationError, match="no end within 1 s") as caught:
        run(body, seconds=1)
    assert caught.value.fault == "no end"


def test_uninitialised_variables_show():
    if not fills_variables():
        pytest.skip("the C++ compiler does not fill variables")
    body = "float local[8]; if (in[0] > 100.0f) local[3] = in[1]; out[threadIdx.x] = local[3];"
    assert np.abs(run(body).arrays[1][:64]).min() > 1e30


def test_one_value_stored_by_all_threads_is_no_race():
    body = """__shared__ float a[1];
    a[0] = in[0] + in[1];
    out[threadIdx.x] = a[0];
    __syncthreads();
    out[64] = a[0];"""
    assert run(body).stable


def test_without_checks_a_race_shows_in_results_only():
    wrong = variants(FAULTS["a barrier is missing"][1])[1]
    orders = [Order(policy, seed=5, check=False) for policy in (0, 1, 2)]
    assert not run(wrong, orders=orders).stable


def test_threads_that_are_switched_between_accesses_give_the_same():
    right = variants(FAULTS["a barrier is missing before a buffer is used again"][1])[0]
    orders = [Order(0), *(Order(2, seed=s, preempt=3) for s in range(4))]
    assert run(right, orders=orders).stable


def test_too_many_threads():
    with pytest.raises(EmulationError, match="2048 threads"):
        run("out[0] = 1;", block=(64, 32))


@pytest.mark.parametrize("shapes", [{"grid": (1, 65536, 1)}, {"grid": (1, 1, 65536)}, {"block": (1, 1, 65)}])
def test_a_launch_that_no_device_takes(shapes):
    with pytest.raises(EmulationError, match="launch limits: .* at most"):
        run("out[0] = 1;", **shapes)
