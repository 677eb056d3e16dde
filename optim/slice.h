// Slice is the part of an update within one block of floats. The formulas of update_rules.h read
// and write it. Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cpu/float_arrays.h"
#include "optim/optimizer.h"

namespace pando {

// An update is computed block by block, so that an expression reads the last one's results from the
// fastest cache, while the processor fetches later blocks. Expressions work element by element, so
// bits do not depend on how a vector is cut or on the width of registers.
constexpr int kBlockFloats = 128;
template <int kSize>  // kBlockFloats, or Eigen::Dynamic for the rest
using Block = Eigen::Array<float, kSize, 1, Eigen::ColMajor, kBlockFloats, 1>;

// Slice is the part of an update within one block. A state may be updated in place. Parameters
// depend on states and are written after them.
template <int kSize>
class Slice {
 public:
  using In = Eigen::Map<const Eigen::Array<float, kSize, 1>>;
  using Out = Eigen::Map<Eigen::Array<float, kSize, 1>>;
  Slice(const Optimizer::Update& u, ShardRange part)
      : u_(u),
        at_(part.first - u.range.first),
        count_(static_cast<Eigen::Index>(part.size())),
        gradient_(u.gradient.data() + at_) {
    // Adds the halves of the root here. Adding them earlier would move a third more memory.
    if (u.gradient_right.empty()) return;
    sum_ = In(gradient_, count_) + In(u.gradient_right.data() + at_, count_);
    gradient_ = sum_.data();
  }
  Slice(const Slice&) = delete;
  Slice& operator=(const Slice&) = delete;

  In parameters() const { return {u_.parameters.data() + at_, count_}; }
  In read() const { return {(u_.read.empty() ? u_.parameters : u_.read).data() + at_, count_}; }
  In state(uint32_t k) const { return {u_.state.data() + StateAt(k), count_}; }
  Out parameters_out() const { return {u_.parameters_out.data() + at_, count_}; }
  Out state_out(uint32_t k) const { return {u_.state_out.data() + StateAt(k), count_}; }
  // The mean over the step's samples, or weights.
  auto MeanGradient() const {
    return In(gradient_, count_) * u_.weight_scale.value_or(u_.gradient_scale);
  }
  auto MeanStatistic() const { return In(gradient_, count_) * u_.gradient_scale; }

 private:
  size_t StateAt(uint32_t k) const { return k * u_.range.size() + at_; }

  const Optimizer::Update& u_;
  const size_t at_;
  const Eigen::Index count_;
  const float* gradient_;
  Block<kSize> sum_;  // the sum of the gradient's halves, if there are two
};

// Calls visit(slice) for each block of the part. Without `flatten` g++ would leave calls in each
// block, because it limits how much it inlines.
template <class Visit>
[[gnu::flatten]] void VisitSlices(const Optimizer::Update& u, ShardRange part, Visit visit) {
  for (; part.size() >= kBlockFloats; part.first += kBlockFloats) {
    visit(Slice<kBlockFloats>(u, {part.first, part.first + kBlockFloats}));
  }
  visit(Slice<Eigen::Dynamic>(u, part));
}

}  // namespace pando
