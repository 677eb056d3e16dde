#include "embed/gradient_builder.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cfloat>

namespace pando {
namespace {

// Computes to = values · weight. Returns false if a product is not finite. Floats without their
// sign compare like integers, which the compiler packs, unlike a test of each float.
bool CopyScaled(const float* values, size_t count, float weight, float* to) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    to[i] = values[i] * weight;
    largest = std::max(largest, std::bit_cast<uint32_t>(to[i]) & 0x7fffffffu);
  }
  return largest <= std::bit_cast<uint32_t>(FLT_MAX);
}

}  // namespace

GradientBuilder::GradientBuilder(const JobPlan& plan, SharedBuffer buffer)
    : plan_(plan),
      buffer_(std::move(buffer)),
      is_given_(plan.layout.tensor_count()),
      open_counts_(plan.shards.shard_count()) {
  for (size_t i = 0; i < plan.layout.tensor_count(); ++i) {
    const ShardPlan::Run run =
        plan.shards.Covering(plan.layout.offset(i), plan.layout.offset(i + 1));
    for (uint32_t s = run.first; s < run.last; ++s) ++open_counts_[s];
  }
}

Result<std::vector<ShardId>> GradientBuilder::Give(size_t tensor, const float* values,
                                                   float weight) {
  const TensorLayout& layout = plan_.layout;
  if (tensor >= layout.tensor_count())
    return InvalidArgument(
        fmt::format("there is no tensor {}: the model has {}", tensor, layout.tensor_count() - 1));
  const TensorSpec& spec = layout.specs()[tensor];
  {
    std::lock_guard lock(mutex_);
    if (is_given_[tensor])
      return InvalidArgument(fmt::format(
          "tensor '{}' got a second gradient in one micro-batch: call backward once, with the sum "
          "of the losses",
          spec.name));
    is_given_[tensor] = true;
  }
  if (!CopyScaled(values, spec.size(), weight, buffer_->data() + layout.offset(tensor)))
    return Internal(fmt::format("the gradient of '{}' is not finite", spec.name));
  return Complete(tensor);
}

std::vector<ShardId> GradientBuilder::GiveZeros(size_t tensor) {
  {
    std::lock_guard lock(mutex_);
    is_given_[tensor] = true;
  }
  std::fill_n(buffer_->data() + plan_.layout.offset(tensor), plan_.layout.specs()[tensor].size(),
              0.0f);
  return Complete(tensor);
}

std::vector<size_t> GradientBuilder::Missing() const {
  std::lock_guard lock(mutex_);
  std::vector<size_t> missing;
  for (size_t i = 0; i < is_given_.size(); ++i) {
    if (!is_given_[i]) missing.push_back(i);
  }
  return missing;
}

// The padding behind a tensor stays zero in every version, and the buffer may have any content.
std::vector<ShardId> GradientBuilder::Complete(size_t tensor) {
  const TensorLayout& layout = plan_.layout;
  const size_t end = layout.offset(tensor) + layout.specs()[tensor].size();
  std::fill(buffer_->data() + end, buffer_->data() + layout.offset(tensor + 1), 0.0f);
  const ShardPlan::Run run =
      plan_.shards.Covering(layout.offset(tensor), layout.offset(tensor + 1));
  std::lock_guard lock(mutex_);
  std::vector<ShardId> complete;
  for (uint32_t s = run.first; s < run.last; ++s) {
    if (--open_counts_[s] == 0) complete.emplace_back(s);
  }
  return complete;
}

}  // namespace pando
