// GroupWorker is a worker's part in a run without servers (run.strategy "allreduce"), from its
// welcome to the end. It connects the trainer, the exchange of gradients, the makers of versions,
// and the session. The worker process uses it.
//
//   thread               | what passes
//   ---------------------+------------------------------------------------------------------------
//   computing threads    | sums of shards go into the exchange's buckets; all else to the session
//   the exchange's own   | sums over all ranks go to rank 0's lane, or to the protocol thread
//   rank 0's lane        | makes versions, puts them in the parameter store
//   protocol thread      | the session; makes versions on the other ranks
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "common/mailbox.h"
#include "net/heartbeat_sender.h"
#include "net/stop_flag.h"
#include "node/node_join.h"
#include "node/remote_files.h"
#include "node/session_worker.h"
#include "run/snapshot_store.h"
#include "server/lane.h"
#include "train/local_update.h"
#include "train/trainer.h"
#include "worker/allreduce/gradient_exchange.h"
#include "worker/allreduce/group_session.h"

namespace pando {

// In a run without servers (run.strategy "allreduce"), GroupServer is the one server that the
// scheduler sees: a lane in rank 0's worker process, which gets whole sums instead of pushes. It
// makes rank 0's versions of them. With these it does all that servers do for a run: metrics,
// evaluation, snapshots, restoring, and the final weights. Threads: its lane's, its snapshot
// store's and its heartbeat's. Owns: the lane.
class GroupServer : private Outbox {
 public:
  // Called on the lane's thread.
  struct Callbacks {
    std::function<void(const ParamsItem& item)> on_version;   // a shard's new version
    std::function<void(const Envelope& envelope)> on_params;  // the answers to the worker's pulls
  };
  // `worker` has rank 0's parts, which outlive the server.
  GroupServer(const WorkerParts& worker, Callbacks callbacks);
  ~GroupServer() override;  // stops at once

  // Registers with the scheduler, on the calling thread, and begins to serve. Returns an end if the
  // run was already over.
  Result<std::optional<MembershipEnd>> Start();
  // Any thread. Passes on the step's sums of these shards.
  void HandOver(const GradientExchange::Sums& sums);
  // Returns the newest version's optimizer state, by shard; empty if the lane has ended. Blocks.
  std::vector<std::vector<float>> States();
  // Waits for the scheduler's Stop, which the worker has received, to reach the lane too.
  void AwaitEnd();

 private:
  using Task = std::function<void(Micros now)>;

  Result<JoinOutcome> Register();
  Status Serve();
  // Sends the lane's messages. Those to the worker of this process do not use the network.
  void Send(Envelope envelope) override;
  void RunLane();
  void Take(Micros now, const GradientExchange::Sums& sums);
  std::vector<std::vector<float>> CopyStates() const;

  const WorkerParts& worker_;
  const Callbacks callbacks_;
  const Incarnation incarnation_;
  Transport transport_;
  TimelineTrack* const track_;              // the lane thread's track; null: no timeline
  std::optional<TimelineLaneProbe> probe_;  // set if there is a timeline
  TimelineSendProbe send_probe_{worker_.trainer.timeline, track_};
  Membership membership_;
  std::unique_ptr<HeartbeatSender> heartbeat_;
  std::unique_ptr<SnapshotStore> store_;
  std::unique_ptr<SnapshotStore::Port> snapshots_;
  std::unique_ptr<Lane> lane_;
  std::vector<Version> shown_;  // by shard: the newest version that the worker got
  Mailbox<Task> tasks_;
  StopFlag stop_;
  std::promise<void> ended_;
  std::thread thread_;
};

class GroupWorker : private GroupPort, private ExchangePort {
 public:
  // Called once per turn of the loop, for the heartbeat.
  using Tell = std::function<void(const GroupSession& session, const Trainer& trainer, Micros now)>;
  explicit GroupWorker(const WorkerParts& parts);
  ~GroupWorker() override;

  // Works until the end.
  Result<MembershipEnd> Run(const Tell& tell);

 private:
  using Task = std::function<void(Micros now)>;

  // ExchangePort
  Result<std::unique_ptr<AllreduceGroup>> Connect() override;
  Status Prepare(AllreduceGroup& group) override;
  void OnSums(GradientSums sums) override;
  void OnAgreed(Version version) override;
  void OnFailed(Status failure) override;
  // GroupPort
  void Begin(const View& view) override;
  void OnVersion(Version version) override;

  Status ReachGroupFiles();
  Result<std::optional<MembershipEnd>> StartServer();
  void LetGo(bool has_verdict);
  void OnCompute(ComputeTicket ticket, ComputeEvent event);
  void ApplySums(Micros now, const GradientSums& sums);
  void Post(Task task) { std::ignore = tasks_.Push(std::move(task)); }  // NOLINT: moved
  bool leads() const { return parts_.membership.rank == 0; }

  const WorkerParts parts_;
  const JobPlan& plan_;
  Mailbox<Task> tasks_;  // for the protocol thread
  std::atomic<bool> is_ending_ = false;
  std::unique_ptr<RunFiles> group_files_;
  std::string group_name_;  // set by Begin, before the exchange's thread reads them
  uint32_t group_size_ = 1;
  Version first_;
  GradientExchange exchange_;
  Trainer trainer_;
  std::optional<LocalUpdate> update_;  // on ranks other than 0
  GroupSession session_;
  std::unique_ptr<GroupServer> server_;  // on rank 0
};

}  // namespace pando
