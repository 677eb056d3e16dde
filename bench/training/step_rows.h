// StepRows: the rows of a run's metrics.csv, by the names of its columns, and how fast training was
// between two of them. Used by the benchmarks of training. Text in, numbers out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"

namespace pando::bench {

struct StepRow {
  uint64_t step = 0;
  double elapsed_s = 0.0;
  double exposed_sync_ms = 0.0;  // of a step
};

class StepRows {
 public:
  // The next line of the file; the first one is the heading. kCorrupt where it is neither.
  Status Add(const std::string& line);
  const std::vector<StepRow>& rows() const { return rows_; }

 private:
  std::vector<std::string> heading_;
  std::vector<StepRow> rows_;
};

// Between the rows `first` and `last`, of which `first` is left out. The scheduler learns of
// several steps at once, whose rows have one time: a pace is between the ends of such batches.
struct Pace {
  uint64_t step_count = 0;
  double seconds = 0.0;
  double exposed_sync_ms = 0.0;  // of a step
  double steps_per_s() const { return static_cast<double>(step_count) / seconds; }
};
// REQUIRES: first < last < rows.size().
Pace PaceBetween(const std::vector<StepRow>& rows, size_t first, size_t last);

}  // namespace pando::bench
