// GroupServer is what the scheduler takes for the run's one server where there are none
// (run.strategy "allreduce"): a lane in rank 0's worker process, which is handed whole sums instead
// of pushes. It makes rank 0's versions of them, and with these does all that servers do for a run:
// metrics, evaluation, snapshots, restoring, the final weights. Made by GroupWorker on rank 0.
// Threads: its lane's own, and its snapshot store's and heartbeat's. Owns: the lane.
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
#include "node/node_join.h"
#include "node/process_timeline.h"
#include "run/snapshot_store.h"
#include "server/lane.h"
#include "worker/allreduce/gradient_exchange.h"

namespace pando {

class GroupServer {
 public:
  struct Parts {
    ZmqContext& context;
    const std::string& scheduler_endpoint;
    uint32_t start_timeout_ms;
    const Membership& worker;  // rank 0's own
    const JobPlan& plan;
    ShutdownSignal& shutdown;
    Timeline* timeline;  // the process's; null: none is kept
  };
  // All outlives the server. On the lane's thread:
  struct Callbacks {
    std::function<void(const ParamsItem& item)> on_version;  // a shard's new version
    std::function<void(Envelope envelope)> on_params;        // what the worker pulls
  };
  // Registers with the scheduler, on the calling thread, and begins to serve. An end where the run
  // was over first.
  using Joined = std::variant<std::unique_ptr<GroupServer>, MembershipEnd>;
  static Result<Joined> Join(const Parts& parts, Callbacks callbacks);
  ~GroupServer();  // stops at once

  // Any thread: the step's sums of these shards.
  void HandOver(const GradientExchange::Sums& sums);
  // The optimizer's state of the newest version, by shard; empty when the lane has ended. Blocks.
  std::vector<std::vector<float>> States();
  // Waits for the scheduler's Stop, which the worker has heard, to reach the lane too.
  void AwaitEnd();

 private:
  // The lane's words to the worker of its own process do not take the way over the network.
  class OwnOutbox : public Outbox {
   public:
    explicit OwnOutbox(GroupServer& server) : server_(server) {}
    void Send(Envelope envelope) override { server_.Send(std::move(envelope)); }

   private:
    GroupServer& server_;
  };
  using Task = std::function<void(Micros now)>;

  GroupServer(const Parts& parts, Callbacks callbacks);
  Result<std::optional<MembershipEnd>> Register();
  Status Start();
  void Send(Envelope envelope);
  void Serve();
  void Take(Micros now, const GradientExchange::Sums& sums);
  std::vector<std::vector<float>> CopyStates() const;

  const Parts parts_;
  const Callbacks callbacks_;
  const Incarnation incarnation_;
  Transport transport_;
  TransportOutbox network_{transport_};
  OwnOutbox outbox_{*this};
  TimelineTrack* const track_;              // of the lane's thread; null: no timeline
  std::optional<TimelineLaneProbe> probe_;  // where there is one
  TimelineOutbox timed_outbox_{outbox_, parts_.timeline, track_};
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
