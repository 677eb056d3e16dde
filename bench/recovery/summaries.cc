// The table and plots of recovery.
#include <fmt/format.h>

#include "bench/harness/writers.h"
#include "bench/recovery/recovery.h"

namespace pando::bench {
namespace {

// "-" where there are no samples.
std::string Figure(const Point& point, const char* metric, double Statistics::*which) {
  const Statistics s = StatisticsOf(point.SamplesOf(metric));
  return s.count == 0 ? "-" : NumberText(s.*which);
}

// A bar for each fault, of each way to train.
Plot FaultsPlot(const std::string& name, const std::string& title, const std::string& y_label,
                const char* metric, const std::vector<RecoveryPoint>& asked, const ResultSet& set) {
  Plot plot{
      .name = name, .title = title, .y_label = y_label, .series = {}, .x_axis = PlotAxis::kNone};
  for (const RecoveryPoint& recovery : asked) {
    const Point* point = set.Find(recovery.point.name);
    if (point != nullptr && recovery.fault) plot.series.push_back(BarOf(*point, metric));
  }
  return plot;
}

}  // namespace

void AddRecoverySummaries(const RecoveryOptions& options, const std::vector<RecoveryPoint>& asked,
                          ResultSet* set) {
  const auto p50 = &Statistics::p50;
  Table table{
      .title = "What a fault costs",
      .note = fmt::format(
          "Next commit: the longest time without a new version, from the fault on. Lost: the delay "
          "at step {}, against the undisturbed run of the same round, and against the run's own "
          "pace before the fault; an earlier step than a snapshot's is computed again. Noticed, "
          "made up for: as the run says, after the fault; a dead scheduler's next life says so. "
          "Medians. * more processes at work than cores.",
          options.goal()),
      .header = {"run", "next commit ms", "max", "lost s", "min", "max", "of own pace s",
                 "noticed ms", "made up for ms"},
      .rows = {}};
  for (const RecoveryPoint& recovery : asked) {
    const Point* point = set->Find(recovery.point.name);
    if (point == nullptr || !recovery.fault) continue;
    table.rows.push_back(
        {point->name + (point->is_oversubscribed ? " *" : ""), Figure(*point, kNextCommit, p50),
         Figure(*point, kNextCommit, &Statistics::max), Figure(*point, kLost, p50),
         Figure(*point, kLost, &Statistics::min), Figure(*point, kLost, &Statistics::max),
         Figure(*point, kLostOfOwnPace, p50), Figure(*point, kNoticed, p50),
         Figure(*point, kMadeUp, p50)});
  }
  set->tables.push_back(std::move(table));
  set->plots.push_back(FaultsPlot("recovery-next-commit", "The longest wait for a new version",
                                  "ms, median and extremes", kNextCommit, asked, *set));
  set->plots.push_back(FaultsPlot("recovery-lost", "Delay at an equal later step",
                                  "s, median and extremes", kLost, asked, *set));
}

}  // namespace pando::bench
