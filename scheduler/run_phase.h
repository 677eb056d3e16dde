// RunPhase is the phase of the run, whether it has to begin again from a snapshot, and how it ends.
// All parts of the scheduler read it, and any of them may end the run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/text.h"
#include "scheduler/journaled_outbox.h"
#include "scheduler/training_clock.h"

namespace pando {

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

  // Continues a run that an earlier life of the scheduler had begun to train.
  void Resume() { phase_ = SchedulerPhase::kTraining; }
  void StartTraining(Micros now);
  void StartCollecting(Micros now);

  // Returns whether the run has to begin again from a snapshot (P21). Until the Scheduler begins
  // the new generation, no view is made, and nothing is evaluated or stored.
  bool is_rolling_back() const { return rollback_.has_value(); }
  // Plans a rollback. Does nothing if one is planned already.
  void PlanRollback(Micros now, const std::string& reason);
  // REQUIRES: is_rolling_back().
  void DelayRollback(Micros at) { rollback_->not_before = at; }
  // Returns whether there are servers to begin on. `wanted`: the job's number of servers.
  bool MayRollBack(Micros now, size_t server_count, uint32_t wanted) const;
  // Ends the rollback: the run trains again.  Returns its reason.  REQUIRES: is_rolling_back().
  std::string RollBack();

  // Ends the run. Does nothing if it is ending already.
  void End(Micros now, StopReason reason, std::string text);
  // Ends a group, which cannot continue without the member that it has lost.
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

  TrainingClock& clock() { return clock_; }
  const TrainingClock& clock() const { return clock_; }

 private:
  struct Rollback {
    std::string reason;
    Micros since{0};
    Micros not_before{0};
  };
  JournaledOutbox& outbox_;
  const Micros stop_grace_;
  SchedulerPhase phase_ = SchedulerPhase::kGathering;
  std::optional<Rollback> rollback_;
  bool is_completed_;
  std::optional<Stop> stop_;
  bool has_lost_member_ = false;
  Micros stop_at_{0};  // when kStopping began
  TrainingClock clock_;
};

}  // namespace pando
