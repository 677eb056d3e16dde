#include "scheduler/snapshot_requests.h"

#include <algorithm>
#include <utility>

namespace pando {
namespace {

// How far ahead the version lies: every shard must get the request before it comes to the version.
// Doubled when a shard has passed it.
constexpr Micros kLead = std::chrono::milliseconds(300);
constexpr uint32_t kAttemptsMax = 6;
// How long the shards have to store the version, beside twice the lead.
constexpr Micros kStoreTime = std::chrono::seconds(5);

}  // namespace

Version SnapshotRequests::Ask(Micros now) {
  if (!request_) Ask(now, 1);
  return request_->version;
}

void SnapshotRequests::Ask(Micros now, uint32_t attempt) {
  const Micros lead = kLead * (1 << (attempt - 1));
  const uint64_t ahead = progress_.committed().value() + 1 + progress_.StepsWithin(lead);
  const Version version(std::min(ahead, progress_.ScalarsEnd().value()));
  request_ = Request{version, attempt, now + 2 * lead + kStoreTime};
  outbox_.RepeatAt(now);
}

std::optional<SnapshotRequests::Result> SnapshotRequests::TakeResult(Micros now) {
  if (!request_) return std::nullopt;
  const Version version = request_->version;
  const std::string name = "version " + std::to_string(version.value());
  if (snapshots_.ledger().IsComplete(version)) {
    request_.reset();
    return Result{CommandOutcome::kDone, name};
  }
  const bool was_missed = now >= request_->patience_until && progress_.committed() > version &&
                          !plan_.IsSnapshotDue(version);
  if (!snapshots_.ledger().IsGivenUp(version) && !was_missed) return std::nullopt;
  if (request_->attempts == kAttemptsMax) {
    request_.reset();
    return Result{CommandOutcome::kRefused,
                  "the servers could not store " + name + "; the scheduler's events say why"};
  }
  snapshots_.GiveUp(version);
  Ask(now, request_->attempts + 1);
  return std::nullopt;
}

void SnapshotRequests::RepeatTo(const PeerId& lane) {
  if (!request_ || plan_.IsSnapshotDue(request_->version)) return;
  if (acked_.Newest(lane) < request_->version) outbox_.Send(lane, SnapshotAt{request_->version});
}

void SnapshotRequests::StartGeneration(Micros now) {
  acked_.Clear();
  if (request_) Ask(now, 1);
}

}  // namespace pando
