#include "data/permutation.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <vector>

namespace pando {
namespace {

std::vector<uint64_t> All(uint64_t size, uint64_t seed, uint64_t epoch) {
  const Permutation permutation(size, seed, epoch);
  std::vector<uint64_t> all;
  for (uint64_t i = 0; i < size; ++i) all.push_back(permutation.At(i));
  return all;
}

TEST_CASE("a permutation is a bijection for any size") {
  for (uint64_t size : {1u, 2u, 3u, 4u, 5u, 7u, 63u, 64u, 65u, 1000u, 60000u}) {
    for (uint64_t epoch : {0u, 1u, 7u}) {
      std::vector<bool> seen(size);
      for (uint64_t image : All(size, 1, epoch)) {
        REQUIRE(image < size);
        CHECK_FALSE(seen[image]);
        seen[image] = true;
      }
    }
  }
}

TEST_CASE("another epoch or another seed is another permutation") {
  const auto base = All(1000, 1, 0);
  CHECK(All(1000, 1, 0) == base);
  CHECK(All(1000, 1, 1) != base);
  CHECK(All(1000, 2, 0) != base);
  CHECK(All(1000, 1, uint64_t{1} << 32) != base);
}

TEST_CASE("a permutation leaves about one index in its place") {
  // The count of fixed points of a random permutation has mean 1 and deviation 1; over 400
  // permutations the mean's deviation is 0.05.
  uint64_t fixed = 0;
  for (uint64_t epoch = 0; epoch < 400; ++epoch) {
    const auto all = All(1000, 3, epoch);
    for (uint64_t i = 0; i < all.size(); ++i) fixed += all[i] == i ? 1 : 0;
  }
  CHECK(fixed > 400 - 5 * 20);
  CHECK(fixed < 400 + 5 * 20);
}

TEST_CASE("over many epochs every sample comes first about equally often") {
  // Chi-squared over 10 places with 9 degrees of freedom: mean 9, deviation 4.2; 40 is 7 of them.
  constexpr uint64_t kSize = 10, kEpochs = 5000;
  for (uint64_t position : {uint64_t{0}, uint64_t{5}, kSize - 1}) {
    std::array<double, kSize> counts{};
    for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
      counts[Permutation(kSize, 11, epoch).At(position)] += 1;
    }
    double chi_squared = 0;
    for (double count : counts) {
      const double expected = double(kEpochs) / kSize;
      chi_squared += (count - expected) * (count - expected) / expected;
    }
    CHECK(chi_squared < 40);
  }
}

TEST_CASE("neighbours are torn apart") {
  // The mean distance of two random places is a third of the size.
  constexpr uint64_t kSize = 60000;
  const auto all = All(kSize, 1, 0);
  double distance_sum = 0;
  for (uint64_t i = 1; i < kSize; ++i) {
    distance_sum += std::abs(double(all[i]) - double(all[i - 1]));
  }
  CHECK(distance_sum / kSize == doctest::Approx(kSize / 3.0).epsilon(0.02));
}

TEST_CASE("data sets of billions need no storage") {
  constexpr uint64_t kSize = uint64_t{5} << 40;
  const Permutation permutation(kSize, 1, 0);
  CHECK(permutation.At(0) < kSize);
  CHECK(permutation.At(kSize - 1) < kSize);
  CHECK(permutation.At(0) != permutation.At(1));
}

}  // namespace
}  // namespace pando
