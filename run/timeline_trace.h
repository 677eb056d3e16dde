// Makes one Chrome trace (JSON object format: Perfetto, chrome://tracing) from the timelines of a
// run's processes, all on one clock. `pando timeline` uses it, and so does the end of a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/timeline/timeline_file.h"

namespace pando {

// Converts a process's clock to the trace's clock, which is the steady clock of the scheduler's
// machine. Processes of that machine (and of its boot) read the same clock. Other processes have
// measured repeatedly, since clocks drift, how far the scheduler's clock is ahead. Without
// measurements the time of day decides.
class TimelineClock {
 public:
  // `scheduler` led the run at the file's time; the trace has the clock of `origin`.
  TimelineClock(const TimelineFile& file, const TimelineFile& scheduler,
                const TimelineFile& origin);
  int64_t ToReference(int64_t at_ns) const;
  bool is_by_time_of_day() const { return is_by_time_of_day_; }

 private:
  struct Sample {
    int64_t at_ns = 0;
    int64_t ahead_ns = 0;
  };
  bool is_by_time_of_day_ = false;
  std::vector<Sample> samples_;  // ascending; at least one
};

struct TraceSummary {
  size_t process_count = 0;  // lives of processes
  uint64_t span_count = 0;
  std::vector<std::string> warnings;  // parts that are missing or uncertain
};

// Writes the trace, whole or not at all. `sources` are run folders, folders of gathered timelines,
// or files. kNotFound: there is no timeline; kCorrupt: as ReadTimelineFile.
Result<TraceSummary> WriteTrace(const std::vector<std::string>& sources, const std::string& path);

// The sum of equally named spans over all processes of a role.
struct TimelineSum {
  std::string role;      // "worker"
  std::string category;  // "wait"
  std::string name;      // "conv1 forward", "wait for parameters"
  double seconds = 0;
  uint64_t span_count = 0;
};
// Returns the sums by role, each in descending order of seconds.
Result<std::vector<TimelineSum>> SumTimeline(const std::vector<std::string>& sources);

}  // namespace pando
