// SnapshotChecker reads, on a thread, the files of snapshots before they count as complete (P29).
// The scheduler process makes it, because its loop neither reads files nor waits. Threads: the
// owner's, and the reader, which the checker owns.
#pragma once

#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "common/mailbox.h"
#include "scheduler/journaled_outbox.h"

namespace pando {

class SnapshotChecker {
 public:
  using Read = std::function<SnapshotCheck(const SnapshotManifest&)>;  // on the reader's thread
  explicit SnapshotChecker(Read read) : read_(std::move(read)), reader_([this] { Run(); }) {}
  // Waits for the snapshot that is being read.
  ~SnapshotChecker();

  // Returns the result for a snapshot, or none while it is not known. The first call requests it.
  std::optional<SnapshotCheck> Check(const SnapshotManifest& manifest);
  int fd() const { return results_.fd(); }  // readable: TakeResults has work
  void TakeResults();

 private:
  void Run();

  const Read read_;
  Mailbox<SnapshotManifest> wanted_;
  Mailbox<std::pair<SnapshotRef, SnapshotCheck>> results_;
  std::optional<SnapshotRef> asked_;
  std::optional<std::pair<SnapshotRef, SnapshotCheck>> result_;  // the newest result
  std::thread reader_;                                           // last: it uses all members above
};

}  // namespace pando
