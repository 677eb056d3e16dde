#include "view/run_metrics.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/system.h"

namespace pando {
namespace {

using prometheus::Histogram;

// In seconds. The buckets of a recovery begin at the interval of heartbeats.
const Histogram::BucketBoundaries kStepBuckets{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                               0.25,  0.5,    1,     2.5,  5,     10,   30};
const Histogram::BucketBoundaries kRecoveryBuckets{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
constexpr double kMs = 1e-3;
// The most steps that are examined for a row. Rows are run.log_every steps apart.
constexpr double kStepsOfRowMax = 10'000;

prometheus::Counter& MakeCounter(prometheus::Registry& registry, const char* name, const char* help,
                                 const std::string& run) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({{"run", run}});
}

prometheus::Gauge& MakeGauge(prometheus::Registry& registry, const char* name, const char* help,
                             const prometheus::Labels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
}

Histogram& MakeHistogram(prometheus::Registry& registry, const char* name, const char* help,
                         const std::string& run, const Histogram::BucketBoundaries& buckets) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({{"run", run}},
                                                                                   buckets);
}

// Counts the samples of steps from `first` on. An epoch's last steps may have fewer samples.
double CountSamples(const StepPlan& plan, double first, double steps) {
  const double counted = std::min(steps, kStepsOfRowMax);
  uint64_t samples = 0;
  for (uint64_t i = 0; i < static_cast<uint64_t>(counted); ++i)
    samples += plan.SampleCount(Step(static_cast<uint64_t>(first) + i));
  return static_cast<double>(samples) * (steps / counted);
}

}  // namespace

RunMetrics::RunMetrics(prometheus::Registry& r, const std::string& run)
    : steps_(MakeCounter(r, "pando_steps_total", "Steps completed, each once.", run)),
      step_seconds_(MakeHistogram(r, "pando_step_duration_seconds",
                                  "Time from step to step; means between two rows of metrics.csv.",
                                  run, kStepBuckets)),
      samples_(MakeCounter(r, "pando_samples_total", "Samples of completed steps.", run)),
      stall_seconds_(MakeCounter(r, "pando_data_stall_seconds_total",
                                 "Waits for samples, of all computing threads together.", run)),
      faults_(MakeCounter(r, "pando_faults_total", "Faults that were noticed.", run)),
      rollbacks_(MakeCounter(r, "pando_rollbacks_total", "Returns to a snapshot.", run)),
      recovery_seconds_(MakeHistogram(r, "pando_recovery_seconds",
                                      "From a fault, or from its detection, to the next step.", run,
                                      kRecoveryBuckets)),
      exposed_ratio_(MakeGauge(r, "pando_exposed_sync_ratio",
                               "Share of a step that a computing thread waits for parameters.",
                               {{"run", run}})),
      learning_{.registry = r, .run = run},
      versions_behind_(MakeGauge(r, "pando_shard_versions_behind",
                                 "Versions that the slowest server is behind the run's step.",
                                 {{"run", run}})),
      answer_{
          .waiting =
              MakeGauge(r, "pando_waiting", "1 while the run waits for a process.", {{"run", run}}),
          .stalled_seconds = MakeGauge(
              r, "pando_stalled_seconds",
              "For how long a process has kept the run from its next step.", {{"run", run}}),
          .up = MakeGauge(r, "pando_up", "1 while the run's scheduler answers.", {{"run", run}})},
      complete_(MakeGauge(r, "pando_run_complete", "1 once the run has ended.", {{"run", run}})),
      wire_(r, run) {
  for (size_t role = 0; role < kRoles.size(); ++role) {
    for (size_t state = 0; state < kStates.size(); ++state) {
      members_[role][state] =
          &MakeGauge(r, "pando_members", "Processes of the run.",
                     {{"run", run}, {"role", kRoles[role]}, {"state", kStates[state]}});
    }
  }
  MakeGauge(r, "pando_build_info", "1; the label is the viewer's version.",
            {{"version", PandoVersion()}})
      .Set(1);
}

void RunMetrics::OnRow(const CsvRow& row, const std::vector<std::string>& logged,
                       const StepPlan& plan) {
  if (row.evaluation) {
    Show("pando_evaluation_accuracy", "Of the last evaluation, 0 to 1.", row.evaluation->at(3),
         &learning_.accuracy);
  }
  if (!row.step) return;
  const StepRow& cells = *row.step;
  const double steps = cells[kCellStep] - last_step_;
  const double seconds = cells[kCellElapsed] - last_elapsed_;
  const double first = last_step_;
  const bool is_first = first == 0;  // the time of the first row includes the start
  last_step_ = std::max(last_step_, cells[kCellStep]);
  last_elapsed_ = cells[kCellElapsed];
  Show("pando_train_loss", "Mean loss of the newest step.", cells[kCellLoss], &learning_.loss);
  for (size_t i = 0; i < std::min(logged.size(), cells.logged.size()); ++i)
    Show("pando_train_logged", "Mean of the newest step, logged by the program under this name.",
         cells.logged[i], &learning_.logged[logged[i]], {{"name", logged[i]}});
  if (cells[kCellStepMs] > 0)
    exposed_ratio_.Set(std::min(1.0, cells[kCellExposedSyncMs] / cells[kCellStepMs]));
  if (steps <= 0) return;
  steps_.Increment(steps);
  samples_.Increment(CountSamples(plan, first, steps));
  stall_seconds_.Increment(std::max(0.0, cells[kCellDataStallMs]) * kMs * steps);
  if (is_first || seconds < 0) return;
  for (double i = 0; i < std::min(steps, kStepsOfRowMax); ++i)
    step_seconds_.Observe(seconds / steps);
}

void RunMetrics::Show(const char* name, const char* help, double value, prometheus::Gauge** gauge,
                      prometheus::Labels labels) {
  if (std::isnan(value)) return;
  labels["run"] = learning_.run;
  if (*gauge == nullptr) *gauge = &MakeGauge(learning_.registry, name, help, labels);
  (*gauge)->Set(value);
}

void RunMetrics::OnEvent(const nlohmann::json& event) {
  if (event.value("event", nlohmann::json()) == "rollback") rollbacks_.Increment();
}

void RunMetrics::OnFault(const FaultList::News& news) {
  if (news.is_noticed) faults_.Increment();
  if (news.recovery_ms) recovery_seconds_.Observe(*news.recovery_ms * kMs);
}

void RunMetrics::OnStatus(const RunStatus& status) {
  answer_.up.Set(1);
  answer_.waiting.Set(status.waiting_for ? 1 : 0);
  answer_.stalled_seconds.Set(status.stall ? static_cast<double>(status.stall->since_ms) * kMs : 0);
  std::array<std::array<double, kStates.size()>, kRoles.size()> counts{};
  counts[0][1] = 1;  // the scheduler, which has answered
  double behind = 0;
  for (const RunStatus::Node& node : status.nodes) {
    const auto role = std::ranges::find(kRoles, node.role);
    const auto state = std::ranges::find(kStates, node.health);
    if (role == kRoles.end() || state == kStates.end()) continue;
    ++counts[static_cast<size_t>(role - kRoles.begin())]
            [static_cast<size_t>(state - kStates.begin())];
    if (node.role == "server")
      behind = std::max(behind, static_cast<double>(status.step) - static_cast<double>(node.step));
  }
  versions_behind_.Set(behind);
  wire_.OnNodes(status.nodes);
  for (size_t role = 0; role < kRoles.size(); ++role) {
    for (size_t state = 0; state < kStates.size(); ++state)
      members_[role][state]->Set(counts[role][state]);
  }
}

void RunMetrics::OnNoStatus() {
  answer_.up.Set(0);
  answer_.waiting.Set(0);
  answer_.stalled_seconds.Set(0);
  for (const auto& states : members_) {
    for (prometheus::Gauge* members : states) members->Set(0);
  }
}

}  // namespace pando
