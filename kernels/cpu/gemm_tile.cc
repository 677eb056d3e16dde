#include "kernels/cpu/gemm_tile.h"

#include <array>
#include <utility>

namespace pando::cpu {
namespace {

template <size_t kVecs>
inline Vec LoadSum(const GemmTile& t, const float* c, size_t v) {
  return t.cols >= kVecs * kLanes ? Load(c + v * kLanes)
                                  : LoadPart(c + v * kLanes, t.cols - v * kLanes);
}

template <size_t kRows, size_t kVecs>
void ComputeTile(const GemmTile& t) {
  Vec sums[kRows][kVecs];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVecs; ++v) {
      sums[r][v] = t.continues ? LoadSum<kVecs>(t, t.c + r * t.c_row_stride, v) : Vec{};
    }
  }
  const float *a = t.a, *b = t.b;
  for (size_t k = 0; k < t.depth; ++k, a += t.a_col_stride, b += t.b_row_stride) {
    Vec columns[kVecs];
    for (size_t v = 0; v < kVecs; ++v) columns[v] = InRegister(Load(b + v * kLanes));
    for (size_t r = 0; r < kRows; ++r) {
      const Vec element = Broadcast(a[r * t.a_row_stride]);
      for (size_t v = 0; v < kVecs; ++v) sums[r][v] += element * columns[v];
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVecs; ++v) {
      StorePart(t.c + r * t.c_row_stride + v * kLanes, sums[r][v], t.cols - v * kLanes);
    }
  }
}

using TileFunction = void (*)(const GemmTile&);

template <size_t kVecs, size_t... kIndex>
constexpr auto TileRow(std::index_sequence<kIndex...>) {
  return std::array<TileFunction, kTileRows>{ComputeTile<kIndex + 1, kVecs>...};
}

template <size_t... kIndex>
constexpr auto TileTable(std::index_sequence<kIndex...>) {
  return std::array{TileRow<kIndex + 1>(std::make_index_sequence<kTileRows>())...};
}

constexpr auto kComputeTile =
    TileTable(std::make_index_sequence<kTileVecs>());  // [vecs − 1][rows − 1]

}  // namespace

void ComputeGemmTile(size_t rows, size_t vecs, const GemmTile& tile) {
  kComputeTile[vecs - 1][rows - 1](tile);
}

}  // namespace pando::cpu
