// Shared by the kernel tests: random arrays, and gradients by finite differences of a reference in
// double precision (loops that follow the definition, nothing of the kernels).
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "tests/test_device.h"

namespace pando {

using Doubles = std::vector<double>;

// A number of T, in memory that both the device and the test can access.
template <class T>
class Array {
 public:
  explicit Array(size_t count) : memory_(AllocateForTest(count * sizeof(T))), size_(count) {
    std::uninitialized_value_construct_n(static_cast<T*>(memory_.get()), count);
  }
  Array(Array&&) noexcept = default;
  // Waits for the kernels that may be writing.
  T* data() const {
    Synchronize(TestDevice());
    return static_cast<T*>(memory_.get());
  }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return std::as_writable_bytes(std::span(data(), size_)); }

 private:
  std::shared_ptr<void> memory_;
  size_t size_;
};
using Floats = Array<float>;

// Floats as the kernels take them: 64-byte aligned, with slack, and the slack is poisoned.
inline Floats ToFloats(const Doubles& values) {
  Floats buffer(values.size() + kSlackElements);
  std::fill_n(buffer.data(), buffer.size(), std::numeric_limits<float>::quiet_NaN());
  for (size_t i = 0; i < values.size(); ++i) buffer.data()[i] = static_cast<float>(values[i]);
  return buffer;
}

// An output array, full of what must not matter.
inline Floats Poisoned(size_t count) { return ToFloats(Doubles(count, std::nan(""))); }

// Uniform in [-1, 1), each exactly a float.
inline Doubles RandomDoubles(size_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  Doubles values(count);
  for (double& v : values) v = static_cast<double>(generator() >> 8) / (1 << 23) - 1.0;
  return values;
}

// The largest difference, relative to the largest expected value.
inline double RelativeError(const float* got, const Doubles& expected) {
  double error = 0, largest = 1e-30;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(got[i])) return std::numeric_limits<double>::infinity();
    error = std::max(error, std::abs(static_cast<double>(got[i]) - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  return error / largest;
}

inline double DotProduct(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// d loss / d values[i] for every step-th i (all if few), by central differences; compares with got.
inline double FiniteDifferenceError(Doubles& values, const std::function<double()>& loss,
                                    const float* got, size_t checked_max = 60) {
  constexpr double kStep = 1e-6;  // double: truncation 1e-12, rounding 1e-10
  const size_t step = values.size() / checked_max + 1;
  double error = 0, largest = 1e-30;
  for (size_t i = 0; i < values.size(); i += step) {
    const double center = values[i];
    values[i] = center + kStep;
    const double above = loss();
    values[i] = center - kStep;
    const double below = loss();
    values[i] = center;
    const double expected = (above - below) / (2 * kStep);
    if (std::isnan(got[i])) return std::numeric_limits<double>::infinity();
    error = std::max(error, std::abs(static_cast<double>(got[i]) - expected));
    largest = std::max(largest, std::abs(expected));
  }
  return error / largest;
}

// Whether all of a Poisoned output has been written, and nothing behind it.
inline bool IsAllWritten(const Floats& buffer, size_t count) {
  const auto is_nan = [](float x) { return std::isnan(x); };
  float* const end = buffer.data() + count;
  return std::none_of(buffer.data(), end, is_nan) &&
         std::all_of(end, buffer.data() + buffer.size(), is_nan);
}

inline bool SameBits(const float* a, const float* b, size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

}  // namespace pando
