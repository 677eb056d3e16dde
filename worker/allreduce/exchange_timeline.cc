#include "worker/allreduce/exchange_timeline.h"

#include <algorithm>
#include <string>

namespace pando {

ExchangeTimeline::ExchangeTimeline(Timeline* timeline, const std::vector<Bucket>& buckets)
    : track_(timeline, "exchange") {
  if (timeline == nullptr) return;
  await_version_ = timeline->Name({"wait for the version", "wait", ""});
  compare_ = timeline->Name({"compare weights", "allreduce", ""});
  await_ = timeline->Name({"wait for gradients", "wait", "bucket"});
  hand_over_ = timeline->Name({"hand sums over", "push", "bucket"});
  for (size_t b = 0; b < buckets.size(); ++b) {
    const size_t bytes = buckets[b].floats.size() * sizeof(float);
    sums_.push_back(
        {timeline->Name({"allreduce of bucket " + std::to_string(b), "allreduce", "bytes"}),
         static_cast<uint32_t>(std::min<size_t>(bytes, UINT32_MAX))});
  }
}

}  // namespace pando
