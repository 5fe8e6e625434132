// Matrix multiply-accumulate of a warp.
//
// Each lane holds its share of a fragment: element i of lane l is element
// l * share + i of the matrix in row-major order.  (On a device the placement is
// not specified; emitted code may not depend on it.)  Products are exact, sums
// are of doubles and rounded once: a device rounds more often.
#include "floats.h"
#include "machine.h"

namespace emu {
namespace {

size_t element_bytes(ElementKind kind) {
  switch (kind) {
    case kHalf: case kBfloat: return 2;
    case kInt8: case kUint8: return 1;
    case kDouble: return 8;
    default: return 4;
  }
}

double load(const char* data, size_t i, ElementKind kind) {
  const char* at = data + i * element_bytes(kind);
  uint16_t half;
  memcpy(&half, at, element_bytes(kind) == 2 ? 2 : 0);
  switch (kind) {
    case kHalf: return half_to_float(half);
    case kBfloat: return bfloat_to_float(half);
    case kTf32: {
      uint32_t bits;
      memcpy(&bits, at, 4);
      return bits_float(bits & 0xffffe000);
    }
    case kFloat: { float value; memcpy(&value, at, 4); return value; }
    case kInt8: return static_cast<signed char>(*at);
    case kUint8: return static_cast<unsigned char>(*at);
    case kInt32: { int32_t value; memcpy(&value, at, 4); return value; }
    case kDouble: { double value; memcpy(&value, at, 8); return value; }
  }
  return 0;
}

void store(char* data, size_t i, ElementKind kind, double value) {
  char* at = data + i * element_bytes(kind);
  switch (kind) {
    case kHalf: { const uint16_t bits = float_to_half(static_cast<float>(value)); memcpy(at, &bits, 2); break; }
    case kInt32: { const auto whole = static_cast<int32_t>(static_cast<int64_t>(value)); memcpy(at, &whole, 4); break; }
    case kDouble: memcpy(at, &value, 8); break;
    default: { const auto single = static_cast<float>(value); memcpy(at, &single, 4); break; }
  }
}

void gather(Thread* const* lanes, int operand, int count, ElementKind kind, double* into) {
  const int share = count / kWarp;
  for (int lane = 0; lane < kWarp; ++lane) {
    const char* fragment = static_cast<const char*>(lanes[lane]->collective.operands[operand]);
    for (int i = 0; i < share; ++i) into[lane * share + i] = load(fragment, i, kind);
  }
}

}  // namespace

void run_mma(Thread* const* lanes) {
  const auto& shape = *static_cast<const MmaShape*>(lanes[0]->collective.shape);
  const int m = shape.m, n = shape.n, k = shape.k;
  static double a[32 * 32], b[32 * 32], c[32 * 32];
  gather(lanes, 1, m * k, shape.input, a);
  gather(lanes, 2, k * n, shape.input, b);
  gather(lanes, 3, m * n, shape.accumulator_in, c);
  for (int i = 0; i < m; ++i)
    for (int q = 0; q < k; ++q) {
      const double left = a[i * k + q];
      for (int j = 0; j < n; ++j) c[i * n + j] += left * b[q * n + j];
    }
  const int share = m * n / kWarp;
  for (int lane = 0; lane < kWarp; ++lane) {
    char* fragment = static_cast<char*>(lanes[lane]->collective.operands[0]);
    for (int i = 0; i < share; ++i) store(fragment, i, shape.accumulator_out, c[lane * share + i]);
  }
}

}  // namespace emu
