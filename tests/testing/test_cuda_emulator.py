"""The emulator does what CUDA says a device does: one small kernel per feature."""

from __future__ import annotations

import numpy as np
import pytest

from tvmpass.testing.cuda_emulator import Unmodelled, emulate_kernel, sampled

HEADER = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <mma.h>\n"
ONES = 0xFFFFFFFF


def kernel(parameters: str, body: str) -> str:
    return f'{HEADER}extern "C" __global__ void __launch_bounds__(64) kernel({parameters}) {{\n{body}\n}}\n'


def run(parameters: str, body: str, *arguments, block=(32,), **options) -> np.ndarray:
    """Run a kernel in three orders, which must agree; return its last array."""
    result = emulate_kernel(kernel(parameters, body), arguments, block=block, **options)
    assert result.stable
    return result.arrays[-1]


def lanes(count: int = 32) -> np.ndarray:
    return np.arange(count, dtype="int32")


def test_indices_of_threads_and_blocks():
    body = """
    int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    out[b * 24 + t] = b * 1000 + t;"""
    out = run("int* out", body, np.zeros(24 * 24, "int32"), grid=(2, 3, 4), block=(4, 3, 2))
    wanted = np.arange(24)[:, None] * 1000 + np.arange(24)
    assert (out == wanted.ravel()).all()


def test_static_shared_memory_and_barriers():
    body = """
    __shared__ alignas(64) int a[64];
    __shared__ int b[8][8];
    a[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    b[threadIdx.x % 8][threadIdx.x / 8] = a[63 - threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = b[threadIdx.x / 8][threadIdx.x % 8];"""
    out = run("int* in, int* out", body, lanes(64), np.zeros(64, "int32"), block=(64,))
    assert (out == (63 - lanes(64)).reshape(8, 8).T.ravel()).all()


def test_dynamic_shared_memory():
    body = """
    extern __shared__ __align__(64) uchar pool[];
    ((float*)pool)[threadIdx.x] = (float)threadIdx.x;
    ((half*)pool)[64 + threadIdx.x] = (half)(2.0f * threadIdx.x);
    __syncthreads();
    out[threadIdx.x] = ((float*)pool)[31 - threadIdx.x] + (float)((half*)pool)[64 + (threadIdx.x ^ 1)];"""
    source = "#define uchar unsigned char\n" + kernel("float* out", body)
    result = emulate_kernel(source, [np.zeros(32, "float32")], block=(32,), dynamic_bytes=192)
    assert (result.arrays[0] == 31 - lanes() + 2 * (lanes() ^ 1)).all()


@pytest.mark.parametrize(
    "call, source",
    [
        ("__shfl_sync(0xffffffff, v, 5, 32)", np.full(32, 5)),
        ("__shfl_sync(0xffffffff, v, 13, 8)", lanes() // 8 * 8 + 5),
        ("__shfl_up_sync(0xffffffff, v, 3, 32)", np.where(lanes() < 3, lanes(), lanes() - 3)),
        ("__shfl_up_sync(0xffffffff, v, 1, 8)", np.where(lanes() % 8 < 1, lanes(), lanes() - 1)),
        ("__shfl_down_sync(0xffffffff, v, 16)", np.where(lanes() + 16 > 31, lanes(), lanes() + 16)),
        ("__shfl_down_sync(0xffffffff, v, 2, 4)", np.where(lanes() % 4 + 2 > 3, lanes(), lanes() + 2)),
        ("__shfl_xor_sync(0xffffffff, v, 1)", lanes() ^ 1),
        ("__shfl_xor_sync(0xffffffff, v, 8, 8)", np.where(lanes() % 16 < 8, lanes(), lanes() ^ 8)),
    ],
)
def test_shuffles(call, source):
    out = run(
        "int* in, int* out", f"int v = in[threadIdx.x]; out[threadIdx.x] = {call};", lanes() * 7, lanes()
    )
    assert (out == source * 7).all()


def test_votes_and_masks():
    body = """
    unsigned all = __activemask();
    unsigned part = 0;
    if (threadIdx.x % 3 == 0) part = __activemask();
    out[threadIdx.x] = all;
    out[32 + threadIdx.x] = part;
    out[64 + threadIdx.x] = __ballot_sync(0xffffffff, threadIdx.x > 27);
    int any = __any_sync(0xffffffff, threadIdx.x == 4), every = __all_sync(0xffffffff, threadIdx.x < 31);
    out[96 + threadIdx.x] = any * 2 + every;
    if (threadIdx.x < 4) out[128 + threadIdx.x] = __all_sync(0xf, threadIdx.x < 4);"""
    out = run("unsigned* out", body, np.zeros(132, "uint32")).astype("int64")
    third = sum(1 << i for i in range(0, 32, 3))
    assert (out[:32] == ONES).all()
    assert (out[32:64] == np.where(lanes() % 3, 0, third)).all()
    assert (out[64:96] == 0xF0000000).all() and (out[96:128] == 2).all() and (out[128:] == 1).all()


def test_a_warp_that_is_not_full():
    body = "out[threadIdx.x] = __shfl_down_sync(__activemask(), in[threadIdx.x], 1, 32);"
    out = run("int* in, int* out", body, lanes(20), np.zeros(20, "int32"), block=(20,))
    # The last lane reads from one that does not exist: undefined, and poison here.
    assert (out == np.append(np.arange(1, 20), -1)).all()


COPY = """
__forceinline__ __device__ void copy(void* dst, void* src, int predicate) {
  unsigned int at = __cvta_generic_to_shared(dst);
  __asm__ __volatile__(
    "{\\n"
    " .reg .pred p;\\n"
    " setp.eq.u32 p, %3, 1;\\n"
    " @p cp.async.cg.shared.global [%0], [%1], %2;\\n"
    " @!p st.shared.v4.u32 [%0], {%4, %4, %4, %4};\\n"
    "}\\n"
    :: "r"(at), "l"(src), "n"(16), "r"(predicate), "r"(0)
  );
}
__forceinline__ __device__ void copy_some(void* dst, void* src, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;"
    :: "r"((unsigned)__cvta_generic_to_shared(dst)), "l"(src), "r"(bytes) : "memory");
}
__forceinline__ __device__ void commit() { asm volatile("cp.async.commit_group;" : :); }
__forceinline__ __device__ void wait_1() { asm volatile("cp.async.wait_group 1;" : : : "memory"); }
__forceinline__ __device__ void wait_all() { asm volatile("cp.async.wait_all;" : : : "memory"); }
"""


def test_asynchronous_copies_land_at_their_wait():
    body = """
    __shared__ alignas(16) float a[128], b[128];
    int i = threadIdx.x * 4;
    copy(a + i, in + i, threadIdx.x < 30); commit();
    copy_some(b + i, in + i, threadIdx.x % 5 * 4); commit();
    wait_1();
    __syncthreads();
    for (int k = 0; k < 4; ++k) out[i + k] = a[127 - i - k];
    wait_all();
    __syncthreads();
    for (int k = 0; k < 4; ++k) out[128 + i + k] = b[127 - i - k];"""
    body = body.replace("float a[128], b[128];", "float a[128];\n__shared__ alignas(16) float b[128];")
    x = np.random.default_rng(0).standard_normal(128).astype("float32")
    source = COPY + kernel("float* in, float* out", body)
    out = emulate_kernel(source, [x, np.zeros(256, "float32")], block=(32,)).arrays[1]
    given = np.where(np.arange(128) < 120, x, 0)
    some = np.where(np.arange(128) % 4 < np.arange(128) // 4 % 5, x, 0)
    assert (out == np.concatenate([given[::-1], some[::-1]])).all()


WMMA = {
    "half": ("half", "float", "16, 16, 16", 2e-3),
    "half in half": ("half", "half", "16, 16, 16", 4e-3),
    "half wide": ("half", "float", "32, 8, 16", 2e-3),
    "half tall": ("half", "float", "8, 32, 16", 2e-3),
    "bfloat16": ("nv_bfloat16", "float", "16, 16, 16", 1e-2),
    "int8": ("signed char", "int", "16, 16, 16", 0.0),
    "uint8": ("unsigned char", "int", "16, 16, 16", 0.0),
}
NUMPY = {"half": "float16", "nv_bfloat16": "uint16", "signed char": "int8", "unsigned char": "uint8",
         "float": "float32", "int": "int32"}  # fmt: skip


def as_bfloat(x: np.ndarray) -> np.ndarray:
    return (x.astype("float32").view("uint32") >> 16).astype("uint16")


@pytest.mark.parametrize("rows", [True, False], ids=["row", "col"])
@pytest.mark.parametrize("name", WMMA)
def test_tensor_cores(name, rows):
    kind, sums, shape, tolerance = WMMA[name]
    m, n, k = map(int, shape.split(","))
    layout = "row_major" if rows else "col_major"
    body = f"""
    using namespace nvcuda::wmma;
    __shared__ alignas(32) {kind} left[{m * k}];
    __shared__ alignas(32) {kind} right[{k * n}];
    for (int i = threadIdx.x; i < {m * k}; i += 32) left[i] = a[i];
    for (int i = threadIdx.x; i < {k * n}; i += 32) right[i] = b[i];
    __syncthreads();
    fragment<matrix_a, {shape}, {kind}, {layout}> fa;
    fragment<matrix_b, {shape}, {kind}, {layout}> fb;
    fragment<accumulator, {shape}, {sums}> fc;
    fill_fragment(fc, 1.0f);
    load_matrix_sync(fa, left, {k if rows else m});
    load_matrix_sync(fb, right, {n if rows else k});
    mma_sync(fc, fa, fb, fc);
    mma_sync(fc, fa, fb, fc);
    store_matrix_sync(out, fc, {n if rows else m}, {"mem_" + layout});"""
    generator = np.random.default_rng(1)
    if sums == "int":
        low = 0 if kind.startswith("u") else -128
        a, b = (generator.integers(low, 128, size).astype(NUMPY[kind]) for size in ((m, k), (k, n)))
        exact = [a.astype("int64"), b.astype("int64")]
    else:
        a, b = (generator.standard_normal(size).astype("float16") for size in ((m, k), (k, n)))
        exact = [a.astype("float64"), b.astype("float64")]
        if kind == "nv_bfloat16":
            a, b = as_bfloat(a), as_bfloat(b)
    given = [np.ascontiguousarray(x if rows else x.T).ravel() for x in (a, b)]
    parameters = f"{kind}* a, {kind}* b, {sums}* out"
    out = run(parameters, body, *given, np.zeros(m * n, NUMPY[sums]))
    out = (out.reshape(m, n) if rows else out.reshape(n, m).T).astype("float64")
    wanted = 1 + 2 * exact[0] @ exact[1]
    assert np.abs(out - wanted).max() <= tolerance * np.abs(wanted).max()


def test_atomic_operations():
    body = """
    __shared__ int total[1];
    if (threadIdx.x == 0) total[0] = 0;
    __syncthreads();
    atomicAdd(total, (int)threadIdx.x);
    atomicAdd(&sums[threadIdx.x % 2], 0.5f);
    atomicMax(&most[0], (int)threadIdx.x);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&most[1], total[0]);"""
    arrays = [np.zeros(2, "float32"), np.full(2, -5, "int32")]
    result = emulate_kernel(kernel("float* sums, int* most", body), arrays, grid=(3,), block=(64,))
    assert result.stable
    assert result.arrays[0].tolist() == [48, 48] and result.arrays[1].tolist() == [63, 3 * 2016 - 5]


def test_16_bit_floats_round_as_numpy():
    generator = np.random.default_rng(2)
    bits = [generator.integers(0, 1 << 16, 4096, dtype="uint16") for _ in range(2)]
    x, y = (b.view("float16") for b in bits)
    body = """
    for (int i = threadIdx.x; i < 4096; i += 32) {
      out[i] = a[i] + b[i]; out[4096 + i] = a[i] * b[i]; out[8192 + i] = a[i] / b[i];
      out[12288 + i] = hsqrt(a[i]); out[16384 + i] = (half)(float)-a[i];
    }"""
    out = run("half* a, half* b, half* out", body, x, y, np.zeros(5 * 4096, "float16"))
    with np.errstate(all="ignore"):
        wanted = np.concatenate([x + y, x * y, x / y, np.sqrt(x), -x])
    same = (out.view("uint16") == wanted.view("uint16")) | (np.isnan(out) & np.isnan(wanted))
    assert same.all()


def test_bfloat16_rounds_to_nearest_even():
    x = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F800000, 0xFF7FFFFF, 0x7FC00001], "uint32")
    out = run("float* x, nv_bfloat16* out", "out[threadIdx.x] = (nv_bfloat16)x[threadIdx.x];",
              x.view("float32"), np.zeros(6, "uint16"), block=(6,))  # fmt: skip
    assert [hex(v) for v in out] == ["0x3f80", "0x3f82", "0x3f81", "0x7f80", "0xff80", "0x7fc0"]


def test_vector_types():
    body = """
    float4 v = *(float4*)(x + threadIdx.x * 4);
    uint4 packed;
    ((half2*)(&packed.x))->x = (half)v.x; ((half2*)(&packed.x))->y = (half)v.y;
    ((half2*)(&packed.y))->x = (half)v.z; ((half2*)(&packed.y))->y = (half)v.w;
    *(uint2*)(out + threadIdx.x * 4) = make_uint2(packed.x, packed.y);"""
    x = np.arange(32, dtype="float32") - 7
    assert (run("float* x, half* out", body, x, np.zeros(32, "float16"), block=(8,)) == x).all()


def test_int8_dot_products():
    body = "out[threadIdx.x] = __dp4a(a[threadIdx.x], b[threadIdx.x], 3);"
    a, b = (np.random.default_rng(s).integers(-128, 128, (32, 4)).astype("int8") for s in (3, 4))
    out = run("int* a, int* b, int* out", body, a.view("int32").ravel(), b.view("int32").ravel(), lanes())
    assert (out == (a.astype("int32") * b).sum(1) + 3).all()


def test_mathematics():
    names = ("expf", "logf", "sqrtf", "rsqrtf", "tanhf", "erff", "floorf", "nearbyintf", "__expf", "log2f")
    body = "\n".join(f"out[{i} * 32 + threadIdx.x] = {n}(x[threadIdx.x]);" for i, n in enumerate(names))
    x = np.linspace(0.1, 3, 32).astype("float32")
    out = run("float* x, float* out", body, x, np.zeros(32 * len(names), "float32")).reshape(-1, 32)
    import math

    wanted = [np.exp(x), np.log(x), np.sqrt(x), 1 / np.sqrt(x), np.tanh(x), [math.erf(v) for v in x],
              np.floor(x), np.rint(x), np.exp(x), np.log2(x)]  # fmt: skip
    assert np.allclose(out, np.array(wanted), rtol=4e-7, atol=4e-7)


def test_max_and_min_of_floats_prefer_numbers():
    body = "out[0] = max(x[0], x[1]); out[1] = min(x[1], x[0]); out[2] = max(3, (int64_t)x[1]);"
    out = run(
        "float* x, float* out", body, np.array([np.nan, 2], "float32"), np.zeros(3, "float32"), block=(1,)
    )
    assert out.tolist() == [2, 2, 3]


def test_scalars_are_passed():
    body = "out[threadIdx.x] = a * 1000000 + b; if (threadIdx.x == 31) out[31] = (int64_t)(c * 4.0f);"
    out = run(
        "int64_t a, int b, float c, int64_t* out", body, np.int64(1 << 40), 7, 0.25, np.zeros(32, "int64")
    )
    assert (out[:31] == (1 << 40) * 1000000 + 7).all() and out[31] == 1


def test_sampled_blocks_and_what_they_wrote():
    body = "out[blockIdx.y * 70 + blockIdx.x] = 1;"
    result = emulate_kernel(
        kernel("int* out", body), [np.zeros((50, 70), "int32")], grid=(70, 50), sample_blocks=6
    )
    assert result.blocks == (6, 3500)
    mask = result.masks[0]
    assert mask.sum() == 6 and mask[0, 0] and mask[0, -1] and mask[-1, 0] and mask[-1, -1]
    assert (result.arrays[0] == mask).all()
    assert sampled((2, 1, 1), 6, 0) == [0, 1] and len(sampled((9, 9, 9), 6, 0)) == 6


@pytest.mark.parametrize(
    "body, what",
    [
        (
            'asm volatile("mma.sync.aligned.m16n8k16.row.col {%0}, {%1};" : : "r"(1), "r"(2));',
            "mma.sync",
        ),
        ("tma_store_fence();", "tma_store_fence"),
        ("__nv_fp8_e4m3 x; out[0] = 1;", "__nv_fp8_e4m3"),
        ("nvcuda::wmma::bmma_sync(out, out, out, out);", "bmma_sync"),
    ],
)
def test_what_is_not_modelled_is_named(body, what):
    with pytest.raises(Unmodelled, match=what):
        emulate_kernel(kernel("int* out", body), [lanes()])
