// GroupSession is the worker's protocol core in a run without servers (run.strategy "allreduce"):
// it follows the view, hands out steps as versions become whole, evaluates, and tells the scheduler
// what a session tells. How gradients become versions is its GroupPort's business. Run by
// net/event_loop.
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
//   a picture is bad       | PicturesReplaced until acknowledged; meanwhile no gradient leaves
//   the group is broken    | the scheduler, which knows who is gone, says Stop; if it does
//                          |   not for two leases, Failure
//   Stop, Refused          | work abandoned; Bye to Stop; finished
// clang-format on
//
// Threads: none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/job_plan.h"
#include "common/status.h"
#include "proto/core.h"
#include "proto/view_member.h"
#include "worker/bad_picture_reports.h"
#include "worker/compute_port.h"

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
  // The scheduler knows the pictures of so many BadPicturesFound events; gradients may leave.
  virtual void OnPicturesSettled(uint32_t event_count) = 0;
};

class GroupSession : public ProtocolCore {
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
  // This process was asked to leave: says so until the scheduler stops it.
  void Leave(Micros now);

  bool finished() const { return stop_.has_value(); }
  const Stop& stop() const { return *stop_; }  // REQUIRES: finished()
  const std::optional<RefusalKind>& refusal() const { return refusal_; }
  const std::optional<Failure>& failure() const { return failure_; }
  const PeerId& scheduler() const { return member_.scheduler(); }
  const View& view() const { return member_.view(); }
  bool WillEnter(const Envelope& envelope) const;
  Heartbeat CurrentActivity(Micros now) const;
  // Version that compute holds whole.
  Version known_everywhere() const { return whole_; }
  // The micro-batches of this step that are ours.  REQUIRES: the group has begun.
  std::vector<MicroBatch> ShareOf(Step step) const;

 private:
  struct Evaluation {
    Version version;
    std::vector<bool> arrived;  // by shard
    std::optional<Evaluate> request;
    std::optional<EvaluationResult> last_result;
    Micros ask_at{0};
  };
  void OnMessageOf(Micros now, const PeerId& from, const ViewUpdate& update);
  void OnMessageOf(Micros now, const PeerId& from, const Params& params);
  void OnMessageOf(Micros now, const PeerId& from, const Evaluate& request);
  void OnMessageOf(Micros now, const PeerId& from, const PicturesReplacedAck& ack);
  void OnMessageOf(Micros now, const PeerId& from, const Stop& stop);
  void OnMessageOf(Micros now, const PeerId& from, const Refused& refused);
  template <class Other>
  void OnMessageOf(Micros, const PeerId&, const Other&) {}  // not for a worker of a group
  void OnEventOf(Micros now, StepComputed& done);
  void OnEventOf(Micros now, EvaluationResult& result);
  void OnEventOf(Micros now, BadPicturesFound& found);
  void OnEventOf(Micros now, ComputeFailed& failed);
  template <class Other>
  void OnEventOf(Micros, Other&) {}  // gradients go to the exchange; the rest is not asked for

  void JoinGroup(Micros now);
  bool IsSameGroup() const;
  Version FirstVersion() const { return group_->restore.version; }
  const PeerId& Lane() const { return group_->shards.front().primary; }
  void AdvanceWork();
  bool MayTell(const EvaluationResult& result) const;
  void TellResult();
  void PullStart(Micros now);
  void PullForEvaluation(Micros now);
  void Pull(Version version, const std::vector<bool>& arrived);
  void RepeatControl(Micros now);

  const Ready ready_;
  const JobPlan& plan_;
  ComputePort& compute_;
  GroupPort& port_;
  ViewMember member_;
  std::optional<View> group_;  // the first view that had us
  std::vector<bool> arrived_;  // of the first version, by shard
  bool has_begun_ = false;
  Micros pull_at_{0};
  std::vector<Version> made_;  // by shard
  Version whole_;
  Version agreed_;
  Step next_;  // to hand to compute
  uint32_t open_calls_ = 0;
  Micros waiting_since_{0};
  std::optional<Evaluation> evaluation_;
  BadPictureReports bad_pictures_;
  uint32_t unsettled_events_ = 0;
  std::optional<std::string> broken_;  // why
  Micros broken_told_at_ = kNever;
  std::optional<Failure> failure_;
  bool is_leaving_ = false;
  Micros control_at_{0};
  std::optional<Stop> stop_;
  std::optional<RefusalKind> refusal_;
};

}  // namespace pando
