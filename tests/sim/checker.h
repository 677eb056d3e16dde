// Checker looks at everything that is sent, written and done, and knows the invariants
// (docs/protocol.md). The first breach ends the seed.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/sim/coverage.h"
#include "tests/sim/disk.h"
#include "tests/sim/process.h"
#include "tests/sim/reference.h"

namespace pando::sim {

class Checker {
 public:
  using Processes = std::vector<std::unique_ptr<Process>>;
  Checker(const World& world, const JobPlan& plan, const Reference& reference,
          const VirtualDisk& disk, const Processes& processes, Coverage& coverage, bool is_noisy)
      : world_(world),
        plan_(plan),
        reference_(reference),
        disk_(disk),
        processes_(processes),
        coverage_(coverage),
        is_noisy_(is_noisy) {}

  void OnSent(const Envelope& envelope);
  void OnLaneEvent(const Lane& lane);
  void OnSessionEvent(const Session& session);
  void OnCommitted(const std::optional<SchedulerState>& before, const SchedulerState& after);
  void OnLost(const Process& process);  // killed
  void OnLeft(const Process& process);
  void OnStepMetrics(const StepMetrics& metrics);
  void OnEvaluation(const EvaluationSummary& summary);
  void OnSnapshotDropped(const SnapshotManifest& dropped, const SchedulerState& state);
  void OnFinalWeights(Version version, const FloatBuffer& flat);
  // The scheduler's is away while this is so: rows that servers take with them are lost.
  void NoteSchedulerAway() { is_scheduler_away_ = true; }
  void NoteSchedulerBack() {
    is_scheduler_away_ = false;
    scheduler_back_at_ = world_.now();
  }
  void NoteResumed() { is_resuming_ = true; }
  // A worker has computed wrong bits: nothing of this generation needs to be right.
  void NoteFlip() { tainted_generation_ = generation_; }
  // A client asked to drain the process with this name.
  void NoteDrain(Role role, uint32_t rank) { drained_.insert({role, rank}); }
  void NoteDivergence() { has_divergence_ = true; }
  void NoteFailedRestore() { has_failed_restore_ = true; }
  void NoteForgotten(const SnapshotRef& snapshot) { forgotten_.insert(snapshot); }
  // The job is over: all of it must be there.
  void CheckEnd(const SchedulerState& state);

  void Fail(std::string what);
  const std::optional<std::string>& failure() const { return failure_; }
  Step next_row() const { return next_row_; }
  bool has_final_weights() const { return has_final_weights_; }
  uint32_t generation() const { return generation_; }
  std::optional<View> const& view() const { return view_; }

 private:
  struct Shown {                     // of one generation
    std::vector<Version> shown;      // by shard: newest in any Params
    std::vector<Version> committed;  // by shard: newest that a primary called so
    Version everywhere;              // lowest of them
  };
  Shown& ShownIn(uint32_t generation);
  void CheckPush(const Envelope& envelope, const Push& push);
  void NoteSpeculation(const Envelope& envelope, const Push& push);
  void NoteCodecs(const Envelope& envelope);
  void NoteGift(const Envelope& envelope);
  void NoteFeedback(const Envelope& envelope, const Push& push);
  void CheckParams(const Envelope& envelope, const Params& params);
  void CheckView(const View& view);
  void CheckSilence(const Envelope& envelope, const PeerSilent& silent);
  // I2.
  const Process* FindServer(const PeerId& peer) const;
  enum class Holds : uint8_t { kYes, kNo, kLost };
  Holds HoldsVersion(const PeerId& peer, ShardId shard, Version version) const;
  void CheckHeld(ShardId shard);
  void CheckAllHeld();
  // The journal.
  void CheckTransition(const View& before, const View& after);
  void CheckRollback(const View& before, const View& after);
  void CheckGivenUp(const View& before, const View& after);
  void CheckManifest(const SnapshotManifest& manifest);
  void CheckOrigin(const SchedulerState& state);
  bool CheckEvaluation(const EvaluationSummary& summary);
  Version DecidedBy(const std::vector<EvaluationSummary>& evaluations) const;
  // Whether something recently kept this process's messages back.
  bool IsDisturbed(const Process& process) const;
  bool IsLate(Micros end) const;  // lately: silences last on for a while after their cause
  bool IsUnreachable(Incarnation incarnation) const;
  bool IsSchedulerInTrouble() const;
  const Process* FindProcess(Incarnation incarnation) const;

  const World& world_;
  const JobPlan& plan_;
  const Reference& reference_;
  const VirtualDisk& disk_;
  const Processes& processes_;
  Coverage& coverage_;
  const bool is_noisy_;  // messages are lost or late: silences need no other cause
  std::optional<std::string> failure_;
  std::optional<View> view_;  // the journal's newest
  uint32_t generation_ = 0;
  std::map<uint32_t, Shown> shown_;
  std::map<ViewId, uint64_t> view_hashes_;                // I3: one view for each id
  std::set<std::tuple<ShardId, PeerId, ViewId>> synced_;  // reported, with the pair's name
  std::map<Incarnation, Micros> silent_at_;               // peers in reports of silence, and when
  std::set<std::pair<Role, uint32_t>> drained_;
  std::set<SnapshotRef> manifests_;
  std::set<SnapshotRef> forgotten_;
  std::set<Version> evaluated_;
  // With error feedback: of which step a micro-batch's newest gradient is, and whose.
  std::map<MicroBatch, std::pair<Step, Incarnation>> newest_pushes_;
  Version decided_;  // by the journal's evaluations: versions up to here are to be made
  // Whether bits may differ from the serial run's: the job's codec gives I5 up (P34).
  bool HasOwnBits() const { return plan_.pushes.has_feedback(); }
  std::optional<uint32_t> tainted_generation_;
  bool has_divergence_ = false;
  bool has_failed_restore_ = false;  // since the last rollback: the next one has a cause
  bool is_resuming_ = false;
  bool is_scheduler_away_ = true;
  Micros scheduler_back_at_{0};
  bool may_lack_rows_ = false;
  Step next_row_;
  bool has_final_weights_ = false;
  uint64_t lane_events_ = 0;
};

}  // namespace pando::sim
