// nvcuda::wmma: each lane holds its share of a matrix, see ../runtime/wmma.cc.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace nvcuda {
namespace wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
}

namespace detail {

// Element type in a fragment, and what the runtime calls it.
template <class T> struct Element;
template <> struct Element<half> { using type = half; static constexpr auto kind = emu::kHalf; };
template <> struct Element<nv_bfloat16> { using type = nv_bfloat16; static constexpr auto kind = emu::kBfloat; };
template <> struct Element<precision::tf32> { using type = float; static constexpr auto kind = emu::kTf32; };
template <> struct Element<float> { using type = float; static constexpr auto kind = emu::kFloat; };
template <> struct Element<double> { using type = double; static constexpr auto kind = emu::kDouble; };
template <> struct Element<signed char> { using type = signed char; static constexpr auto kind = emu::kInt8; };
template <> struct Element<unsigned char> { using type = unsigned char; static constexpr auto kind = emu::kUint8; };
template <> struct Element<int> { using type = int; static constexpr auto kind = emu::kInt32; };

template <class Use, int m, int n, int k> struct Dims;
template <int m, int n, int k> struct Dims<matrix_a, m, n, k> { static constexpr int rows = m, columns = k; };
template <int m, int n, int k> struct Dims<matrix_b, m, n, k> { static constexpr int rows = k, columns = n; };
template <int m, int n, int k> struct Dims<accumulator, m, n, k> { static constexpr int rows = m, columns = n; };

EMU_INLINE int lane() {
  return static_cast<int>((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32);
}

template <class T>
EMU_INLINE void check(const T* p, unsigned stride, int line) {
  emu_line(line);
  if (reinterpret_cast<uintptr_t>(p) % 32)
    emu_misaligned("a tensor-core load or store at an address that is no multiple of 32", line);
  if (stride * sizeof(T) % 16)
    emu_misaligned("a tensor-core load or store of rows that are no multiple of 16 bytes apart", line);
}

}  // namespace detail

template <class Use, int m, int n, int k, class T, class Layout = void>
struct fragment {
  using Dims = detail::Dims<Use, m, n, k>;
  using Type = typename detail::Element<T>::type;
  static constexpr int num_elements = Dims::rows * Dims::columns / 32;
  Type x[num_elements];
};

template <class Use, int m, int n, int k, class T, class L, class V>
EMU_INLINE void fill_fragment(fragment<Use, m, n, k, T, L>& f, V value) {
  for (auto& element : f.x) element = static_cast<typename fragment<Use, m, n, k, T, L>::Type>(value);
}

// Element i of this lane in memory; checks the access where it is one.
template <class F, class P>
EMU_INLINE P* place(int i, P* p, unsigned stride, bool rows) {
  const int e = detail::lane() * F::num_elements + i;
  const int row = e / F::Dims::columns, column = e % F::Dims::columns;
  return p + (rows ? row * static_cast<size_t>(stride) + column : column * static_cast<size_t>(stride) + row);
}

template <class F, class P>
__attribute__((noinline)) void load_fragment(F& f, const P* p, unsigned stride, bool rows, int line) {
  detail::check(p, stride, line);
  emu_tensor_core(line);
  for (int i = 0; i < F::num_elements; ++i) f.x[i] = *place<F>(i, p, stride, rows);
}

template <class F, class P>
__attribute__((noinline)) void store_fragment(P* p, const F& f, unsigned stride, bool rows, int line) {
  detail::check(p, stride, line);
  for (int i = 0; i < F::num_elements; ++i) *place<F>(i, p, stride, rows) = f.x[i];
  emu_tensor_core(line);
}

template <class Use, int m, int n, int k, class T, class L, class P>
EMU_INLINE void load_matrix(int line, fragment<Use, m, n, k, T, L>& f, const P* p, unsigned stride) {
  load_fragment(f, p, stride, std::is_same<L, row_major>::value, line);
}

template <int m, int n, int k, class T, class P>
EMU_INLINE void load_matrix(int line, fragment<accumulator, m, n, k, T>& f, const P* p, unsigned stride,
                            layout_t layout) {
  load_fragment(f, p, stride, layout == mem_row_major, line);
}

template <int m, int n, int k, class T, class P>
EMU_INLINE void store_matrix(int line, P* p, const fragment<accumulator, m, n, k, T>& f, unsigned stride,
                             layout_t layout) {
  store_fragment(p, f, stride, layout == mem_row_major, line);
}

template <int m, int n, int k, class D, class A, class LA, class LB, class C>
EMU_INLINE void mma(int line, fragment<accumulator, m, n, k, D>& d, const fragment<matrix_a, m, n, k, A, LA>& a,
                    const fragment<matrix_b, m, n, k, A, LB>& b, const fragment<accumulator, m, n, k, C>& c) {
  static constexpr emu::MmaShape shape{
      m, n, k, detail::Element<A>::kind, detail::Element<C>::kind, detail::Element<D>::kind};
  emu_mma(d.x, a.x, b.x, c.x, &shape, line);
}

}  // namespace wmma
}  // namespace nvcuda

// The line tells one call from another, as for barriers.
#define load_matrix_sync(...) load_matrix(__LINE__, __VA_ARGS__)
#define store_matrix_sync(...) store_matrix(__LINE__, __VA_ARGS__)
#define mma_sync(...) mma(__LINE__, __VA_ARGS__)
