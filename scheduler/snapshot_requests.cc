#include "scheduler/snapshot_requests.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/mutation.h"

namespace pando {
namespace {

// How far ahead the version lies: every shard must get the request before it comes to the version.
// Doubled when a shard has passed it.
constexpr Micros kLead = std::chrono::milliseconds(300);
constexpr uint32_t kAttemptsMax = 6;
// How long a shard's news of a version takes, at most.
constexpr Micros kNewsTime = std::chrono::milliseconds(500);
// How long the shards have to store the version, beside twice the lead.
constexpr Micros kStoreTime = std::chrono::seconds(5);

}  // namespace

// Without a worker no later version comes.
Version SnapshotRequests::Ask(Micros now) {
  if (!HasWorkers()) return AskFor(now, run_.progress.committed());
  if (!request_) Ask(now, 1);
  return request_->version;
}

Version SnapshotRequests::AskAfterFailure(Micros now) {
  is_of_failure_ = true;
  return AskFor(now, run_.progress.committed());
}

Version SnapshotRequests::AskFor(Micros now, Version committed) {
  if (!request_) request_ = Request{committed, 0, now + kStoreTime};
  snapshots_.Expect(request_->version);
  run_.outbox.RepeatAt(now);
  return request_->version;
}

void SnapshotRequests::Ask(Micros now, uint32_t attempt) {
  const Micros lead = kLead * (1 << (attempt - 1));
  const uint64_t ahead = run_.progress.committed().value() + 1 + run_.progress.StepsWithin(lead);
  const Version version(std::min(ahead, run_.progress.ScalarsEnd().value()));
  request_ = Request{version, attempt, now + 2 * lead + kStoreTime};
  snapshots_.Expect(version);
  run_.outbox.RepeatAt(now);
}

std::optional<CommandReply> SnapshotRequests::TakeResult(Micros now) {
  if (!request_) return std::nullopt;
  const Version version = request_->version;
  const std::string name = fmt::format("version {}", version.value());
  if (snapshots_.ledger().IsComplete(version)) {
    request_.reset();
    return CommandReply{CommandOutcome::kDone, name};
  }
  // The version does not come: the last worker is gone, say.
  if (now >= request_->patience_until && run_.progress.committed() < version) {
    request_.reset();
    acked_.Clear();  // lanes have acknowledged a later version
    AskFor(now, run_.progress.committed());
    return std::nullopt;
  }
  const bool was_missed = now >= request_->patience_until && run_.progress.committed() > version &&
                          !run_.plan.IsSnapshotDue(version);
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

// A shard that was past the version has the next one, and the scheduler hears soon that all have.
bool SnapshotRequests::AwaitsNews(Micros now) {
  const Version committed = run_.progress.committed();
  if (committed > request_->version) {
    request_.reset();
    AskFor(now, committed);
    return true;
  }
  request_->patience_until = std::min(request_->patience_until, now + kNewsTime);
  return now < request_->patience_until;
}

void SnapshotRequests::RepeatTo(const PeerId& lane) {
  if (!request_ || run_.plan.IsSnapshotDue(request_->version)) return;
  if (acked_.Newest(lane) < request_->version)
    run_.outbox.Send(lane, SnapshotAt{request_->version});
}

void SnapshotRequests::StartGeneration(Micros now) {
  acked_.Clear();
  if (request_) Ask(now, 1);
}

// ---- the end of a run --------------------------------------------------------------------------

void LastSnapshot::End(Micros now, StopReason reason, std::string text) {
  if (pending_ && reason == StopReason::kFailed) return;  // the first reason counts
  if (pending_ || !HasNews() || Mutated(Mutation::kEndWithoutSnapshot))
    return run_.phase.End(now, reason, std::move(text));
  pending_ = Pending{{reason, std::move(text)}, run_.progress.committed(), {}, now + kPatience};
  Ask(now);
}

// A request that is open already may be for a version before the last one.
void LastSnapshot::Ask(Micros now) {
  const Stop& stop = pending_->stop;
  // After a failure the run may make no further step.
  pending_->asked =
      stop.reason == StopReason::kFailed ? requests_.AskAfterFailure(now) : requests_.Ask(now);
  run_.outbox.TellNotable(now, "last-snapshot", "",
                          "{}: storing a snapshot of step {} first; another signal ends the run "
                          "without it",
                          stop.text, pending_->asked.value());
}

void LastSnapshot::Tick(Micros now) {
  if (pending_ && !run_.phase.is_training()) pending_.reset();  // its last version came first
  if (!pending_ || (requests_.is_open() && now < pending_->patience_until)) return;
  const bool is_earlier = HasNews() && pending_->asked < pending_->committed;
  if (is_earlier && now < pending_->patience_until) return Ask(now);
  run_.phase.End(now, pending_->stop.reason, std::move(pending_->stop.text));
  pending_.reset();
}

// Whether steps were made that no snapshot has. A group's members store what is due and no more.
bool LastSnapshot::HasNews() const {
  if (!run_.phase.is_training() || !snapshots_.has_store() || run_.IsGroup()) return false;
  return Stored() < run_.progress.committed();
}

// The newest version that `pando resume` can begin with.
Version LastSnapshot::Stored() const {
  const auto& complete = snapshots_.ledger().complete();
  const Version restore = run_.view().restore.version;
  return complete.empty() ? restore : std::max(restore, complete.back().snapshot.version);
}

}  // namespace pando
