// Session is the worker's protocol core: it follows the views, hands work and parameters to the
// computing side, pushes what comes back, and keeps each gradient until it is answered for.
// Run by net/event_loop, and by the simulator.
//
// Steps. At most two are in the works: the lowest incomplete step t, and t + 1, whose forward waits
// layer by layer for version t + 1. Gradients of t + 1 are held back until version t + 1 of every
// shard is known to be committed (P4). On each new view every primary is asked (version, nodes
// held) and what is missing of our micro-batches is computed, even if t + 1 has begun (P12, P17).
//
// clang-format off
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
//   Push, Question of one  | we are its relay: added to ours, pushed together; told what we hold of
//   of our host            | what it gave (P6a)
//   silence of our relay   | it is asked, then given up: what it was given is pushed to the lanes
//   silence                | the lane is asked what it holds; what it lacks is sent again (P10);
//                          | after two leases the scheduler is told (P23)
//   waiting for long       | Questions; micro-batches that a straggler owes are computed here too
// clang-format on
//
// Stragglers. A session that has done its part of step t waits for the others. When that takes much
// longer than a step does (StepClock), it asks every primary, and when all have answered, computes
// micro-batches that some of them lack, one for each computing thread, then asks again. The bits
// are the same, the first ones win. Workers begin at different places, by rank. A version that is
// slow to come because a server is silent makes nobody compute anything: the answers of all are
// needed. A member without work of its own pulls nothing: it asks now and then how far the run is,
// which is how it measures a step, and pulls a version only to help.
//
// Layer residency. Of the parameters only those shards go to compute that it wants, when it wants
// them, in forward, in backward and in evaluation. What a push brings back, or is pulled to learn
// of a commit, and nobody wants, is dropped. A version stays with the servers while its step lacks
// anything of ours; one that is Behind is over, and so is the work that wants it.
//
// Threads: none. Owns: one step's unreplied gradients, and as a relay its host's (I6). Invariants
// I1, I4.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/job_plan.h"
#include "common/status.h"
#include "proto/assignment.h"
#include "proto/core.h"
#include "proto/silence.h"
#include "proto/view_member.h"
#include "worker/bad_picture_reports.h"
#include "worker/compute_port.h"
#include "worker/gradient_reports.h"
#include "worker/host_relay.h"
#include "worker/push_window.h"
#include "worker/step_clock.h"
#include "worker/wanted_shards.h"

namespace pando {

class Session : public ProtocolCore {
 public:
  // Small shards wait for company before they are sent, so that a lane gets few messages (P6): for
  // the lane's other shards, or for this many bytes. Less than this is not worth waking the
  // protocol thread for: on two cores the MNIST CNN, 87 KB, takes 2 % less time for a step in one
  // message than in two of 66 and 21 KB, of which only the second is waited for.
  static constexpr size_t kFlushBytes = 128 << 10;

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
  // This process was asked to leave: says so until the scheduler stops it. It works on meanwhile.
  void Leave(Micros now);

  bool finished() const { return stop_.has_value(); }
  // How the scheduler ended the job.  REQUIRES: finished().
  const Stop& stop() const { return *stop_; }
  // How the scheduler refused this incarnation, if it did.
  const std::optional<RefusalKind>& refusal() const { return refusal_; }
  // Why it cannot go on, if it cannot.
  const std::optional<Failure>& failure() const { return failure_; }
  // The scheduler of today, and the view: what heartbeats are addressed to and say.
  const PeerId& scheduler() const { return member_.scheduler(); }
  const View& view() const { return member_.view(); }
  // Whether this message brings a view that the session will enter: who it names is dialed first.
  bool WillEnter(const Envelope& envelope) const;
  // What the heartbeat should say.
  Heartbeat CurrentActivity(Micros now) const;
  // Version that every shard is known to have committed.
  Version known_everywhere() const;
  size_t unreplied_count() const;
  size_t wanted_count() const { return wanted_.size(); }
  // Bytes pushed while the step's backward was still going on, and in all: the overlap.
  struct PushedBytes {
    uint64_t early = 0;
    uint64_t all = 0;
  };
  const PushedBytes& pushed_bytes() const { return pushed_bytes_; }
  // Bytes given to the host's relay, which pushes them with its own (P6a).
  uint64_t given_bytes() const { return given_bytes_; }
  // It does not answer; we push for ourselves meanwhile.
  bool has_given_up_relay() const { return host_.is_given_up(); }
  uint64_t pulled_bytes() const { return pulled_bytes_; }

 private:
  struct Unreplied {  // a gradient that its shard has not answered for (P11)
    Step step;
    TreeNode node;
    Blob payload;
    bool is_sent = false;
    bool is_held = false;   // the lane said so: it has this very contribution
    bool is_given = false;  // it was sent to the host's relay, not to the lane
    bool is_pushed() const { return is_sent && !is_given; }
  };
  struct ShardState {
    Version known;  // committed, as far as we know
    std::array<Version, 2> held{Version(UINT64_MAX),
                                Version(UINT64_MAX)};  // with compute, by parity
    std::vector<Unreplied> pushes;
    Micros ask_at{0};    // when to ask its lane; kNever: that was asked, or is told unasked
    Micros asked_at{0};  // the last time: by a push or a pull
    Version asked;       // the newest version that its lane was asked for, in this view
  };
  // A lane that owes us data, in this view.
  struct LaneDebt {
    Micros question_at = kNever;  // when to ask what it holds
    Micros interval{0};
    Micros asked_from = kNever;  // the first question that is not answered; kNever: there is none
  };
  struct Work {  // a step handed to compute
    Step step;
    std::set<MicroBatch> issued;    // to be pushed
    std::set<MicroBatch> verified;  // to be hashed alone (P41)
    uint32_t open_calls = 0;        // Compute calls whose StepComputed is not back
  };
  struct Parcel {  // what a flush has for a lane, or the host's relay, of a step
    std::vector<PushItem> items;
    size_t bytes = 0;
    std::set<ShardId> shards;
    std::vector<std::pair<ShardState*, Unreplied*>> pushes;
  };
  using Parcels = std::map<std::pair<PeerId, Step>, Parcel>;
  struct Evaluation {
    Version version;
    std::vector<bool> arrived;  // by shard
    std::optional<Evaluate> request;
    std::optional<EvaluationResult> last_result;
    Micros ask_at{0};
    Micros interval{0};
  };

  void OnMessageOf(Micros now, const PeerId& from, const ViewUpdate& update);
  void OnMessageOf(Micros now, const PeerId& from, const Answer& answer);
  void OnMessageOf(Micros now, const PeerId& from, const Params& params);
  void OnMessageOf(Micros now, const PeerId& from, const Push& push);
  void OnMessageOf(Micros now, const PeerId& from, const Question& question);
  void OnMessageOf(Micros now, const PeerId& from, const Evaluate& request);
  void OnMessageOf(Micros now, const PeerId& from, const GradientHashesAck& ack);
  void OnMessageOf(Micros now, const PeerId& from, const PicturesReplacedAck& ack);
  void OnMessageOf(Micros now, const PeerId& from, const Stop& stop);
  void OnMessageOf(Micros now, const PeerId& from, const Refused& refused);
  void OnPushReply(Micros now, ViewId of_lane, const PushReply& reply);
  template <class Other>
  void OnMessageOf(Micros, const PeerId&, const Other&) {}  // not for a worker
  void OnEventOf(Micros now, GradientReady& gradient);
  void OnEventOf(Micros now, StepComputed& done);
  void OnEventOf(Micros now, GradientHashed& hashed);
  void OnEventOf(Micros now, EvaluationResult& result);
  void OnEventOf(Micros now, BadPicturesFound& found);
  void OnEventOf(Micros now, ParametersWanted& wanted);
  void OnEventOf(Micros now, ComputeFailed& failed);

  // Views and questions.
  bool IsOfOurShards(const View& view) const { return view.shards.size() == shards_.size(); }
  void Forget();
  void AskQuestions(Micros now);
  void RepeatQuestions(Micros now);
  void Decide(Micros now);
  bool IsHeld(const AnswerItem& item, MicroBatch m, const MicroBatchTree& tree) const;
  bool HoldsNode(const AnswerItem& item, TreeNode node, Step step) const;
  bool IsIssued(Step step, MicroBatch m) const;
  std::vector<MicroBatch> MissingAt(Step step) const;
  void ExtendLaterWork(Step lowest);
  // Stragglers.
  bool IsIdle() const;
  bool IsWaiting() const;
  void NoteVersion(Micros now);
  void ConsiderHelping(Micros now);
  void Help(Micros now, Step step);
  std::vector<MicroBatch> MissingOfOthers(Step step) const;
  size_t HelpOffset(size_t count) const;
  // Verification (P41).
  void VerifyWork(Micros now);
  bool VerifiesHere(Step step, MicroBatch m) const;
  bool HoldsWhole(Version version) const;
  // Steps.
  bool IsAssignedFrom(Step step) const;
  void LearnCommitted(ShardId shard, Version version);
  void AdvanceWork(Micros now);
  void DropMootWork();
  void PullAtOnce(Version version);
  // Parameters.
  bool is_layered() const { return plan_.job.parameter_residency == ParameterResidency::kLayer; }
  bool HasOf(const ShardState& shard, Version version) const;
  void HandOver(const ParamsItem& item);
  void HandOverWanted(const ParamsItem& item);
  size_t PayloadBytes(const ParamsItem& item) const;
  void OnGone(Version version);
  void Issue(Step step, std::vector<MicroBatch> micro_batches);
  void ComputeMissing(Step step, std::vector<MicroBatch> missing);
  Work* FindWork(Step step);
  // Sums on the host (P6a).
  void AddPush(ShardId shard, Unreplied push);
  void RestoreGifts();
  void OnRelayAnswer(Micros now, const Answer& answer);
  void AskRelay(Micros now);
  size_t BytesOwedByRelay() const;
  bool IsAllHere(const ShardState& shard, Step step);
  void TakeBackGifts();
  // Sending.
  bool BarrierIsOpen(Step step) const;
  bool HasUnsentPushes() const;
  size_t PushesOfEachShard(Step step);
  Micros WindowPatience() const;
  Micros HostPatience() const;
  void FlushPushes(Micros now);
  void NoteSent(Micros now, const PeerId& receiver, Step step, size_t bytes);
  Parcels GatherPushes(Micros now);
  bool GatherPushesOf(Micros now, ShardId id, Parcels& parcels);
  void AskWhatIsDue(Micros now);
  static void NoteAsked(Micros now, ShardState& shard, Version version);
  void Expect(Micros now, const PeerId& lane);
  void QuestionSilentLanes(Micros now);
  bool Owes(const PeerId& lane) const;
  void AskQuestion(Micros now, const PeerId& lane);
  size_t BytesUnderWay(const PeerId& lane) const;
  void FindLost(Micros now, const PeerId& lane, const Answer& answer);
  void FindLost(ShardState& shard, const AnswerItem& item);
  bool IsComputed(Step step);
  std::optional<Version> VersionToPull(const ShardState& shard) const;
  bool IsPulledAsWanted(const WantedShards::Key& key) const;
  void PullForEvaluation(Micros now);
  void PutOffEvaluationPull(Micros now);
  void RepeatControl(Micros now);
  void SendToLane(const PeerId& lane, Message message);
  void AskLane(Micros now, const PeerId& lane, Message message);
  const PeerId& PrimaryOf(ShardId shard) const {
    return member_.view().shards[shard.value()].primary;
  }

  const Ready ready_;
  const JobPlan& plan_;
  ComputePort& compute_;
  ViewMember member_;
  bool is_member_ = false;                 // the view has us
  std::map<PeerId, size_t> shard_counts_;  // of each lane, in the view, and what the relay sums
  std::map<PeerId, bool> questions_;       // lane -> answered, of the view's questions
  std::map<ShardId, AnswerItem> answers_;
  Micros question_at_{0};
  Micros question_interval_{0};
  Silence silence_;
  bool has_started_ = false;  // the first questions have been answered
  std::vector<ShardState> shards_;
  std::map<PeerId, LaneDebt> debts_;
  PushWindow window_;
  HostRelay host_;
  std::deque<Work> works_;  // ascending steps, at most two
  Step next_;               // the next step to hand to compute
  StepClock step_clock_;
  Micros help_at_ = kNever;  // when we have waited long enough; kNever while that is not known
  bool is_helping_ = false;  // the questions and the work under way are for stragglers
  std::optional<Step> verify_next_;  // the first step whose verifications are not handed out
  bool has_new_assignment_ = false;  // since then
  std::optional<Evaluation> evaluation_;
  WantedShards wanted_;  // with layer residency
  GradientReports gradient_reports_;
  BadPictureReports bad_pictures_;
  std::optional<Failure> failure_;
  bool is_leaving_ = false;
  Micros control_at_{0};  // when to repeat Ready, Failure or Leave
  Micros waiting_since_{0};
  std::optional<Stop> stop_;
  std::optional<RefusalKind> refusal_;
  PushedBytes pushed_bytes_;
  uint64_t pulled_bytes_ = 0;
  uint64_t given_bytes_ = 0;
};

}  // namespace pando
