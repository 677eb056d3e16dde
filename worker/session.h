// Session is the worker's protocol core: it follows the views, hands work and parameters to the
// computing side, pushes what comes back, and keeps each gradient until its version is committed.
// Run by net/event_loop, and by the simulator. The session itself only routes messages and compute
// events to its parts and merges their deadlines.
//
// clang-format off
//   part               | what it owns
//   -------------------+-------------------------------------------------------------------------
//   Lifecycle          | Ready, Failure and Leave until the scheduler reacts; Stop and Refused
//   CommittedVersions  | the newest version of each shard that is known to be committed
//   UnrepliedGradients | gradients that their shards have not answered for
//   Steps              | the steps that are handed to compute
//   Parameters         | the versions that compute has and needs
//   LaneRequests       | what the lanes are asked for, and what was lost (P10)
//   Questions          | what the primaries hold (P17)
//   Helping            | help for stragglers, and how long a step takes
//   HostGiver          | gradients that go to the host's relay (P6a)
//   HostRelay          | the sums of the host's workers, where this one is the relay (P6a)
//   PushSender         | which gradients may be pushed now (P4, P6)
//   Verification       | micro-batches that two workers compute (P41)
//   Evaluation         | a slice of the test set (P31)
//
//   event                  | what happens
//   -----------------------+-----------------------------------------------------------------
//   ViewUpdate (newer)     | ViewAck; unreplied pushes become unsent; Question to every primary
//   ... of a generation    | all is discarded, and the session starts as a joiner (P21)
//   all Answers in         | missing work of the lowest incomplete step is computed
//   gradient from compute  | kept, and pushed when the barrier (P4) is open and the lane's
//                          | window (P6) has room
//   Params(t + 1)          | known committed; its pushes released; parameters to compute
//   Pending                | the server holds the push: ask for the version, not push again
//   Behind                 | questions again (P10)
//   NotPrimary             | repeated soon; the newer view comes by itself (P13)
//   Push, Question of a    | this worker is the relay: its host's sums are pushed together; the
//   worker of our host     | Answer names what it holds of the asker's (P6a)
//   silence of our relay   | it is asked, then given up: its gradients go to the lanes
//   silence                | the lane is asked what it holds; what it lacks is sent again (P10);
//                          | after two leases PeerSilent to the scheduler (P23)
//   waiting for long       | Questions; micro-batches that a straggler owes are computed here too
// clang-format on
//
// Threads: none. Invariants I1, I4, I6.
#pragma once

#include "common/float_buffer.h"
#include "plan/job_plan.h"
#include "proto/core.h"
#include "proto/view_member.h"
#include "train/compute_port.h"
#include "worker/committed_versions.h"
#include "worker/evaluation.h"
#include "worker/evaluation_pulls.h"
#include "worker/helping.h"
#include "worker/host_giver.h"
#include "worker/host_relay.h"
#include "worker/lane_requests.h"
#include "worker/lanes.h"
#include "worker/lifecycle.h"
#include "worker/parameters.h"
#include "worker/push_sender.h"
#include "worker/questions.h"
#include "worker/steps.h"
#include "worker/unreplied_gradients.h"
#include "worker/verification.h"

namespace pando {

class Session : public ProtocolCore, private CommitListener, private WorkListener {
 public:
  struct Options {
    ViewMember::Identity identity;
    Ready ready;                                       // repeated until a view has us
    size_t push_window_bytes = PushWindow::kBytesMax;  // of a lane
    BufferSource sum_buffers = {};                     // of what is summed here for the host
  };
  // `plan`, `compute` and `outbox` outlive the session.
  Session(const Options& options, const JobPlan& plan, ComputePort& compute, Outbox& outbox);

  void OnMessage(Micros now, const Envelope& envelope) override;
  void Tick(Micros now) override;
  Micros NextDeadline() const override;
  void OnComputeEvent(Micros now, ComputeEvent event);
  // This process was asked to leave: repeats Leave until the scheduler stops it. It works on
  // meanwhile.
  void Leave(Micros now) { lifecycle_.Leave(now); }

  bool finished() const { return lifecycle_.finished(); }
  // How the run ended, or why it cannot go on.
  const Lifecycle& lifecycle() const { return lifecycle_; }
  // The scheduler of today, and the view: what heartbeats are addressed to and say.
  const PeerId& scheduler() const { return member_.scheduler(); }
  const View& view() const { return member_.view(); }
  // Whether this message brings a view that the session will enter: its members are dialed first.
  bool WillEnter(const Envelope& envelope) const;
  // What the heartbeat should say.
  Heartbeat CurrentActivity(Micros now) const;
  // Version that every shard is known to have committed.
  Version known_everywhere() const { return versions_.everywhere(); }
  size_t unreplied_count() const { return gradients_.count(); }
  const PushSender::Bytes& sent_bytes() const { return sender_.bytes(); }
  const Parameters& parameters() const { return parameters_; }
  // The host's relay does not answer; we push for ourselves meanwhile.
  bool has_given_up_relay() const { return giver_.has_given_up(); }

 private:
  void OnViewUpdate(Micros now, const PeerId& from, const ViewUpdate& update);
  void OnParams(Micros now, const Params& params);
  void OnPushReply(Micros now, const ViewId& lanes_view, const PushReply& reply);
  void OnBehind(Micros now, const PushReplyItem& item);
  void OnAnswer(Micros now, const PeerId& from, const Answer& answer);
  void OnData(Micros now, const PeerId& from);
  void OnGradientReady(GradientReady& ready);

  void OnCommitted(ShardId shard, Version version) override;
  void OnStepBegun(Step step) override { requests_.OnStepBegun(step); }
  void OnStepsAbandoned(Step from) override;

  void Forget();
  void Advance(Micros now);

  const JobPlan& plan_;
  ComputePort& compute_;
  ViewMember member_;
  Lifecycle lifecycle_;
  Lanes lanes_;
  CommittedVersions versions_;
  UnrepliedGradients gradients_;
  Steps steps_;
  Parameters parameters_;
  LaneRequests requests_;
  Questions questions_;
  Helping helping_;
  HostGiver giver_;
  HostRelay relay_;
  PushSender sender_;
  Verification verification_;
  EvaluationPulls evaluation_pulls_;
  Evaluation evaluation_;
};

}  // namespace pando
