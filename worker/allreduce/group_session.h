// GroupSession is the worker's protocol core in a run without servers (run.strategy "allreduce"):
// it follows the view, hands out steps as versions become whole, evaluates, and reports to the
// scheduler as a session does. Its GroupPort makes versions from gradients. Run by net/event_loop.
//
// clang-format off
//   event                  | what happens
//   -----------------------+-----------------------------------------------------------------
//   the first view         | ViewAck; the version that the run begins from is pulled
//     that has us          |   from the lane that rank 0's process is
//   that version is whole  | the group begins; its first two steps are handed out
//   another view           | ViewAck; another worker, another share or another generation in it
//                          |   is a failure: a group cannot change
//   a version is whole     | the next step but one is handed out
//   Evaluate               | the version is pulled from rank 0, the slice computed;
//                          |   EvaluationResult once the ranks agree on the version's weights
//   the group is broken    | the scheduler, which knows the lost worker, sends Stop; if it
//                          |   sends none for two leases, Failure
//   Stop, Refused          | work abandoned; Bye to Stop; finished
// clang-format on
//
// Threads: none.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/evaluation.h"
#include "worker/worker_core.h"

namespace pando {

// The process around the session, as the session calls it. Threads: called on the protocol thread;
// never blocks.
class GroupPort {
 public:
  virtual ~GroupPort() = default;
  // Compute has the whole version that `view`'s generation begins from. Work follows. Called once.
  virtual void Begin(const View& view) = 0;
  // Compute holds this version whole. Called in order.
  virtual void OnVersion(Version version) = 0;
};

// The steps that a group's worker has handed to compute, and the versions that compute has.
class GroupSteps {
 public:
  // How many steps are handed out beyond the last whole version. Threads that finish one step begin
  // the next, layer by layer.
  static constexpr uint64_t kInHandMax = 2;

  // `group`: none before the worker has joined. All outlive it.
  GroupSteps(const JobPlan& plan, const ViewMember& member, const std::optional<View>& group,
             ComputePort& compute)
      : plan_(plan),
        member_(member),
        group_(group),
        compute_(compute),
        made_(plan.shards.shard_count()) {}

  // The group begins from its first version.
  void Join() {
    whole_ = group_->restore.version;
    std::ranges::fill(made_, whole_);
    next_ = StepUpdating(whole_);
  }
  // Hands out all steps that may be handed out now.
  void Advance();
  void OnStepComputed(Micros now);
  // Compute has the first version whole.
  void OnBegun(Micros now) { waiting_since_ = now; }
  // Notes that compute has this shard of a version. Is called once for each, in order. Returns
  // whether the version is whole now.
  bool OnMade(Micros now, ShardId shard, Version version);

  // The version that compute has whole.
  Version whole() const { return whole_; }
  // Returns whether the lowest step's work is done here.
  bool is_waiting() const { return open_calls_ < next_.value() - whole_.value(); }
  Micros waiting_since() const { return waiting_since_; }

 private:
  const JobPlan& plan_;
  const ViewMember& member_;
  const std::optional<View>& group_;
  ComputePort& compute_;
  std::vector<Version> made_;  // by shard
  Version whole_;
  Step next_;  // to hand to compute
  uint32_t open_calls_ = 0;
  Micros waiting_since_{0};
};

class GroupSession : public WorkerCore, private EvaluationPort {
 public:
  struct Options {
    ViewMember::Identity identity;
    Ready ready;  // repeated until a view has us
  };
  // `plan`, `compute`, `port` and `outbox` outlive the session.
  GroupSession(const Options& options, const JobPlan& plan, ComputePort& compute, GroupPort& port,
               Outbox& outbox);

  void OnMessage(Micros now, const Envelope& envelope) override;
  void Tick(Micros now) override;
  Micros NextDeadline() const override;
  void OnComputeEvent(Micros now, ComputeEvent event);
  // Compute has this shard of a version. Called once for each, in order.
  void OnMade(Micros now, ShardId shard, Version version) {
    if (finished() || !has_begun_ || !steps_.OnMade(now, shard, version)) return;
    port_.OnVersion(version);
    steps_.Advance();
  }
  // All ranks have the same weights of this version.
  void OnAgreed(Micros, Version version) {
    agreed_ = std::max(agreed_, version);
    evaluation_.Report();
  }
  // The exchange has failed. kInternal: the run itself failed, which is reported at once.
  void OnBroken(Micros now, const Status& failure);

  Heartbeat CurrentActivity(Micros now) const;
  // Version that compute holds whole.
  Version known_everywhere() const { return steps_.whole(); }

 private:
  void OnView(Micros now, const Envelope& envelope);
  void OnParams(Micros now, const Params& params);

  void Pull(Micros, const std::vector<PullItem>& items) override {
    member_.Send(group_->shards.front().primary, pando::Pull{items});
  }
  void OnCalledOff(Version) override {}
  // So a run whose ranks differ cannot end.
  bool MayReport(const EvaluationResult& result) const override {
    return result.version <= agreed_;
  }

  void JoinGroup(Micros now);
  bool IsSameGroup() const;
  void PullStart(Micros now);
  void Fail(Micros now, Failure failure) {  // NOLINT: moved
    lifecycle_.Fail(std::move(failure));
    lifecycle_.ReportAt(now);
  }
  Version first_version() const { return group_->restore.version; }

  GroupPort& port_;
  std::optional<View> group_;  // the first view that had us
  GroupSteps steps_;
  Evaluation evaluation_;
  std::vector<bool> arrived_;  // of the first version, by shard
  bool has_begun_ = false;
  Micros pull_at_{0};
  Version agreed_;
  std::optional<std::string> broken_;  // why
  Micros broken_told_at_ = kNever;
};

}  // namespace pando
