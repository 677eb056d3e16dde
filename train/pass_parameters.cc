#include "train/pass_parameters.h"

namespace pando {

// Without layer residency forward has waited for all that backward reads.
Status PassParameters::Await(size_t turn) {
  if (Status s = CheckWanted(); !s.ok()) return s;
  const LayerReads& reads = reads_[turn];
  if (turn < reads_.size() / 2)
    return Advance(reads.now, reads.next, [this] { return control_.IsInterrupted(); });
  if (!is_layered_) return {};
  return Advance(reads.now, reads.next, [this] { return control_.IsAbandoned(is_partly_out_); });
}

Status PassParameters::AwaitShard(ShardId shard) {
  return Advance({shard.value(), shard.value() + 1}, reads_.front().now,
                 [this] { return control_.IsInterrupted(); });
}

Status PassParameters::CheckWanted() const {
  if (control_.IsAbandoned(is_partly_out_)) return Interrupted("the work was abandoned");
  return {};
}

Status PassParameters::Advance(ShardPlan::Run now, ShardPlan::Run next,
                               const std::function<bool()>& interrupted) {
  const auto start = std::chrono::steady_clock::now();
  const Status arrived = hold_.Advance(
      now, next, interrupted,
      [this](const std::vector<ShardId>& shards) { control_.FetchParameters(shards); });
  waited_ += std::chrono::steady_clock::now() - start;
  timeline_.Did(StepTimeline::What::kAwaitParameters);
  return arrived;
}

}  // namespace pando
