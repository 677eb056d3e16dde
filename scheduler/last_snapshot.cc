#include "scheduler/last_snapshot.h"

#include <algorithm>
#include <utility>

namespace pando {

void LastSnapshot::End(Micros now, StopReason reason, std::string text) {
  if (pending_ && reason == StopReason::kFailed) return;  // the first reason counts
  if (pending_ || !HasNews()) return phase_.End(now, reason, std::move(text));
  pending_ = Pending{{reason, std::move(text)}, progress_.committed(), {}, now + kPatience};
  Ask(now);
}

// Asks for a snapshot. An open request may be for an earlier version than the committed one.
void LastSnapshot::Ask(Micros now) {
  const Stop& stop = pending_->stop;
  // After a failure the run may make no further step.
  pending_->asked =
      stop.reason == StopReason::kFailed ? requests_.AskAfterFailure(now) : requests_.Ask(now);
  outbox_.TellNotable(now, "last-snapshot", "",
                      "{}: storing a snapshot of step {} first; another signal ends the run "
                      "without it",
                      stop.text, pending_->asked.value());
}

void LastSnapshot::Tick(Micros now) {
  if (pending_ && !phase_.is_training()) pending_.reset();  // it reached its last version first
  if (!pending_ || (requests_.is_open() && now < pending_->patience_until)) return;
  const bool is_earlier = HasNews() && pending_->asked < pending_->committed;
  if (is_earlier && now < pending_->patience_until) return Ask(now);
  phase_.End(now, pending_->stop.reason, std::move(pending_->stop.text));
  pending_.reset();
}

// Returns whether steps were made that no snapshot has. A group stores only snapshots that are due.
bool LastSnapshot::HasNews() const {
  if (!phase_.is_training() || !snapshots_.has_store() || IsGroup(plan_)) return false;
  return Stored() < progress_.committed();
}

// Returns the newest version that `pando resume` can begin with.
Version LastSnapshot::Stored() const {
  const auto& complete = snapshots_.ledger().complete();
  const Version restore = views_.view().restore.version;
  return complete.empty() ? restore : std::max(restore, complete.back().snapshot.version);
}

}  // namespace pando
