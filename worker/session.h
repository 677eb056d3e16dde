// Session is the worker's protocol core: it follows the views, hands work and parameters to the
// computing side, pushes what comes back, and keeps each gradient until its version is committed.
// net/event_loop and the simulator run it. The session itself only routes messages and compute
// events to its parts and merges their deadlines.
//
// clang-format off
//   part               | what it owns
//   -------------------+-------------------------------------------------------------------------
//   Lifecycle          | Ready, Failure and Leave until the scheduler reacts; Stop and Refused
//   CommittedVersions  | the newest version of each shard that is known to be committed
//   UnrepliedGradients | gradients whose versions are not known to be committed
//   Steps              | the steps that are handed to compute
//   Parameters         | the versions that compute has and needs
//   LaneRequests       | what the lanes are asked for, and what was lost (P10)
//   Questions          | what the primaries hold (P17)
//   Helping            | help for stragglers, and how long a step takes
//   SumGiver          | gradients that go to relays (P6a)
//   SumRelay          | the gifts of other workers, where this one is a relay (P6a)
//   PushSender         | which gradients may be pushed now (P4, P6)
//   Verification       | micro-batches that two workers compute (P41)
//   Evaluation         | a slice of the test set (P31)
//
//   event                  | what happens
//   -----------------------+-----------------------------------------------------------------
//   a newer view           | ViewAck; unreplied pushes become unsent; Question to every primary
//   ... of a generation    | all is discarded, and the session starts as a joiner (P21)
//   all Answers in         | missing work of the lowest incomplete step is computed
//   gradient from compute  | kept, and pushed when the barrier (P4) is open and the lane's
//                          | window (P6) has room
//   Params(t + 1)          | known committed; its pushes released; parameters to compute
//   Pending                | the lane holds the gradient: it is not pushed again, and at
//                          | most its version is pulled
//   Behind                 | questions again (P10)
//   NotPrimary             | repeated soon; the newer view comes by itself (P13)
//   Push, Question of a    | this worker is a relay: its group's sums are pushed together; the
//   worker of our group    | Answer names what it holds of the asker's (P6a)
//   silence of a relay     | it is asked, then given up: its gradients go to the lanes
//   silence                | the lane is asked what it holds; what it lacks is sent again (P10);
//                          | after two leases PeerSilent to the scheduler (P23)
//   waiting for long       | Questions; micro-batches that a straggler owes are computed here too
// clang-format on
//
// Threads: none. Invariants I1, I4, I6.
#pragma once

#include "proto/assignment.h"
#include "worker/evaluation.h"
#include "worker/helping.h"
#include "worker/parameters.h"
#include "worker/push_sender.h"
#include "worker/verification.h"
#include "worker/worker_core.h"

namespace pando {

class Session : public WorkerCore, private SessionListener, private EvaluationPort {
 public:
  struct Options {
    ViewMember::Identity identity;
    Ready ready;                                   // repeated until a view has us
    std::optional<size_t> push_window_bytes = {};  // see PushWindow
    BufferSource sum_buffers = {};                 // of sums that are made here for others
  };
  // `plan`, `compute` and `outbox` outlive the session.
  Session(const Options& options, const JobPlan& plan, ComputePort& compute, Outbox& outbox);

  void OnMessage(Micros now, const Envelope& envelope) override;
  void Tick(Micros now) override;
  Micros NextDeadline() const override;
  void OnComputeEvent(Micros now, ComputeEvent event);

  // The activity that a heartbeat reports.
  Heartbeat CurrentActivity(Micros now) const;
  // The version that every shard is known to have committed.
  Version known_everywhere() const { return versions_.everywhere(); }
  size_t unreplied_count() const { return gradients_.count(); }
  const PushSender::Bytes& sent_bytes() const { return sender_.bytes(); }
  const Parameters& parameters() const { return parameters_; }
  // Returns whether this worker pushes gradients itself, as a relay does not answer.
  bool has_given_up_relay() const { return giver_.has_given_up(); }

 private:
  void OnView(Micros now, const Envelope& envelope);
  void OnParams(Micros now, const Params& params);
  void OnPushReply(Micros now, const ViewId& lanes_view, const PushReply& reply);
  void OnBehind(Micros now, const PushReplyItem& item);
  void OnAnswer(Micros now, const PeerId& from, const Answer& answer);
  // Notes data of a lane or a relay: the time until it counts as silent starts again.
  void OnData(Micros now, const PeerId& from) {
    giver_.IsOurRelay(from) ? giver_.OnParams(now, from) : requests_.Expect(now, from);
  }
  void OnGradientReady(GradientReady& ready);

  void OnCommitted(ShardId shard, Version version) override {
    gradients_.OnCommitted(shard, version);
    relay_.OnCommitted(shard, version);
    requests_.OnCommitted(shard);
  }
  void OnStepBegun(Step step) override { requests_.OnStepBegun(step); }
  void OnStepsAbandoned(Step from) override {
    gradients_.DropFrom(from);
    relay_.RestoreGifts();
  }

  void Pull(Micros now, const std::vector<PullItem>& items) override { lanes_.AskFor(now, items); }
  void OnCalledOff(Version version) override {
    parameters_.OnGone(ParameterUse::kEvaluation, version);
  }
  bool MayReport(const EvaluationResult&) const override { return true; }

  void Forget();
  void Advance(Micros now);

  Lanes lanes_;
  CommittedVersions versions_;
  UnrepliedGradients gradients_;
  const SessionPart shared_;
  Steps steps_;
  Parameters parameters_;
  LaneRequests requests_;
  Questions questions_;
  Helping helping_;
  SumGiver giver_;
  SumRelay relay_;
  PushSender sender_;
  Verification verification_;
  Evaluation evaluation_;
};

}  // namespace pando
