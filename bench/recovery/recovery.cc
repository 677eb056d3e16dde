#include "bench/recovery/recovery.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <csignal>

#include "bench/harness/scratch_folder.h"
#include "bench/training/line_tail.h"
#include "bench/training/training_points.h"
#include "common/check.h"

namespace pando::bench {
namespace {

struct NamedFault {
  const char* name;
  FaultPlan plan;
};
const std::array<NamedFault, 5>& Faults() {
  static const std::array<NamedFault, 5> kFaults{
      {{"worker", {"worker killed", "worker", SIGKILL}},
       {"server", {"server killed", "server", SIGKILL}},
       {"scheduler", {"scheduler killed", "scheduler", SIGKILL}},
       {"stopped-worker", {"worker stopped", "worker", SIGSTOP}},
       {"stopped-scheduler", {"scheduler stopped", "scheduler", SIGSTOP}}}};
  return kFaults;
}

// Rank 0 is the one whose log is read.
constexpr uint32_t kVictimRank = 1;
constexpr std::chrono::milliseconds kLookInterval{1};  // the time of the fault

double Seconds(SteadyMicros time) { return std::chrono::duration<double>(time).count(); }

SteadyMicros Now() {
  return std::chrono::duration_cast<SteadyMicros>(
      std::chrono::steady_clock::now().time_since_epoch());
}

// A group has no servers to be hurt.
bool Has(const std::string& strategy, const FaultPlan& fault) {
  return strategy == "ps" || fault.role != "server";
}

Parameters OptionsOf(const RecoveryOptions& o) {
  return {{"model", fmt::format("{} on {}, batch {} a worker", o.workload.model,
                                o.workload.DataText(), o.workload.worker_batch)},
          {"workers", fmt::format("{} of 1 thread", o.workers)},
          {"servers", fmt::format("{}, 2 replicas, {}", o.servers, o.transport)},
          {"faults", fmt::format("{}", fmt::join(o.faults, " "))},
          {"fault",
           fmt::format("after step {}, with a snapshot every {}", o.fault_step, o.snapshot_every)},
          {"time", fmt::format("from step {} to step {}", o.warm_up_steps, o.goal())},
          {"rounds", fmt::format("{}", o.rounds)}};
}

// One run, from its start to the goal.
class Trial {
 public:
  Trial(const RecoveryOptions& options, const RecoveryPoint& asked, ShutdownSignal& shutdown,
        const std::string& folder)
      : options_(options),
        asked_(asked),
        runs_(options.program, folder, shutdown),
        log_(folder + "/run-0/logs/worker-0.log") {}

  Status Run(Point* point) {
    std::vector<std::string> words;
    if (asked_.plan.strategy == "allreduce") words = {"--group-restarts", "1"};
    if (Status s = runs_.Start(asked_.plan, words); !s.ok()) return s;
    if (Status s = Await(options_.fault_step); !s.ok()) return s;
    std::optional<SteadyMicros> fault_at;
    const auto injected_at = std::chrono::system_clock::now();
    if (asked_.fault) {
      fault_at = Now();
      if (Status s = Inject(*asked_.fault); !s.ok()) return s;
    }
    if (Status s = Await(options_.goal()); !s.ok()) return s;
    runs_.Stop();
    if (fault_at) AddRunsOwnWord(injected_at, point);
    return AddFigures(options_, commits_, fault_at, point);
  }

 private:
  Status Await(uint64_t version) {
    return runs_.Await(
        [&]() -> Result<bool> {
          for (const std::string& line : log_.Take()) commits_.Add(line);
          return commits_.newest() >= version;
        },
        kLookInterval);
  }

  Status Inject(const FaultPlan& fault) {
    const std::optional<pid_t> pid = FindChild(runs_.Pid(0), fault.role, kVictimRank);
    if (!pid || kill(*pid, fault.signal) != 0)
      return Internal(fmt::format("there is no {} to be hurt", fault.role));
    return Status();
  }

  void AddRunsOwnWord(std::chrono::system_clock::time_point injected_at, Point* point) {
    const RunsOwnWord word = ReadFault(runs_.RunDir(0) + "/events.jsonl", injected_at);
    if (word.noticed_ms) point->Add(kNoticed, "ms", *word.noticed_ms);
    if (word.made_up_ms) point->Add(kMadeUp, "ms", *word.made_up_ms);
  }

  const RecoveryOptions& options_;
  const RecoveryPoint& asked_;
  TrainingRuns runs_;
  LineTail log_;
  Commits commits_;
};

}  // namespace

std::vector<std::string> FaultNames() {
  std::vector<std::string> names;
  for (const NamedFault& fault : Faults()) names.push_back(fault.name);
  return names;
}

FaultPlan FaultOf(const std::string& name) {
  const auto fault = std::ranges::find(Faults(), name, &NamedFault::name);
  PANDO_CHECK(fault != Faults().end());
  return fault->plan;
}

std::vector<RecoveryPoint> RecoveryPoints(const RecoveryOptions& o, uint32_t cores) {
  std::vector<RecoveryPoint> points;
  for (const std::string& strategy : o.strategies) {
    RecoveryPoint point{.point = {},
                        .plan = {.workload = o.workload,
                                 .strategy = strategy,
                                 .workers = o.workers,
                                 .servers = o.servers,
                                 .replicas = 2,
                                 .transport = o.transport,
                                 .global_batch = o.workers * o.workload.worker_batch,
                                 .snapshot_every = o.snapshot_every,
                                 .is_verbose = true}};
    point.point = TrainingPoint(point.plan, o.workers);
    point.point.name = strategy + ", undisturbed";
    point.point.is_oversubscribed = point.plan.process_count() > cores;
    points.push_back(point);
    point.undisturbed = point.point.name;
    for (const std::string& fault : o.faults) {
      if (!Has(strategy, FaultOf(fault))) continue;
      point.fault = FaultOf(fault);
      point.point.name = fmt::format("{}, {}", strategy, point.fault->name);
      points.push_back(point);
    }
  }
  return points;
}

Status AddFigures(const RecoveryOptions& o, const Commits& commits,
                  std::optional<SteadyMicros> fault_at, Point* point) {
  const auto start = commits.Reached(o.warm_up_steps), fault_step = commits.Reached(o.fault_step),
             goal = commits.Reached(o.goal());
  if (!start || !fault_step || !goal)
    return Internal(fmt::format("worker 0 never told of step {}", o.goal()));
  point->Add(kToGoal, "s", Seconds(*goal - *start));
  if (!fault_at) return Status();
  const std::optional<SteadyMicros> wait = commits.LongestWait(*fault_at);
  if (wait) point->Add(kNextCommit, "ms", 1000 * Seconds(*wait));
  const double step_s =
      Seconds(*fault_step - *start) / static_cast<double>(o.fault_step - o.warm_up_steps);
  point->Add(kLostOfOwnPace, "s",
             Seconds(*goal - *fault_step) - step_s * static_cast<double>(o.steps_after));
  return Status();
}

void AddLost(const std::vector<RecoveryPoint>& asked, std::vector<Point>* points) {
  for (const RecoveryPoint& recovery : asked) {
    if (recovery.undisturbed.empty()) continue;
    const auto point = std::ranges::find(*points, recovery.point.name, &Point::name);
    const auto base = std::ranges::find(*points, recovery.undisturbed, &Point::name);
    if (point == points->end() || base == points->end()) continue;
    const std::vector<double> with = point->SamplesOf(kToGoal), without = base->SamplesOf(kToGoal);
    for (size_t round = 0; round < std::min(with.size(), without.size()); ++round)
      point->Add(kLost, "s", with[round] - without[round]);
  }
}

Result<ResultSet> RunRecovery(const RecoveryOptions& options, ShutdownSignal& shutdown,
                              const OnProgress& on_progress) {
  ResultSet set = NewResultSet("recovery", "What a dead process costs", OptionsOf(options));
  const std::vector<RecoveryPoint> asked = RecoveryPoints(options, set.machine.cores);
  std::vector<Variant> variants;
  for (const RecoveryPoint& recovery : asked) {
    variants.push_back({recovery.point, [&options, &shutdown, &recovery](Point* point) -> Status {
                          Result<ScratchFolder> folder = ScratchFolder::Create();
                          if (!folder.ok()) return folder.status();
                          return Trial(options, recovery, shutdown, folder->path()).Run(point);
                        }});
  }
  Result<std::vector<Point>> points =
      MeasureInTurns(std::move(variants), options.rounds, on_progress);
  if (!points.ok()) return points.status();
  set.points = *std::move(points);
  AddLost(asked, &set.points);
  AddRecoverySummaries(options, asked, &set);
  return set;
}

}  // namespace pando::bench
