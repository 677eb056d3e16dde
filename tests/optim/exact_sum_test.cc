#include "optim/exact_sum.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <random>
#include <vector>

namespace pando {
namespace {

std::vector<float> Written(const ExactSum& sum) {
  std::vector<float> floats(ExactSum::kFloats);
  sum.Write(floats);
  return floats;
}

// Squares of floats of all magnitudes, the smallest and the largest with them.
std::vector<double> Squares() {
  std::mt19937 random(7);
  std::vector<double> squares;
  const auto add = [&](float x) { squares.push_back(static_cast<double>(x) * x); };
  while (squares.size() < 3000) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(random()) & 0x7fffffff);
    if (std::isfinite(x)) add(x);
  }
  add(std::numeric_limits<float>::denorm_min());
  add(std::numeric_limits<float>::max());
  add(0.0f);
  return squares;
}

TEST_CASE("a sum does not depend on the order and the groups of its summands") {
  std::vector<double> squares = Squares();
  ExactSum in_order;
  for (const double x : squares) in_order.Add(x);
  std::mt19937 random(8);
  for (int trial = 0; trial < 20; ++trial) {
    std::ranges::shuffle(squares, random);
    ExactSum whole, group;
    for (const double x : squares) {
      group.Add(x);
      if (random() % 50 != 0) continue;
      whole.AddWritten(Written(group));
      group = ExactSum();
    }
    whole.AddWritten(Written(group));
    CHECK(Written(whole) == Written(in_order));
    CHECK(whole.Total() == in_order.Total());
  }
}

TEST_CASE("no summand is lost beside one that is far larger") {
  ExactSum sum;
  sum.Add(std::ldexp(1.0, 255));
  sum.Add(std::ldexp(1.0, -298));
  std::vector<float> difference = Written(sum);
  CHECK(difference.front() == 1.0f);  // the lowest digit
  CHECK(sum.Total() == std::ldexp(1.0, 255));
}

TEST_CASE("small integers have the sum that a double has") {
  ExactSum sum;
  double expected = 0;
  for (int i = 0; i < 5000; ++i) {
    sum.Add(i * i);
    expected += i * i;
  }
  CHECK(sum.Total() == expected);
  CHECK(ExactSum().Total() == 0.0);
}

TEST_CASE("a summand that is not finite makes the sum so") {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  ExactSum infinite;
  infinite.Add(1.0);
  infinite.Add(kInf);
  CHECK(infinite.Total() == kInf);
  infinite.Add(std::numeric_limits<double>::quiet_NaN());
  ExactSum copy;
  copy.AddWritten(Written(infinite));
  CHECK(std::isnan(copy.Total()));
}

}  // namespace
}  // namespace pando
