// `pando bench recovery`: what a dead process costs a run, with servers and by allreduce.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/harness/interleave.h"
#include "bench/recovery/commits.h"
#include "bench/training/training_runs.h"

namespace pando::bench {

// What happens to whom, by a signal from outside, as by a user's hand.
struct FaultPlan {
  std::string name;  // "worker killed"
  std::string role;  // worker, server, scheduler
  int signal = 0;    // SIGKILL; SIGSTOP: it is silent from then on
};
// "worker", "server", "scheduler": killed; "stopped-worker", "stopped-scheduler".
std::vector<std::string> FaultNames();
FaultPlan FaultOf(const std::string& name);  // REQUIRES: one of them

struct RecoveryOptions {
  Workload workload;
  uint32_t workers = 2;
  uint32_t servers = 2;
  std::string transport = "auto";
  std::vector<std::string> strategies{"ps", "allreduce"};
  std::vector<std::string> faults = FaultNames();
  uint64_t snapshot_every = 200;
  uint64_t warm_up_steps = 100;
  uint64_t fault_step = 300;    // half way between two snapshots
  uint64_t steps_after = 1000;  // behind the fault, until the delay is taken
  uint32_t rounds = 5;
  std::string program;
  uint64_t goal() const { return fault_step + steps_after; }
};

// Every way undisturbed, and once with each fault of somebody whom it has.
Result<ResultSet> RunRecovery(const RecoveryOptions& options, ShutdownSignal& shutdown,
                              const OnProgress& on_progress);

// ---- parts of it, for tests ---------------------------------------------------------------------

inline constexpr const char* kToGoal = "time to the goal";
inline constexpr const char* kNextCommit = "next commit";
inline constexpr const char* kLost = "lost";
inline constexpr const char* kLostOfOwnPace = "lost, of its own pace";
inline constexpr const char* kNoticed = "noticed";
inline constexpr const char* kMadeUp = "made up for";

struct RecoveryPoint {
  Point point;
  TrainPlan plan;
  std::optional<FaultPlan> fault;
  std::string undisturbed;  // the point without the fault; empty: this is one
};
std::vector<RecoveryPoint> RecoveryPoints(const RecoveryOptions& options, uint32_t cores);

// What the commits of one run say; `fault_at` is none in an undisturbed one. kInternal where they
// do not reach the goal.
Status AddFigures(const RecoveryOptions& options, const Commits& commits,
                  std::optional<SteadyMicros> fault_at, Point* point);

// The time to the goal over that of the same round's undisturbed run.
void AddLost(const std::vector<RecoveryPoint>& asked, std::vector<Point>* points);

void AddRecoverySummaries(const RecoveryOptions& options, const std::vector<RecoveryPoint>& asked,
                          ResultSet* set);

// A process that `parent` has started: "worker" and its rank, "server" and its rank, "scheduler".
std::optional<pid_t> FindChild(pid_t parent, const std::string& role, uint32_t rank);

// When the run wrote that it had noticed a fault, and that it had made up for one, from its
// events.jsonl; ms after `injected_at`.
struct RunsOwnWord {
  std::optional<double> noticed_ms;
  std::optional<double> made_up_ms;
};
RunsOwnWord ReadFault(const std::string& events_path,
                      std::chrono::system_clock::time_point injected_at);

}  // namespace pando::bench
