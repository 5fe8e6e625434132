// What CUDA C++ has beyond C++, for code that a host compiler translates.
//
// Included before the emitted source.  Threads, barriers, memory checks and warp
// operations are calls into the runtime (../runtime).
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#define __CUDA_ARCH__ 800
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __align__(n) __attribute__((aligned(n)))
#define EMU_INLINE inline __attribute__((always_inline))
#define EMU_UNCHECKED __attribute__((no_sanitize("thread")))

struct dim3 {
  unsigned x, y, z;
};

extern "C" {
extern const dim3 threadIdx, blockIdx, blockDim, gridDim;
void emu_syncthreads(int line);
void emu_syncwarp(unsigned mask, int line);
unsigned emu_activemask(int line);
uint64_t emu_shuffle(int variant, unsigned mask, uint64_t value, int lane, int width, int line);
unsigned emu_vote(int variant, unsigned mask, int predicate, int line);
void* emu_static_shared(int slot, size_t bytes, size_t alignment);
void* emu_dynamic_shared();
unsigned emu_to_shared(const void* pointer);
void* emu_from_shared(unsigned address);
void emu_line(int line);
void emu_atomic(void* address, size_t bytes);
void emu_cp_async(unsigned destination, const void* source, unsigned bytes, unsigned from_source);
void emu_cp_async_commit();
void emu_cp_async_wait(unsigned pending);
void emu_tensor_core(int line);
void emu_mma(void* d, const void* a, const void* b, const void* c, const void* shape, int line);
void emu_misaligned(const char* what, int line);
}

constexpr int warpSize = 32;

// ---- Barriers and warp operations.  The line tells one call from another.

namespace emu {

EMU_INLINE void sync_warp(int line, unsigned mask = ~0u) { emu_syncwarp(mask, line); }

template <class T>
EMU_INLINE T shuffle(int variant, int line, unsigned mask, T value, int lane, int width = 32) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  bits = emu_shuffle(variant, mask, bits, lane, width, line);
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace emu

#define __syncthreads() emu_syncthreads(__LINE__)
#define __syncwarp(...) emu::sync_warp(__LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __activemask() emu_activemask(__LINE__)
#define __shfl_sync(...) emu::shuffle(0, __LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) emu::shuffle(1, __LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) emu::shuffle(2, __LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) emu::shuffle(3, __LINE__, __VA_ARGS__)
#define __ballot_sync(mask, predicate) emu_vote(0, mask, !!(predicate), __LINE__)
#define __any_sync(mask, predicate) static_cast<int>(emu_vote(1, mask, !!(predicate), __LINE__))
#define __all_sync(mask, predicate) static_cast<int>(emu_vote(2, mask, !!(predicate), __LINE__))
#define __cvta_generic_to_shared(pointer) emu_to_shared(pointer)

namespace emu {
template <class T, class... Rest>
EMU_INLINE void store_shared(unsigned address, T first, Rest... rest) {
  T* at = static_cast<T*>(emu_from_shared(address));
  *at = first;
  int i = 0;
  ((at[++i] = rest), ...);
}
}  // namespace emu

EMU_INLINE void __threadfence() {}
EMU_INLINE void __threadfence_block() {}
EMU_INLINE void __threadfence_system() {}

// ---- Vector types, with the alignment that CUDA gives them

#define EMU_VECTORS(name, type, align2, align4)                                                          \
  struct name##1 { type x; };                                                                            \
  struct alignas(align2) name##2 { type x, y; };                                                         \
  struct name##3 { type x, y, z; };                                                                      \
  struct alignas(align4) name##4 { type x, y, z, w; };                                                   \
  EMU_INLINE name##1 make_##name##1(type x) { return {x}; }                                              \
  EMU_INLINE name##2 make_##name##2(type x, type y) { return {x, y}; }                                   \
  EMU_INLINE name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                        \
  EMU_INLINE name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

EMU_VECTORS(char, signed char, 2, 4)
EMU_VECTORS(uchar, unsigned char, 2, 4)
EMU_VECTORS(short, short, 4, 8)
EMU_VECTORS(ushort, unsigned short, 4, 8)
EMU_VECTORS(int, int, 8, 16)
EMU_VECTORS(uint, unsigned int, 8, 16)
EMU_VECTORS(longlong, long long, 16, 16)
EMU_VECTORS(ulonglong, unsigned long long, 16, 16)
EMU_VECTORS(float, float, 8, 16)
EMU_VECTORS(double, double, 16, 16)
#undef EMU_VECTORS

// ---- Mathematics.  The functions of C are there already; these are CUDA's own.

EMU_INLINE float max(float a, float b) { return fmaxf(a, b); }
EMU_INLINE float min(float a, float b) { return fminf(a, b); }
EMU_INLINE double max(double a, double b) { return fmax(a, b); }
EMU_INLINE double min(double a, double b) { return fmin(a, b); }
EMU_INLINE double max(float a, double b) { return fmax(a, b); }
EMU_INLINE double min(float a, double b) { return fmin(a, b); }
EMU_INLINE double max(double a, float b) { return fmax(a, b); }
EMU_INLINE double min(double a, float b) { return fmin(a, b); }

template <class A, class B>
using emu_integers =
    std::enable_if_t<std::is_integral<A>::value && std::is_integral<B>::value, std::common_type_t<A, B>>;
template <class A, class B>
EMU_INLINE emu_integers<A, B> max(A a, B b) {
  const std::common_type_t<A, B> left = a, right = b;
  return left > right ? left : right;
}
template <class A, class B>
EMU_INLINE emu_integers<A, B> min(A a, B b) {
  const std::common_type_t<A, B> left = a, right = b;
  return left < right ? left : right;
}

using std::isfinite;
using std::isinf;
using std::isnan;

EMU_INLINE float rsqrtf(float x) { return 1.0f / sqrtf(x); }
EMU_INLINE double rsqrt(double x) { return 1.0 / sqrt(x); }
// __expf and its like are less exact on a device; no emulation tells by how much.
#define EMU_FAST(name) EMU_INLINE float emu_fast_##name(float x) { return name##f(x); }
EMU_FAST(exp) EMU_FAST(log) EMU_FAST(log2) EMU_FAST(log10)
EMU_FAST(sin) EMU_FAST(cos) EMU_FAST(tan) EMU_FAST(tanh)
#undef EMU_FAST
#define __expf emu_fast_exp
#define __logf emu_fast_log
#define __log2f emu_fast_log2
#define __log10f emu_fast_log10
#define __sinf emu_fast_sin
#define __cosf emu_fast_cos
#define __tanf emu_fast_tan
#define __tanhf emu_fast_tanh
#define __powf powf
#define __exp10f exp10f
#define __fdividef(a, b) ((a) / (b))
EMU_INLINE float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
EMU_INLINE float __frcp_rn(float x) { return 1.0f / x; }
EMU_INLINE float __fsqrt_rn(float x) { return sqrtf(x); }
// Operations that may not be contracted: volatile keeps the compiler from it.
EMU_INLINE float __fmul_rn(float a, float b) { volatile float product = a * b; return product; }
EMU_INLINE float __fadd_rn(float a, float b) { volatile float sum = a + b; return sum; }
EMU_INLINE float __fsub_rn(float a, float b) { volatile float difference = a - b; return difference; }
EMU_INLINE float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }

EMU_INLINE int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
EMU_INLINE int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
EMU_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
EMU_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
EMU_INLINE int __ffs(int x) { return __builtin_ffs(x); }
EMU_INLINE int __mul24(int a, int b) { return ((a << 8) >> 8) * ((b << 8) >> 8); }

template <class To, class From>
EMU_INLINE To emu_bits(From from) {
  To to;
  static_assert(sizeof to == sizeof from, "");
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
EMU_INLINE int __float_as_int(float x) { return emu_bits<int>(x); }
EMU_INLINE unsigned __float_as_uint(float x) { return emu_bits<unsigned>(x); }
EMU_INLINE float __int_as_float(int x) { return emu_bits<float>(x); }
EMU_INLINE float __uint_as_float(unsigned x) { return emu_bits<float>(x); }
EMU_INLINE long long __double_as_longlong(double x) { return emu_bits<long long>(x); }
EMU_INLINE double __longlong_as_double(long long x) { return emu_bits<double>(x); }

template <class T>
EMU_INLINE T __ldg(const T* p) { return *p; }

namespace emu {
template <class A, class B>
EMU_INLINE int dot4(A a, B b, int c) {
  using Left = std::conditional_t<std::is_signed<A>::value, signed char, unsigned char>;
  using Right = std::conditional_t<std::is_signed<B>::value, signed char, unsigned char>;
  for (int i = 0; i < 4; ++i) c += int(static_cast<Left>(a >> 8 * i)) * int(static_cast<Right>(b >> 8 * i));
  return c;
}
}  // namespace emu
EMU_INLINE int __dp4a(int a, int b, int c) { return emu::dot4(a, b, c); }
EMU_INLINE unsigned __dp4a(unsigned a, unsigned b, unsigned c) { return unsigned(emu::dot4(a, b, int(c))); }

// ---- Atomic operations: one block, one thread at a time runs, so that a plain
// read and write is atomic; the runtime is told that they do not conflict.

#define EMU_ATOMIC(name, expression)                                                      \
  template <class T, class V>                                                             \
  EMU_UNCHECKED T name(T* address, V given) {                    \
    emu_atomic(address, sizeof(T));                                                       \
    const T old = *address, value = static_cast<T>(given);                                \
    (void)value;                                                                          \
    *address = (expression);                                                              \
    return old;                                                                           \
  }
EMU_ATOMIC(atomicAdd, static_cast<T>(old + value))
EMU_ATOMIC(atomicSub, static_cast<T>(old - value))
EMU_ATOMIC(atomicMax, old < value ? value : old)
EMU_ATOMIC(atomicMin, value < old ? value : old)
EMU_ATOMIC(atomicExch, value)
EMU_ATOMIC(atomicAnd, old & value)
EMU_ATOMIC(atomicOr, old | value)
EMU_ATOMIC(atomicXor, old ^ value)
#undef EMU_ATOMIC
template <class T>
EMU_UNCHECKED T atomicCAS(T* address, T compare, T value) {
  emu_atomic(address, sizeof(T));
  const T old = *address;
  if (old == compare) *address = value;
  return old;
}

// ---- The entry of a kernel: its parameters by address

namespace emu {

template <int... I, class... P>
EMU_INLINE void call(void (*kernel)(P...), void** arguments, std::integer_sequence<int, I...>) {
  kernel(*static_cast<std::remove_reference_t<P>*>(arguments[I])...);
}

template <class... P>
EMU_INLINE void call(void (*kernel)(P...), void** arguments) {
  call(kernel, arguments, std::make_integer_sequence<int, sizeof...(P)>());
}

template <class T>
EMU_INLINE T& static_shared(int slot, size_t alignment = alignof(T)) {
  return *static_cast<T*>(emu_static_shared(slot, sizeof(T), alignment < alignof(T) ? alignof(T) : alignment));
}

}  // namespace emu
