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
#include <variant>

#include "cli/group_server.h"
#include "cli/group_update.h"
#include "cli/node_join.h"
#include "common/mailbox.h"
#include "worker/allreduce/gradient_exchange.h"
#include "worker/allreduce/group_session.h"
#include "worker/trainer.h"

namespace pando {

class GroupWorker : private GroupPort {
 public:
  struct Parts {  // all outlive it
    ZmqContext& context;
    Transport& transport;  // the worker's own; has dialed the scheduler
    ShutdownSignal& shutdown;
    const HeartbeatSender& heartbeat;
    const Membership& membership;
    const std::string& scheduler_endpoint;
    uint32_t start_timeout_ms;
    Trainer::Parts trainer;
    uint32_t thread_count;
    Ready ready;
  };
  // Called once per turn of the loop, for the heartbeat.
  using Tell = std::function<void(const GroupSession& session, const Trainer& trainer, Micros now)>;
  explicit GroupWorker(const Parts& parts);
  ~GroupWorker() override;

  // Works until the end.
  Result<MembershipEnd> Run(const Tell& tell);

 private:
  struct ComputeNews {
    ComputeTicket ticket;
    ComputeEvent event;
  };
  struct Made {
    ShardId shard;
    Version version;
  };
  struct Agreed {
    Version version;
  };
  using News =
      std::variant<ComputeNews, GradientExchange::Sums, Made, Agreed, Envelope, Status /*broken*/>;

  void Begin(const View& view) override;
  void OnVersion(Version version) override;
  void OnPicturesSettled(uint32_t event_count) override { exchange_.Release(event_count); }

  Result<std::optional<MembershipEnd>> StartServer();
  void LetGo();
  void OnCompute(ComputeTicket ticket, ComputeEvent event);
  Result<std::unique_ptr<AllreduceGroup>> Connect() const;
  bool MayUseGpus() const;
  Status ShareStates(AllreduceGroup& group);
  void OnSums(GradientExchange::Sums sums);
  void OnNewsOf(Micros now, ComputeNews& news);
  void OnNewsOf(Micros now, GradientExchange::Sums& sums);
  void OnNewsOf(Micros now, Made& made) { session_.OnMade(now, made.shard, made.version); }
  void OnNewsOf(Micros now, Agreed& agreed) { session_.OnAgreed(now, agreed.version); }
  void OnNewsOf(Micros now, Envelope& envelope) { session_.OnMessage(now, envelope); }
  void OnNewsOf(Micros now, Status& failure) { session_.OnBroken(now, failure); }
  void Report(News news) { std::ignore = news_.Push(std::move(news)); }
  bool leads() const { return parts_.membership.rank == 0; }

  const Parts parts_;
  const JobPlan& plan_;
  Mailbox<News> news_;
  std::atomic<bool> is_ending_ = false;
  std::string group_folder_;  // set by Begin, before the exchange's thread reads them
  uint32_t group_size_ = 1;
  Version first_;
  GradientExchange exchange_;
  Trainer trainer_;
  std::optional<GroupUpdate> update_;  // of the other ranks
  TransportOutbox outbox_;
  GroupSession session_;
  std::unique_ptr<GroupServer> server_;  // of rank 0
};

}  // namespace pando
