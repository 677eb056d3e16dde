#include "plan/tensor_init.h"

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
       {.name = "b.weight", .shape = {4000}, .init = InitKind::kUniform, .init_bound = 1.0f},
       {.name = "c.weight", .shape = {333}, .init = InitKind::kNormal, .init_stddev = 0.1f}});
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

TEST_CASE("normal values have the moments, the tails and the quantiles of their distribution") {
  constexpr size_t kCount = 200000;
  constexpr double kDeviations = 5;  // of each estimate, by kCount
  const TensorLayout layout({{.name = "conv.weight",
                              .shape = {kCount},
                              .init = InitKind::kNormal,
                              .init_stddev = 0.25f}});
  const auto all = Init(layout, 1, {0, kCount});
  double sum[5] = {};
  size_t within[3] = {};
  double largest = 0, neighbours = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const double z = double(all[i]) / 0.25;
    for (int p = 1; p <= 4; ++p) sum[p] += std::pow(z, p) / kCount;
    for (size_t k = 0; k < 3; ++k) within[k] += std::abs(z) < double(k + 1);
    largest = std::max(largest, std::abs(z));
    if (i > 0) neighbours += z * double(all[i - 1]) / 0.25 / kCount;
  }
  const double unit = kDeviations / std::sqrt(double(kCount));
  CHECK(std::abs(sum[1]) < unit);
  CHECK(std::abs(sum[2] - 1) < unit * std::sqrt(2.0));
  CHECK(std::abs(sum[3]) < unit * std::sqrt(15.0));
  CHECK(std::abs(sum[4] - 3) < unit * std::sqrt(96.0));
  CHECK(std::abs(neighbours) < unit);
  const double shares[] = {0.682689, 0.954500, 0.997300};
  for (size_t k = 0; k < 3; ++k) {
    CHECK(std::abs(double(within[k]) / kCount - shares[k]) <
          unit * std::sqrt(shares[k] * (1 - shares[k])));
  }
  CHECK(largest > 4);
  CHECK(largest < 6);
}

TEST_CASE("a normal pair is the polar method's, with the logarithm of the C library") {
  const TensorLayout layout(
      {{.name = "n", .shape = {64}, .init = InitKind::kNormal, .init_stddev = 1.0f}});
  const auto all = Init(layout, 3, {0, 64});
  const PhiloxKey key = MakePhiloxKey(3, RandomPurpose::kInit, "n");
  size_t checked = 0;
  for (uint32_t pair = 0; pair < 32; ++pair) {
    const PhiloxBlock block = Philox4x32({pair, 0, 0, 0}, key);
    const double x = (block[0] + 0.5) / 2147483648.0 - 1, y = (block[1] + 0.5) / 2147483648.0 - 1;
    const double square = x * x + y * y;
    if (square >= 1) continue;
    const double factor = std::sqrt(-2 * std::log(square) / square);
    CHECK(double(all[2 * pair]) == doctest::Approx(x * factor).epsilon(1e-7));
    CHECK(double(all[2 * pair + 1]) == doctest::Approx(y * factor).epsilon(1e-7));
    ++checked;
  }
  CHECK(checked > 16);
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
