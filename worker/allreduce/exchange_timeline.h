// ExchangeTimeline is the track of the exchange's thread: sums, and what it waits for between them.
// Used by GradientExchange. Threads: one at a time. Without a timeline each call costs a branch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/timeline.h"
#include "worker/allreduce/bucket_plan.h"

namespace pando {

class ExchangeTimeline {
 public:
  // `timeline` may be null, and outlives this otherwise.
  ExchangeTimeline(Timeline* timeline, const std::vector<Bucket>& buckets);

  void Begin(Step step) { track_.Begin(step); }
  void DidAwaitVersion() { track_.Did(await_version_, 0); }
  void DidCompare() { track_.Did(compare_, 0); }
  void DidAwaitGradients(size_t bucket) { track_.Did(await_, static_cast<uint32_t>(bucket)); }
  void DidHandOver(size_t bucket) { track_.Did(hand_over_, static_cast<uint32_t>(bucket)); }
  void DidSum(size_t bucket) {
    if (track_.is_wanted()) track_.Did(sums_[bucket].name, sums_[bucket].bytes);
  }

 private:
  struct Sum {
    TimelineNameId name;
    uint32_t bytes = 0;
  };
  GaplessTrack track_;
  TimelineNameId await_version_, compare_, await_, hand_over_;
  std::vector<Sum> sums_;  // by bucket
};

}  // namespace pando
