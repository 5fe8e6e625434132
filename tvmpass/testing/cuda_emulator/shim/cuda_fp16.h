// half and half2.
#pragma once
#include "float16.h"

using half = emu::Float16<emu::HalfFormat>;
using half2 = emu::Pair<half>;
using __half = half;
using __half2 = half2;

EMU_FLOAT16_FUNCTIONS(half)
EMU_INLINE float __half2float(half x) { return x; }
EMU_INLINE half __float2half(float x) { return half(x); }
EMU_INLINE half __float2half_rn(float x) { return half(x); }
EMU_INLINE half2 make_half2(half x, half y) { return {x, y}; }
EMU_INLINE half2 __halves2half2(half x, half y) { return {x, y}; }
EMU_INLINE half2 __float2half2_rn(float x) { return {half(x), half(x)}; }
EMU_INLINE unsigned short __half_as_ushort(half x) { return x.bits; }
EMU_INLINE half __ushort_as_half(unsigned short bits) { half x; x.bits = bits; return x; }
EMU_INLINE half2 operator+(half2 a, half2 b) { return {a.x + b.x, a.y + b.y}; }
EMU_INLINE half2 operator*(half2 a, half2 b) { return {a.x * b.x, a.y * b.y}; }
EMU_INLINE half2 __hadd2(half2 a, half2 b) { return a + b; }
EMU_INLINE half2 __hmul2(half2 a, half2 b) { return a * b; }
EMU_INLINE half2 __hfma2(half2 a, half2 b, half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
