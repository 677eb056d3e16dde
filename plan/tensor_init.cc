#include "plan/tensor_init.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "common/philox.h"

namespace pando {
namespace {

// Element i of a uniform tensor is word i % 4 of block i / 4, scaled to [-bound, bound).
void FillUniform(const TensorSpec& spec, uint64_t seed, uint64_t first, std::span<float> out) {
  const PhiloxKey key = MakePhiloxKey(seed, RandomPurpose::kInit, spec.name);
  PhiloxBlock block{};
  for (uint64_t i = first; i < first + out.size(); ++i) {
    if (i % 4 == 0 || i == first) {
      block = Philox4x32({static_cast<uint32_t>(i / 4), static_cast<uint32_t>(i >> 34), 0, 0}, key);
    }
    const float u = UniformFloat(block[i % 4]);
    out[i - first] = (u + u - 1.0f) * spec.init_bound;
  }
}

// Returns the natural logarithm of x > 0. It uses the series ln m = 2 (t + t³/3 + t⁵/5 + ...) with
// t = (m − 1) / (m + 1). With m in [0.7, 1.5) eleven terms are exact to 1e-16. The C library's log
// may round differently on another machine.
double Log(double x) {
  constexpr double kLn2 = 0.693147180559945309417232121458;
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // exact; m in [0.5, 1)
  if (m < 0.75) {
    m = m + m;
    exponent -= 1;
  }
  const double t = (m - 1.0) / (m + 1.0);
  const double square = t * t;
  double sum = 0.0;
  for (int k = 10; k >= 0; --k) sum = sum * square + 1.0 / (2 * k + 1);
  return 2.0 * t * sum + exponent * kLn2;
}

// Returns a uniform value in (-1, 1), never 0.
double Signed(uint32_t bits) {
  return (static_cast<double>(bits) + 0.5) * (1.0 / 2147483648.0) - 1.0;
}

struct NormalPair {
  double values[2];
};

// Marsaglia's polar method takes the first point of Philox blocks (pair, attempt) that is inside
// the unit circle. A block has two points.
NormalPair DrawNormals(const PhiloxKey& key, uint64_t pair) {
  for (uint32_t attempt = 0;; ++attempt) {
    const PhiloxBlock block = Philox4x32(
        {static_cast<uint32_t>(pair), static_cast<uint32_t>(pair >> 32), attempt, 0}, key);
    for (size_t i = 0; i < block.size(); i += 2) {
      const double x = Signed(block[i]), y = Signed(block[i + 1]);
      const double square = x * x + y * y;
      if (square >= 1.0) continue;
      const double factor = std::sqrt(-2.0 * Log(square) / square);
      return {{x * factor, y * factor}};
    }
  }
}

// Elements 2i and 2i + 1 of a normal tensor are pair i.
void FillNormal(const TensorSpec& spec, uint64_t seed, uint64_t first, std::span<float> out) {
  const PhiloxKey key = MakePhiloxKey(seed, RandomPurpose::kInit, spec.name);
  NormalPair pair{};
  for (uint64_t i = first; i < first + out.size(); ++i) {
    if (i % 2 == 0 || i == first) pair = DrawNormals(key, i / 2);
    out[i - first] = static_cast<float>(pair.values[i % 2] * static_cast<double>(spec.init_stddev));
  }
}

}  // namespace

void InitRange(const TensorLayout& layout, uint64_t seed, ShardRange range, std::span<float> out) {
  PANDO_CHECK(out.size() == range.size());
  std::fill(out.begin(), out.end(), 0.0f);
  for (size_t t = 0; t < layout.tensor_count(); ++t) {
    const TensorSpec& spec = layout.specs()[t];
    const size_t first = std::max(layout.offset(t), range.first);
    const size_t last = std::min(layout.offset(t) + spec.size(), range.last);
    if (first >= last) continue;
    std::span<float> part = out.subspan(first - range.first, last - first);
    if (spec.init == InitKind::kOne) std::fill(part.begin(), part.end(), 1.0f);
    if (spec.init == InitKind::kUniform) FillUniform(spec, seed, first - layout.offset(t), part);
    if (spec.init == InitKind::kNormal) FillNormal(spec, seed, first - layout.offset(t), part);
  }
}

void FillVersionZero(const JobPlan& plan, ShardRange range, std::span<float> out) {
  if (plan.initial == nullptr) return InitRange(plan.layout, plan.job.seed, range, out);
  std::ranges::copy(plan.initial->span().subspan(range.first, range.size()), out.begin());
}

}  // namespace pando
