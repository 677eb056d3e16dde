#include "scheduler/snapshot_requests.h"

#include <fmt/core.h>

#include <algorithm>

namespace pando {
namespace {

// The version lies this far ahead, because every shard must get the request before it reaches the
// version. The lead doubles when a shard has passed the version.
constexpr Micros kLead = std::chrono::milliseconds(300);
constexpr uint32_t kAttemptsMax = 6;
// A shard's report of a version takes at most this long.
constexpr Micros kNewsTime = std::chrono::milliseconds(500);
// The shards have this long to store the version, besides twice the lead.
constexpr Micros kStoreTime = std::chrono::seconds(5);

}  // namespace

// Without a worker there is no later version than the committed one.
Version SnapshotRequests::Ask(Micros now) {
  if (!HasWorkers()) return AskFor(now, progress_.committed());
  if (!request_) Ask(now, 1);
  return request_->version;
}

Version SnapshotRequests::AskAfterFailure(Micros now) {
  is_of_failure_ = true;
  return AskFor(now, progress_.committed());
}

Version SnapshotRequests::AskFor(Micros now, Version committed) {
  if (!request_) request_ = Request{committed, 0, now + kStoreTime};
  snapshots_.Expect(request_->version);
  outbox_.RepeatAt(now);
  return request_->version;
}

void SnapshotRequests::Ask(Micros now, uint32_t attempt) {
  const Micros lead = kLead * (1 << (attempt - 1));
  const uint64_t ahead = progress_.committed().value() + 1 + progress_.StepsWithin(lead);
  const Version version(std::min(ahead, progress_.ScalarsEnd().value()));
  request_ = Request{version, attempt, now + 2 * lead + kStoreTime};
  snapshots_.Expect(version);
  outbox_.RepeatAt(now);
}

std::optional<CommandReply> SnapshotRequests::TakeResult(Micros now) {
  if (!request_) return std::nullopt;
  const Version version = request_->version;
  const std::string name = fmt::format("version {}", version.value());
  if (snapshots_.ledger().IsComplete(version)) {
    request_.reset();
    return CommandReply{CommandOutcome::kDone, name};
  }
  // The version is not reached, for example because the last worker is gone.
  if (now >= request_->patience_until && progress_.committed() < version) {
    request_.reset();
    acked_.Clear();  // lanes have acknowledged a later version
    AskFor(now, progress_.committed());
    return std::nullopt;
  }
  const bool was_missed = now >= request_->patience_until && progress_.committed() > version &&
                          !plan_.IsSnapshotDue(version);
  if (!snapshots_.ledger().IsGivenUp(version) && !was_missed) return std::nullopt;
  const bool stands_still = request_->attempts == 0 && (is_of_failure_ || !HasWorkers());
  if (stands_still && AwaitsNews(now)) return std::nullopt;
  if (stands_still || request_->attempts == kAttemptsMax) {
    request_.reset();
    return CommandReply{CommandOutcome::kRefused,
                        "the servers could not store " + name + "; the scheduler's events say why"};
  }
  snapshots_.ledger().GiveUp(version);
  Ask(now, request_->attempts + 1);
  return std::nullopt;
}

// Waits for the lanes' next reports. A shard that was past the version has the next one, and soon
// all shards report that one.
bool SnapshotRequests::AwaitsNews(Micros now) {
  const Version committed = progress_.committed();
  if (committed > request_->version) {
    request_.reset();
    AskFor(now, committed);
    return true;
  }
  request_->patience_until = std::min(request_->patience_until, now + kNewsTime);
  return now < request_->patience_until;
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
