#include "common/tensor_init.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/philox.h"

namespace pando {
namespace {

constexpr float kBound = 0.2f;

TensorLayout MakeLayout() {
  return TensorLayout(
      {{.name = "a.weight", .shape = {7, 11}, .init = InitKind::kUniform, .init_bound = kBound},
       {.name = "a.bias", .shape = {7}},
       {.name = "bn.weight", .shape = {3}, .init = InitKind::kOne},
       {.name = "b.weight", .shape = {4000}, .init = InitKind::kUniform, .init_bound = 1.0f}});
}

std::vector<float> Init(const TensorLayout& layout, uint64_t seed, ShardRange range) {
  std::vector<float> out(range.size(), 123.0f);
  InitRange(layout, seed, range, out);
  return out;
}

TEST_CASE("tensors are filled as their specs say and the padding is zero") {
  const TensorLayout layout = MakeLayout();
  const auto all = Init(layout, 1, {0, layout.float_count()});
  for (size_t i = 0; i < 77; ++i) CHECK((all[i] >= -kBound && all[i] < kBound && all[i] != 0));
  for (size_t i = 77; i < layout.offset(2); ++i) CHECK(all[i] == 0);  // padding, then the bias
  for (size_t i = 0; i < 3; ++i) CHECK(all[layout.offset(2) + i] == 1);
  for (size_t i = layout.offset(2) + 3; i < layout.offset(3); ++i) CHECK(all[i] == 0);
}

TEST_CASE("uniform values spread over their whole interval") {
  const TensorLayout layout = MakeLayout();
  const auto all = Init(layout, 1, {0, layout.float_count()});
  const size_t first = layout.offset(3);
  double sum = 0, square_sum = 0;
  for (size_t i = first; i < first + 4000; ++i) {
    sum += all[i];
    square_sum += double(all[i]) * all[i];
  }
  // Mean 0 and variance 1/3 of [-1, 1); five deviations of the estimates.
  CHECK(std::abs(sum / 4000) < 5 * std::sqrt(1.0 / 3 / 4000));
  CHECK(std::abs(square_sum / 4000 - 1.0 / 3) < 5 * std::sqrt(4.0 / 45 / 4000));
  CHECK(*std::min_element(all.begin() + long(first), all.begin() + long(first) + 4000) < -0.99f);
  CHECK(*std::max_element(all.begin() + long(first), all.begin() + long(first) + 4000) > 0.99f);
}

TEST_CASE("element i comes of word i mod 4 of block i / 4") {
  const TensorLayout layout = MakeLayout();
  const auto all = Init(layout, 9, {0, layout.float_count()});
  const PhiloxKey key = MakePhiloxKey(9, RandomPurpose::kInit, "a.weight");
  for (uint32_t i : {0u, 1u, 6u, 76u}) {
    const double uniform = (Philox4x32({i / 4, 0, 0, 0}, key)[i % 4] >> 8) / 16777216.0;
    CHECK(double(all[i]) == doctest::Approx((2 * uniform - 1) * kBound).epsilon(1e-6));
  }
}

TEST_CASE("the values do not depend on how the vector is cut into shards") {
  const TensorLayout layout = MakeLayout();
  const size_t count = layout.float_count();
  const auto all = Init(layout, 5, {0, count});
  for (size_t piece : {16u, 48u, 1008u}) {
    for (size_t first = 0; first < count; first += piece) {
      const ShardRange range{first, std::min(first + piece, count)};
      const auto part = Init(layout, 5, range);
      CHECK(std::equal(part.begin(), part.end(), all.begin() + long(first)));
    }
  }
  // Not even a cut within a block of four changes them.
  const auto part = Init(layout, 5, {5, 51});
  CHECK(std::equal(part.begin(), part.end(), all.begin() + 5));
}

TEST_CASE("the values depend on the seed and on the tensor's name, not on its place") {
  const TensorLayout layout = MakeLayout();
  CHECK(Init(layout, 1, {0, 77}) != Init(layout, 2, {0, 77}));
  const TensorLayout moved(
      {{.name = "first", .shape = {20}},
       {.name = "a.weight", .shape = {77}, .init = InitKind::kUniform, .init_bound = kBound},
       {.name = "c.weight", .shape = {77}, .init = InitKind::kUniform, .init_bound = kBound}});
  CHECK(Init(moved, 1, {32, 32 + 77}) == Init(layout, 1, {0, 77}));
  CHECK(Init(moved, 1, {moved.offset(2), moved.offset(2) + 77}) != Init(layout, 1, {0, 77}));
}

}  // namespace
}  // namespace pando
