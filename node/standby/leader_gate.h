// LeaderGate is the outbox of a scheduler that may have standbys (P47). An acknowledgement of rows
// waits until the standbys have the rows, and a snapshot until they have its files. After the
// lease's deadline nothing leaves but answers to people, which tell what this process waits for.
// Threads: the scheduler's.
#pragma once

#include <deque>
#include <optional>
#include <utility>

#include "node/standby/leadership.h"
#include "scheduler/journaled_outbox.h"

namespace pando {

// Without `leadership` it is a pipe.
class LeaderGate : public Outbox {
 public:
  LeaderGate(Outbox& outbox, Leadership* leadership) : outbox_(outbox), leadership_(leadership) {}

  void Send(Envelope envelope) override {
    if (leadership_ == nullptr) return outbox_.Send(std::move(envelope));
    const bool is_for_people = HoldsAny<StatusReport, CommandReply>(envelope.message);
    if (!is_for_people && !leadership_->MaySpeak()) return;
    if (!HoldsAny<ProgressAck>(envelope.message)) return outbox_.Send(std::move(envelope));
    const uint64_t mark = leadership_->keeper().Mark();
    if (held_.size() < kHeldMax) held_.emplace_back(mark, std::move(envelope));
    Release();
  }
  // Sends the acknowledgements that the standbys allow now.
  void Release() {
    while (!held_.empty() && leadership_->keeper().HasReached(held_.front().first)) {
      if (leadership_->MaySpeak()) outbox_.Send(std::move(held_.front().second));
      held_.pop_front();
    }
  }

  // Returns the check of a complete snapshot's files once the standbys have them, too. `check` is
  // called until it has read the files.
  template <class Check>
  std::optional<SnapshotCheck> AwaitFiles(const SnapshotRef& snapshot, const Check& check) {
    if (!ripe_ || ripe_->snapshot != snapshot) {
      std::optional<SnapshotCheck> found = check();
      if (!found || !found->status.ok() || leadership_ == nullptr) return found;
      ripe_ = {snapshot, *std::move(found), leadership_->keeper().Mark()};
    }
    if (!leadership_->keeper().HasReached(ripe_->mark)) return std::nullopt;
    return std::exchange(ripe_, std::nullopt)->check;
  }

 private:
  struct Ripe {
    SnapshotRef snapshot;
    SnapshotCheck check;
    uint64_t mark = 0;
  };
  static constexpr size_t kHeldMax = 1024;  // reports that are not acknowledged are repeated

  Outbox& outbox_;
  Leadership* const leadership_;
  std::optional<Ripe> ripe_;                        // its files are right here
  std::deque<std::pair<uint64_t, Envelope>> held_;  // by the mark that they wait for
};

}  // namespace pando
