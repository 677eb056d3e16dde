// Makes one Chrome trace (JSON object format: Perfetto, chrome://tracing) of the timelines that the
// processes of a run have left, on one clock. Used by `pando timeline` and at the end of a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"
#include "common/timeline_file.h"

namespace pando {

// Where a process's clock stands beside that of the trace: the steady clock of the machine that the
// scheduler is on. Processes of that machine (and of its boot) read the same clock. Others have
// measured how far the scheduler's is ahead, more than once, since clocks drift; one that has not
// goes by the time of day.
class TimelineClock {
 public:
  // `scheduler`: that of the file's time; `origin`: whose clock is the trace's.
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
  std::vector<std::string> warnings;  // what the trace lacks, or is unsure of
};

// `sources`: run folders, folders of gathered timelines, or the files themselves. The trace is
// written whole or not at all.  kNotFound without any timeline; kCorrupt as ReadTimelineFile.
Result<TraceSummary> WriteTrace(const std::vector<std::string>& sources, const std::string& path);

// The spans of all processes of a role, added by name.
struct TimelineSum {
  std::string role;      // "worker"
  std::string category;  // "wait"
  std::string name;      // "conv1 forward", "wait for parameters"
  double seconds = 0;
  uint64_t span_count = 0;
};
// By role, each in descending order of seconds.
Result<std::vector<TimelineSum>> SumTimeline(const std::vector<std::string>& sources);

}  // namespace pando
