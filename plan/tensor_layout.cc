#include "plan/tensor_layout.h"

#include <algorithm>

namespace pando {

uint64_t TensorSpec::size() const {
  uint64_t n = 1;
  for (uint64_t d : shape) n *= d;
  return n;
}

TensorSpec MetricTensorSpec(size_t log_count) {
  return {.name = kMetricTensorName,
          .shape = {kMetricSlotCount + log_count},
          .kind = TensorKind::kMetric};
}

TensorLayout::TensorLayout(std::vector<TensorSpec> specs) : specs_(std::move(specs)) {
  for (const TensorSpec& spec : specs_) {
    offsets_.push_back(Padded(offsets_.back() + spec.size()));
  }
}

uint64_t TensorLayout::parameter_count() const {
  uint64_t n = 0;
  for (const TensorSpec& spec : specs_) n += spec.kind == TensorKind::kParameter ? spec.size() : 0;
  return n;
}

size_t TensorLayout::Find(const std::string& name) const {
  auto it = std::find_if(specs_.begin(), specs_.end(),
                         [&](const TensorSpec& spec) { return spec.name == name; });
  return static_cast<size_t>(it - specs_.begin());
}

}  // namespace pando
