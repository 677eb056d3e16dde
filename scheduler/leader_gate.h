// LeaderGate is the outbox of a scheduler that may have standbys (P47). An acknowledgement of rows
// waits until the standbys have the rows, and a snapshot until they have its files. After the
// lease's deadline nothing leaves but answers to people, which tell what this process waits for.
// Threads: the scheduler's.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "scheduler/journaled_outbox.h"

namespace pando {

// StandbyCopies are the standbys' copies of a leading scheduler's run folder, and its lease.
class StandbyCopies {
 public:
  virtual ~StandbyCopies() = default;
  // Returns a number for everything that is in the folder now.
  virtual uint64_t Mark() = 0;
  // Returns whether all standbys for which the leader waits have everything up to the mark.
  virtual bool HasReached(uint64_t mark) const = 0;
  // Returns whether no other process can lead yet. Afterwards this one must be silent.
  virtual bool MaySpeak() const = 0;
};

class LeaderGate : public Outbox {
 public:
  // Without `copies` it is a pipe. Both outlive it.
  LeaderGate(Outbox& outbox, StandbyCopies* copies) : outbox_(outbox), copies_(copies) {}

  void Send(Envelope envelope) override;
  // Sends the acknowledgements that the standbys allow now.
  void Release();
  // Returns the check of a complete snapshot's files once the standbys have them, too. `check` is
  // called until it has read the files.
  std::optional<SnapshotCheck> AwaitFiles(
      const SnapshotRef& snapshot, const std::function<std::optional<SnapshotCheck>()>& check);

 private:
  struct Ripe {
    SnapshotRef snapshot;
    SnapshotCheck check;
    uint64_t mark = 0;
  };
  static constexpr size_t kHeldMax = 1024;  // reports that are not acknowledged are repeated

  Outbox& outbox_;
  StandbyCopies* const copies_;
  std::optional<Ripe> ripe_;                        // its files are right here
  std::deque<std::pair<uint64_t, Envelope>> held_;  // by the mark that they wait for
};

}  // namespace pando
