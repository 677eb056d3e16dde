// GroupWorker: a worker's part in a run without servers (run.strategy "allreduce"), from its
// welcome to the end. It joins the trainer to the exchange of gradients, to what makes versions of
// them, and to the session. Used by the worker process.
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
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "common/mailbox.h"
#include "node/group_server.h"
#include "node/node_join.h"
#include "node/session_worker.h"
#include "train/local_update.h"
#include "train/trainer.h"
#include "worker/allreduce/gradient_exchange.h"
#include "worker/allreduce/group_session.h"

namespace pando {

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

  Result<std::optional<MembershipEnd>> StartServer();
  void LetGo();
  void OnCompute(ComputeTicket ticket, ComputeEvent event);
  void ApplySums(Micros now, const GradientSums& sums);
  void Post(Task task) { std::ignore = tasks_.Push(std::move(task)); }  // NOLINT: moved
  bool leads() const { return parts_.membership.rank == 0; }

  const WorkerParts parts_;
  const JobPlan& plan_;
  Mailbox<Task> tasks_;  // for the protocol thread
  std::atomic<bool> is_ending_ = false;
  std::string group_folder_;  // set by Begin, before the exchange's thread reads them
  uint32_t group_size_ = 1;
  Version first_;
  GradientExchange exchange_;
  Trainer trainer_;
  std::optional<LocalUpdate> update_;  // of the other ranks
  TransportOutbox outbox_;
  GroupSession session_;
  std::unique_ptr<GroupServer> server_;  // of rank 0
};

}  // namespace pando
