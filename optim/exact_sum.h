// ExactSum adds squares of floats, or sums of such squares, without any rounding. The result is the
// same for every order and grouping of the summands, so servers may add parts of a norm however the
// parameters are cut into shards. It is a fixed-point number as in Kulisch, "Computer Arithmetic
// and Validity", 2008, chapter 8. Threads: none.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pando {

class ExactSum {
 public:
  // The sum as floats, for messages and records: its digits, the lowest first, and then the sum of
  // the values that were infinite or NaN.
  static constexpr size_t kDigits = 25;
  static constexpr size_t kFloats = kDigits + 1;

  // REQUIRES: x >= 0 is a multiple of 2^-298, the square of the smallest float, and below 2^280; or
  // x is not finite.
  void Add(double x) {
    if (!std::isfinite(x)) {
      special_ += x;
      return;
    }
    int exponent = 0;
    const double fraction = std::frexp(x, &exponent);  // x = fraction * 2^exponent
    // The place of the mantissa's lowest bit. Below the lowest digit the mantissa has only zeros.
    const int place = std::max(0, exponent - kMantissaBits - kLowestExponent);
    const int shift = exponent - kLowestExponent - place;
    auto mantissa = static_cast<uint64_t>(std::ldexp(fraction, shift));
    size_t digit = static_cast<size_t>(place) / kDigitBits;
    const size_t offset = static_cast<size_t>(place) % kDigitBits;
    digits_[digit++] += static_cast<double>((mantissa << offset) & kDigitMask);
    for (mantissa >>= kDigitBits - offset; mantissa != 0; mantissa >>= kDigitBits)
      digits_[digit++] += static_cast<double>(mantissa & kDigitMask);
  }
  // Adds a sum that Write wrote.  REQUIRES: kFloats floats.
  void AddWritten(std::span<const float> sum) {
    for (size_t d = 0; d < kDigits; ++d) digits_[d] += static_cast<double>(sum[d]);
    special_ += static_cast<double>(sum[kDigits]);
  }
  void Write(std::span<float> sum) const {
    const std::array<double, kDigits> digits = Carried();
    for (size_t d = 0; d < kDigits; ++d) sum[d] = static_cast<float>(digits[d]);
    sum[kDigits] = static_cast<float>(special_);
  }
  // Returns the sum as a double; infinite or NaN if a summand was.
  double Total() const {
    const std::array<double, kDigits> digits = Carried();
    double total = special_;
    for (size_t d = 0; d < kDigits; ++d)
      total += std::ldexp(digits[d], static_cast<int>(d * kDigitBits) + kLowestExponent);
    return total;
  }

 private:
  static constexpr int kMantissaBits = 53;
  static constexpr int kLowestExponent = -298;  // of the lowest digit's unit
  static constexpr size_t kDigitBits = 24;      // a float holds a digit exactly
  static constexpr uint64_t kDigitMask = (uint64_t{1} << kDigitBits) - 1;

  // Returns the digits below 2^24. A double holds 2^29 additions to a digit exactly.
  std::array<double, kDigits> Carried() const {
    constexpr double kBase = kDigitMask + 1;
    std::array<double, kDigits> digits = digits_;
    for (size_t d = 0; d + 1 < kDigits; ++d) {
      const double carry = std::floor(digits[d] / kBase);
      digits[d] -= carry * kBase;
      digits[d + 1] += carry;
    }
    return digits;
  }

  std::array<double, kDigits> digits_ = {};
  double special_ = 0;
};

}  // namespace pando
