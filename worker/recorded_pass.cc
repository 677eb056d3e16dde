#include "worker/recorded_pass.h"

#include "common/check.h"

namespace pando {

void PassRecordings::Begin(uint32_t sample_count, const float* gradients) {
  next_part_ = 0;
  pass_ = nullptr;
  sample_count_ = sample_count;
  if (!known_counts_.contains(sample_count)) return;
  const auto found = passes_.find({sample_count, gradients});
  if (found == passes_.end() && passes_.size() == kPassesMax) return;
  pass_ = found == passes_.end() ? &passes_[{sample_count, gradients}] : &found->second;
  // A pass that was broken off while it was recorded is recorded anew.
  is_recording_ = pass_->size() < part_count_;
  if (is_recording_) pass_->clear();
}

void PassRecordings::Launch(const std::function<void()>& launches) {
  PANDO_CHECK(next_part_ < part_count_);
  const size_t part = next_part_++;
  if (pass_ == nullptr) {
    launches();
    if (next_part_ == part_count_) known_counts_.insert(sample_count_);
    return;
  }
  if (is_recording_) pass_->emplace_back(device_, launches);
  (*pass_)[part].Launch();
}

}  // namespace pando
