#include "scheduler/leader_gate.h"

namespace pando {

void LeaderGate::Send(Envelope envelope) {
  if (copies_ == nullptr) return outbox_.Send(std::move(envelope));
  const bool is_for_people = HoldsAny<StatusReport, CommandReply>(envelope.message);
  if (!is_for_people && !copies_->MaySpeak()) return;
  if (!HoldsAny<ProgressAck>(envelope.message)) return outbox_.Send(std::move(envelope));
  const uint64_t mark = copies_->Mark();
  if (held_.size() < kHeldMax) held_.emplace_back(mark, std::move(envelope));
  Release();
}

void LeaderGate::Release() {
  while (!held_.empty() && copies_->HasReached(held_.front().first)) {
    if (copies_->MaySpeak()) outbox_.Send(std::move(held_.front().second));
    held_.pop_front();
  }
}

std::optional<SnapshotCheck> LeaderGate::AwaitFiles(
    const SnapshotRef& snapshot, const std::function<std::optional<SnapshotCheck>()>& check) {
  if (!ripe_ || ripe_->snapshot != snapshot) {
    std::optional<SnapshotCheck> found = check();
    if (!found || !found->status.ok() || copies_ == nullptr) return found;
    ripe_ = {snapshot, *std::move(found), copies_->Mark()};
  }
  if (!copies_->HasReached(ripe_->mark)) return std::nullopt;
  return std::exchange(ripe_, std::nullopt)->check;
}

}  // namespace pando
