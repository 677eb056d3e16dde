// The table of recovery.
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
}

}  // namespace pando::bench
