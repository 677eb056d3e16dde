#include "common/tensor_init.h"

#include <algorithm>

#include "common/check.h"
#include "common/philox.h"

namespace pando {
namespace {

// Element i of a uniform tensor: word i % 4 of block i / 4, scaled to [-bound, bound).
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
  }
}

}  // namespace pando
