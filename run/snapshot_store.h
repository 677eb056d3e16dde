// SnapshotStore is a thread of a server process that stores and restores records for all its lanes
// (P29). Requests that wait together become one file, which exists whole and durable or not at all.
// If the folder cannot be written, the scheduler is away (P45) or the disk is full, an event
// reports it, and the run continues. The server process makes the store, and gives each lane a port
// and its events. Threads: the writer, which it owns; each lane calls its port.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "common/ids.h"
#include "common/mailbox.h"
#include "files/run_files.h"
#include "server/snapshot_port.h"

namespace pando {

class SnapshotStore {
 public:
  // Two versions of the largest model's 4,096 shards, and a restore. Further requests fail.
  static constexpr size_t kQueuedRequestsMax = 3 * 4096;

  struct Options {
    std::unique_ptr<RunFiles> files;  // of the run's snapshots/
    Incarnation process;
    JobId job;
    size_t queued_requests_max = kQueuedRequestsMax;
  };
  explicit SnapshotStore(Options options);
  // Waits for the current file, unless it is being sent to the scheduler. Queued requests are
  // dropped.
  ~SnapshotStore();
  SnapshotStore(const SnapshotStore&) = delete;

 private:
  using Events = Mailbox<SnapshotEvent>;
  struct Queued {
    std::variant<StoreRequest, LoadRequest> request;
    std::shared_ptr<Events> events;  // receives the outcome
  };

 public:
  // A lane's end of the store. The store outlives it.
  class Port : public SnapshotPort {
   public:
    explicit Port(SnapshotStore& store) : store_(store) {}
    void Store(StoreRequest request) override;
    void Load(LoadRequest request) override;
    // Readable while there are events.
    int fd() const { return events_->fd(); }
    std::deque<SnapshotEvent> TakeEvents() { return events_->Drain(); }

   private:
    SnapshotStore& store_;
    // Unbounded: one event per request, and requests are bounded.
    std::shared_ptr<Events> events_ = std::make_shared<Events>();
  };

 private:
  void Run();
  void StoreFile(const SnapshotRef& snapshot, const std::vector<Queued>& stores);
  void LoadAll(const std::vector<Queued>& loads);

  Options options_;
  Mailbox<Queued> queue_;
  uint64_t file_count_ = 0;  // used by the writer
  std::thread writer_;       // last: it uses all members above
};

}  // namespace pando
