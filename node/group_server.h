// In a run without servers (run.strategy "allreduce"), GroupServer is the one server that the
// scheduler sees: a lane in rank 0's worker process, which gets whole sums instead of pushes. It
// makes rank 0's versions of them, and with these does all that servers do for a run: metrics,
// evaluation, snapshots, restoring, the final weights. Made by GroupWorker on rank 0. Threads: its
// lane's own, and its snapshot store's and heartbeat's. Owns: the lane.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/mailbox.h"
#include "net/event_loop.h"
#include "net/heartbeat.h"
#include "node/session_worker.h"
#include "run/snapshot_store.h"
#include "server/lane.h"
#include "worker/allreduce/gradient_exchange.h"

namespace pando {

class GroupServer : private Outbox {
 public:
  // Called on the lane's thread.
  struct Callbacks {
    std::function<void(const ParamsItem& item)> on_version;   // a shard's new version
    std::function<void(const Envelope& envelope)> on_params;  // what the worker pulls
  };
  // `worker`: rank 0's own parts, which outlive the server.
  GroupServer(const WorkerParts& worker, Callbacks callbacks);
  ~GroupServer() override;  // stops at once

  // Registers with the scheduler, on the calling thread, and begins to serve. Returns an end if the
  // run was over first.
  Result<std::optional<MembershipEnd>> Start();
  // Any thread: the step's sums of these shards.
  void HandOver(const GradientExchange::Sums& sums);
  // The optimizer's state of the newest version, by shard; empty when the lane has ended. Blocks.
  std::vector<std::vector<float>> States();
  // Waits for the scheduler's Stop, which the worker has received, to reach the lane too.
  void AwaitEnd();

 private:
  using Task = std::function<void(Micros now)>;

  Result<JoinOutcome> Register();
  Status Serve();
  // Of the lane: messages to the worker of this process do not go over the network.
  void Send(Envelope envelope) override;
  void RunLane();
  void Take(Micros now, const GradientExchange::Sums& sums);
  std::vector<std::vector<float>> CopyStates() const;

  const WorkerParts& worker_;
  const Callbacks callbacks_;
  const Incarnation incarnation_;
  Transport transport_;
  TransportOutbox network_{transport_};
  TimelineTrack* const track_;              // of the lane's thread; null: no timeline
  std::optional<TimelineLaneProbe> probe_;  // where there is one
  TimelineOutbox timed_outbox_{*this, worker_.trainer.timeline, track_};
  Membership membership_;
  std::unique_ptr<HeartbeatSender> heartbeat_;
  std::unique_ptr<SnapshotStore> store_;
  std::unique_ptr<SnapshotStore::Port> snapshots_;
  std::unique_ptr<Lane> lane_;
  std::vector<Version> shown_;  // by shard: the newest that the worker was given
  Mailbox<Task> tasks_;
  StopFlag stop_;
  std::promise<void> ended_;
  std::thread thread_;
};

}  // namespace pando
