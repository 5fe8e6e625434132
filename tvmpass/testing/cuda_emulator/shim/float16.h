// Arithmetic of a 16-bit float type: each operation in float, rounded once.
//
// For +, -, *, / and sqrt this is the correctly rounded 16-bit result, because
// a float has more than twice the digits.
#pragma once
#include "../runtime/floats.h"

namespace emu {

struct HalfFormat {
  static EMU_INLINE float widen(uint16_t bits) { return half_to_float(bits); }
  static EMU_INLINE uint16_t narrow(float value) { return float_to_half(value); }
};

struct BfloatFormat {
  static EMU_INLINE float widen(uint16_t bits) { return bfloat_to_float(bits); }
  static EMU_INLINE uint16_t narrow(float value) { return float_to_bfloat(value); }
};

template <class Format>
struct Float16 {
  uint16_t bits;

  Float16() = default;
  template <class T, class = std::enable_if_t<std::is_arithmetic<T>::value>>
  EMU_INLINE Float16(T value) : bits(Format::narrow(static_cast<float>(value))) {}
  template <class Other, class = std::enable_if_t<!std::is_same<Other, Format>::value>>
  EMU_INLINE explicit Float16(Float16<Other> other) : bits(Format::narrow(static_cast<float>(other))) {}
  EMU_INLINE operator float() const { return Format::widen(bits); }

  EMU_INLINE Float16& operator+=(Float16 o) { return *this = *this + o; }
  EMU_INLINE Float16& operator-=(Float16 o) { return *this = *this - o; }
  EMU_INLINE Float16& operator*=(Float16 o) { return *this = *this * o; }
  EMU_INLINE Float16& operator/=(Float16 o) { return *this = *this / o; }
  friend EMU_INLINE Float16 operator+(Float16 a, Float16 b) { return Float16(float(a) + float(b)); }
  friend EMU_INLINE Float16 operator-(Float16 a, Float16 b) { return Float16(float(a) - float(b)); }
  friend EMU_INLINE Float16 operator*(Float16 a, Float16 b) { return Float16(float(a) * float(b)); }
  friend EMU_INLINE Float16 operator/(Float16 a, Float16 b) { return Float16(float(a) / float(b)); }
  friend EMU_INLINE Float16 operator-(Float16 a) { a.bits ^= 0x8000; return a; }
  friend EMU_INLINE Float16 operator+(Float16 a) { return a; }
  friend EMU_INLINE bool operator==(Float16 a, Float16 b) { return float(a) == float(b); }
  friend EMU_INLINE bool operator!=(Float16 a, Float16 b) { return float(a) != float(b); }
  friend EMU_INLINE bool operator<(Float16 a, Float16 b) { return float(a) < float(b); }
  friend EMU_INLINE bool operator>(Float16 a, Float16 b) { return float(a) > float(b); }
  friend EMU_INLINE bool operator<=(Float16 a, Float16 b) { return float(a) <= float(b); }
  friend EMU_INLINE bool operator>=(Float16 a, Float16 b) { return float(a) >= float(b); }
};

template <class T>
struct alignas(4) Pair {
  T x, y;
  Pair() = default;
  EMU_INLINE Pair(T x, T y) : x(x), y(y) {}
};

}  // namespace emu

// The functions that CUDA has for both types, by the names of cuda_fp16.h and cuda_bf16.h.
#define EMU_FLOAT16_FUNCTIONS(T)                                                          \
  EMU_INLINE T hexp(T x) { return T(expf(x)); }                                           \
  EMU_INLINE T hexp2(T x) { return T(exp2f(x)); }                                         \
  EMU_INLINE T hexp10(T x) { return T(exp10f(x)); }                                       \
  EMU_INLINE T hlog(T x) { return T(logf(x)); }                                           \
  EMU_INLINE T hlog2(T x) { return T(log2f(x)); }                                         \
  EMU_INLINE T hlog10(T x) { return T(log10f(x)); }                                       \
  EMU_INLINE T hsqrt(T x) { return T(sqrtf(x)); }                                         \
  EMU_INLINE T hrsqrt(T x) { return T(1.0f / sqrtf(x)); }                                 \
  EMU_INLINE T hrcp(T x) { return T(1.0f / float(x)); }                                   \
  EMU_INLINE T hsin(T x) { return T(sinf(x)); }                                           \
  EMU_INLINE T hcos(T x) { return T(cosf(x)); }                                           \
  EMU_INLINE T htanh(T x) { return T(tanhf(x)); }                                         \
  EMU_INLINE T hfloor(T x) { return T(floorf(x)); }                                       \
  EMU_INLINE T hceil(T x) { return T(ceilf(x)); }                                         \
  EMU_INLINE T htrunc(T x) { return T(truncf(x)); }                                       \
  EMU_INLINE T hrint(T x) { return T(rintf(x)); }                                         \
  EMU_INLINE T __habs(T x) { x.bits &= 0x7fff; return x; }                                \
  EMU_INLINE T __hneg(T x) { return -x; }                                                 \
  EMU_INLINE T __hadd(T a, T b) { return a + b; }                                         \
  EMU_INLINE T __hsub(T a, T b) { return a - b; }                                         \
  EMU_INLINE T __hmul(T a, T b) { return a * b; }                                         \
  EMU_INLINE T __hdiv(T a, T b) { return a / b; }                                         \
  EMU_INLINE T __hfma(T a, T b, T c) { return T(fmaf(a, b, c)); }                         \
  EMU_INLINE bool __hgt(T a, T b) { return a > b; }                                       \
  EMU_INLINE bool __hge(T a, T b) { return a >= b; }                                      \
  EMU_INLINE bool __hlt(T a, T b) { return a < b; }                                       \
  EMU_INLINE bool __hle(T a, T b) { return a <= b; }                                      \
  EMU_INLINE bool __heq(T a, T b) { return a == b; }                                      \
  EMU_INLINE bool __hne(T a, T b) { return a != b; }                                      \
  EMU_INLINE bool __hisnan(T a) { return a != a; }                                        \
  EMU_INLINE int __hisinf(T a) { return isinf(float(a)) ? (a > T(0) ? 1 : -1) : 0; }      \
  EMU_INLINE T __hmax(T a, T b) { return T(fmaxf(a, b)); }                                \
  EMU_INLINE T __hmin(T a, T b) { return T(fminf(a, b)); }
