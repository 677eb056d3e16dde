// GroupSession is the worker's protocol core in a run without servers (run.strategy "allreduce"):
// it follows the view, hands out steps as versions become whole, evaluates, and reports to the
// scheduler as a session does. Its GroupPort makes versions from gradients. Run by net/event_loop.
//
// clang-format off
//   event                  | what happens
//   -----------------------+-----------------------------------------------------------------
//   the first ViewUpdate   | ViewAck; the version that the run begins from is pulled
//     that has us          |   from the lane that rank 0's process is
//   that version is whole  | the group begins; its first two steps are handed out
//   ViewUpdate             | ViewAck; another worker, another share or another generation in it
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
#include <vector>

#include "plan/job_plan.h"
#include "proto/core.h"
#include "proto/view_member.h"
#include "train/compute_port.h"
#include "worker/allreduce/group_steps.h"
#include "worker/evaluation.h"
#include "worker/lifecycle.h"

namespace pando {

// What the session asks of the process around it. Threads: called on the protocol thread; never
// blocks.
class GroupPort {
 public:
  virtual ~GroupPort() = default;
  // The version that `view`'s generation begins from has been handed to compute whole; work
  // follows. Called once.
  virtual void Begin(const View& view) = 0;
  // Compute holds this version whole; in order.
  virtual void OnVersion(Version version) = 0;
};

class GroupSession : public ProtocolCore, private EvaluationPort {
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
  // This shard of a version is with compute; once each, in order.
  void OnMade(Micros now, ShardId shard, Version version);
  // All ranks have the same weights of this version.
  void OnAgreed(Micros now, Version version);
  // The exchange has failed. kInternal: the run's own trouble, told at once.
  void OnBroken(Micros now, const Status& failure);
  // This process was asked to leave: repeats Leave until the scheduler stops it.
  void Leave(Micros now) { lifecycle_.Leave(now); }

  bool finished() const { return lifecycle_.finished(); }
  // How the run ended, or why it cannot go on.
  const Lifecycle& lifecycle() const { return lifecycle_; }
  const PeerId& scheduler() const { return member_.scheduler(); }
  const View& view() const { return member_.view(); }
  bool WillEnter(const Envelope& envelope) const;
  Heartbeat CurrentActivity(Micros now) const;
  // Version that compute holds whole.
  Version known_everywhere() const { return steps_.whole(); }

 private:
  void OnViewUpdate(Micros now, const PeerId& from, const ViewUpdate& update);
  void OnParams(Micros now, const Params& params);
  void OnComputeFailed(Micros now, const ComputeFailed& failed);

  void Pull(Micros now, const std::vector<PullItem>& items) override;
  void OnCalledOff(Version) override {}
  bool MayReport(const EvaluationResult& result) const override;

  void JoinGroup(Micros now);
  bool IsSameGroup() const;
  void PullStart(Micros now);
  void Fail(Micros now, Failure failure);
  Version first_version() const { return group_->restore.version; }

  const JobPlan& plan_;
  ComputePort& compute_;
  GroupPort& port_;
  ViewMember member_;
  Lifecycle lifecycle_;
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
