#include "scheduler/ownership.h"

#include <algorithm>

#include "proto/assignment.h"
#include "proto/ownership.h"

namespace pando {
namespace {

// Returns whether the member may send the message now. One that is not ready, or has no work left,
// reports only about itself.
bool FitsStage(const Member& sender, const Message& message) {
  if (!sender.is_ready) return HoldsAny<Ready, Heartbeat, Failure, Leave, Bye>(message);
  return !sender.is_leaving || HoldsAny<Heartbeat, ViewAck, Leave, Bye, Failure>(message);
}

}  // namespace

Ownership::Ownership(const std::optional<SchedulerState>& state, const JobPlan& plan,
                     const ViewLedger& views, const EvaluationRounds& evaluations)
    : plan_(plan), views_(views), evaluations_(evaluations) {
  if (!state) return;
  holders_ = state->holders;
  OnView();
}

bool Ownership::Admits(const Member& sender, const Envelope& envelope) const {
  if (!FitsStage(sender, envelope.message)) return false;
  const bool is_of_view = RowFor(envelope.message).generation == Generation::kOne;
  if (is_of_view && FindNode(views_.view(), sender.peer.node) == nullptr) return false;
  return IsOwn(sender, envelope);
}

bool Ownership::IsOwn(const Member& sender, const Envelope& envelope) const {
  switch (RowFor(envelope.message).about) {
    case About::kHolder:
      return AreAllShards(envelope.message,
                          [&](ShardId shard) { return holders_.Has(shard, envelope.sender); });
    case About::kSlice:
      return evaluations_.HasSlice(sender.peer.node, std::get<EvaluationResult>(envelope.message));
    case About::kPrimary:
      // FinalWeights asks the primaries, and then backups.
      if (HoldsAny<Params>(envelope.message)) {
        return AreAllShards(envelope.message, [&](ShardId shard) {
          return HasReplica(views_.view(), shard, envelope.sender);
        });
      }
      [[fallthrough]];
    case About::kReplica:
      return IsAboutOwnShards(views_.view(), envelope);
    case About::kItself:
    case About::kMicroBatch:  // GradientComparison asks for each item
      return true;
  }
  return false;
}

bool Ownership::IsComputedBy(NodeId worker, Step step, MicroBatch micro_batch) const {
  return std::ranges::any_of(last_views_, [&](const View& view) {
    if (micro_batch.value() >= view.owners.size()) return false;
    return ComputesAt(view.owners[micro_batch.value()], step) == worker ||
           FindVerifier(view, step, micro_batch) == worker;
  });
}

void Ownership::OnView() {
  const View& view = views_.view();
  if (holders_.generation != view.generation) last_views_.clear();
  holders_.Add(view);
  if (plan_.job.verify_every == 0) return;
  last_views_.push_back(view);
  last_views_.back().shards.clear();
  if (last_views_.size() > kViewsMax) last_views_.pop_front();
}

}  // namespace pando
