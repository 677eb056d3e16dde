// How far the run is: RunPhase, RunProgress, and Rollback, which makes it go back. Part of the
// scheduler core. Threads: none.
#pragma once

#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "common/text.h"
#include "optim/schedule.h"
#include "proto/outbox.h"
#include "scheduler/journaled_outbox.h"
#include "scheduler/members/member.h"

namespace pando {

struct RunFacts;

// Rollback keeps why the run must begin again from a snapshot, until ViewMaker does that (P21).
// While a rollback is pending no view is made and nothing is evaluated or stored.
class Rollback {
 public:
  explicit Rollback(RunFacts& run) : run_(run) {}  // `run` outlives this

  bool is_pending() const { return pending_.has_value(); }
  // No effect if a rollback is pending already.
  void Plan(Micros now, const std::string& reason);
  // REQUIRES: is_pending().
  void DelayUntil(Micros at) { pending_->not_before = at; }
  // Whether there are servers to begin on. `wanted`: the job's number of servers.
  bool IsPossible(Micros now, uint32_t wanted) const;
  // No rollback is pending any more.  Returns its reason.
  std::string Take() { return std::exchange(pending_, std::nullopt)->reason; }

  // P26. A member has a view that the journal does not know.
  void OnNewsBeyond(Micros now, const Member& member, ViewId id, uint32_t generation);
  void OnDivergence(Micros now, const PeerId& from, const Divergence& divergence);

 private:
  struct Pending {
    std::string reason;
    Micros since{0};
    Micros not_before{0};
  };
  RunFacts& run_;
  std::optional<Pending> pending_;
  uint32_t divergence_count_ = 0;
  std::set<ProcessName> doubted_;  // that named views that cannot be
};

// RunPhase is the scheduler's phase, how the run ends, and the time in which steps were made. The
// parts of the scheduler read it; any of them may end the run.
//
// clang-format off
//   phase       | entered when                          | what the scheduler does
//   ------------+---------------------------------------+-----------------------------------------
//   kGathering  | start of a run, or of its resumption  | welcomes nodes until all that the job
//               |                                       | wants are ready
//   kTraining   | all are ready; the journal has a view | scalars, progress, evaluations, leases,
//               |                                       | views as nodes come and go, rollbacks
//   kCollecting | version n committed and evaluated     | pulls the final weights, waits for the
//               |                                       | final snapshot; a rollback trains again
//   kStopping   | both are here, or a failure, or End() | sends Stop until every member said Bye,
//               |                                       | or for stop_grace
//   kFinished   | all have left                         | -
// clang-format on
enum class SchedulerPhase : uint8_t { kGathering, kTraining, kCollecting, kStopping, kFinished };
template <>
inline constexpr auto kEnumNames<SchedulerPhase> =
    std::to_array({"gathering", "training", "collecting weights", "stopping", "finished"});

struct RunTimes {        // and how far the run is
  Micros training{0};    // RunPhase::TrainingTime
  Micros evaluation{0};  // of all evaluations that are done, beside steps or not
  Version made;          // RunProgress::made
};

class RunPhase {
 public:
  // `is_completed`: an earlier life of the scheduler has completed the run (P33).
  RunPhase(JournaledOutbox& outbox, Micros stop_grace, bool is_completed)
      : outbox_(outbox), stop_grace_(stop_grace), is_completed_(is_completed) {}

  SchedulerPhase phase() const { return phase_; }
  bool is_gathering() const { return phase_ == SchedulerPhase::kGathering; }
  bool is_training() const { return phase_ == SchedulerPhase::kTraining; }
  bool is_collecting() const { return phase_ == SchedulerPhase::kCollecting; }
  bool is_running() const { return is_training() || is_collecting(); }
  bool is_ending() const { return phase_ >= SchedulerPhase::kStopping; }
  bool is_finished() const { return phase_ == SchedulerPhase::kFinished; }

  // Another life of the scheduler had begun to train.
  void Resume() { phase_ = SchedulerPhase::kTraining; }
  void StartTraining(Micros now);
  void StartCollecting(Micros now);
  void TrainAgain();  // after a rollback
  // Ends the run. No effect on a run that is ending.
  void End(Micros now, StopReason reason, std::string text);
  // The same for a group, which cannot go on without the member that it has lost.
  void EndForLostMember(Micros now, std::string text);
  // Finishes an ending run once every member has left, or has had the time to.
  void FinishWhenLeft(Micros now, bool have_all_left);

  // P33: the final weights are kept. The journal keeps this.
  bool is_completed() const { return is_completed_; }
  void SetCompleted() { is_completed_ = true; }
  // REQUIRES: is_ending().
  const Stop& stop() const { return *stop_; }
  bool has_lost_member() const { return has_lost_member_; }
  // When kStopping ends at the latest; kNever in other phases.
  Micros NextDeadline() const;

  // Time in which steps were made: from the first view on, without evaluations beside which there
  // were none.
  Micros TrainingTime(Micros now) const;
  Micros evaluation_time() const { return evaluation_time_; }  // of all evaluations that are done
  void StartClock(Micros now) { training_since_ = now; }
  // `is_beside_steps`: the workers make further steps meanwhile.
  void OnEvaluationStarted(Micros now, bool is_beside_steps);
  void OnEvaluationDone(Micros now);
  // An evaluation runs, and no steps are made beside it.
  bool is_standing_still() const { return evaluating_since_ && is_standstill_; }
  void OnEvaluationLost() { evaluating_since_.reset(); }  // its time counts as training

 private:
  JournaledOutbox& outbox_;
  const Micros stop_grace_;
  SchedulerPhase phase_ = SchedulerPhase::kGathering;
  bool is_completed_;
  std::optional<Stop> stop_;
  bool has_lost_member_ = false;
  Micros stop_at_{0};  // when kStopping began
  Micros training_since_{0};
  Micros evaluation_time_{0};
  Micros standstill_{0};  // the part of it beside which no steps were made
  std::optional<Micros> evaluating_since_;
  bool is_standstill_ = false;           // of the running evaluation
  std::optional<Micros> training_time_;  // fixed while the run ends
};

// How many steps the run makes in a given time, as the lanes report: names a step that is a little
// ahead.
class StepPace {
 public:
  void OnCommitted(Micros now, Version committed) {
    const Micros since = now - at_;
    if (at_ != Micros(0) && since < kInterval) return;
    if (at_ != Micros(0) && committed >= committed_) {
      const double steps = static_cast<double>(committed.value() - committed_.value());
      steps_per_us_ = (steps_per_us_ + steps / static_cast<double>(since.count())) / 2;
    }
    at_ = now;
    committed_ = committed;
  }
  // 0: not known.
  Micros UsualStep() const {
    return steps_per_us_ <= 0 ? Micros(0) : Micros(static_cast<int64_t>(1 / steps_per_us_));
  }
  // At least 1.
  uint64_t StepsWithin(Micros time) const {
    return 1 + static_cast<uint64_t>(std::ceil(steps_per_us_ * static_cast<double>(time.count())));
  }

 private:
  static constexpr Micros kInterval = std::chrono::milliseconds(50);
  Micros at_{0};
  Version committed_;
  double steps_per_us_ = 0;
};

// RunProgress knows which version all shards have committed, and how fast the run is. It sends the
// lanes the scalars of the steps that may be made.
class RunProgress {
 public:
  // `next_row`: OnStepMetrics continues from here. `run` outlives this.
  RunProgress(RunFacts& run, Step next_row);

  // Returns true if every primary's lane has reported under the view.
  bool OnProgress(Micros now, const Envelope& envelope, const Progress& progress);
  void OnScalarsRequest(const PeerId& from, const ScalarsRequest& request);
  // Sends the scalars of the block that begins with `first`, as far as steps may be made. The rest
  // of the block follows with a later decision.
  void SendScalars(const PeerId& lane, Step first);
  // Steps from here on must not be made yet (P32).
  Version ScalarsEnd() const;

  // The view has changed: its primaries report again.
  void OnView();
  // A generation begins from this version.
  void StartGeneration(Version restored);
  // The scheduler has restarted while the run was training.
  void OnRestart() { step_at_start_ = next_row_; }

  // Committed by every shard; known under some view of the generation.
  Version committed() const { return committed_; }
  // The lowest incomplete step, for people.
  Step StepReached() const;
  // How many steps the run makes in `time`; at least 1.
  uint64_t StepsWithin(Micros time) const { return pace_.StepsWithin(time); }
  // What a step takes; 0: not known.
  Micros UsualStep() const { return pace_.UsualStep(); }
  // Metric rows below it are with the observer.
  Step next_row() const { return next_row_; }
  // The newest version that the lane of the last metric rows has committed: rows come in parts.
  Version made() const { return made_; }

 private:
  bool HasOwnRows(const PeerId& from, const Progress& progress) const;
  void TakeRows(Micros now, const Progress& progress);
  bool LearnCommitted(Micros now);

  RunFacts& run_;
  const Schedule schedule_;
  std::set<PeerId> primary_lanes_;            // of the view
  std::map<PeerId, Version> lane_committed_;  // of the lanes that have reported under the view
  Version committed_;
  Version made_;
  StepPace pace_;
  Step next_row_;
  Step step_at_start_;  // about where the scheduler's last life ended
};

}  // namespace pando
