// 16-bit floats by their bits, shared by the runtime and the emitted code.
#pragma once
#include <cstdint>
#include <cstring>

namespace emu {

inline uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

inline float bits_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

#if defined(__F16C__)
// The instructions without <immintrin.h>, which takes longer to read than all else.
typedef short Halves __attribute__((vector_size(16)));
typedef float Floats __attribute__((vector_size(16)));
inline float half_to_float(uint16_t bits) {
  return __builtin_ia32_vcvtph2ps(Halves{static_cast<short>(bits)})[0];
}
inline uint16_t float_to_half(float value) {
  return static_cast<uint16_t>(__builtin_ia32_vcvtps2ph(Floats{value}, 0)[0]);
}
#else
inline float half_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return bits_float(sign | 0x7f800000 | fraction << 13);
  if (exponent) return bits_float(sign | (exponent + 112) << 23 | fraction << 13);
  const float small = static_cast<float>(fraction) * 0x1p-24f;
  return sign ? -small : small;
}

inline uint16_t float_to_half(float value) {  // round to nearest, ties to even
  const uint32_t bits = float_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 1023));
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 0x38800000) {  // subnormal: let a float addition round
    const float shifted = bits_float(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (float_bits(shifted) - 0x3f000000));
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}
#endif

inline float bfloat_to_float(uint16_t bits) { return bits_float(static_cast<uint32_t>(bits) << 16); }

inline uint16_t float_to_bfloat(float value) {  // round to nearest, ties to even
  const uint32_t bits = float_bits(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// What the elements of a tensor-core fragment are.
enum ElementKind : int { kHalf, kBfloat, kTf32, kFloat, kInt8, kUint8, kInt32, kDouble };

struct MmaShape {
  int m, n, k;
  ElementKind input, accumulator_in, accumulator_out;
};

}  // namespace emu
