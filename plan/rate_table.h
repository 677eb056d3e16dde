// RateTable is schedule.rates: the learning rate of each step, as runs of steps with equal rates.
// Schedule reads it. Threads: any; immutable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "plan/job.h"

namespace pando {

class RateTable {
 public:
  // Reads texts as "0.05" (one step) and "0.1*390" (390 steps). kInvalidArgument names the text.
  static Result<RateTable> Parse(const std::vector<std::string>& texts);
  uint64_t step_count() const { return ends_.empty() ? 0 : ends_.back(); }
  // Returns the rate of this step; after the last one, the last rate.  REQUIRES: step_count() > 0.
  double At(uint64_t step) const;

 private:
  std::vector<uint64_t> ends_;  // ascending; run i has the steps from the end of the one before
  std::vector<double> rates_;
};

// kInvalidArgument: the job has a table, and its steps are not those of the job.
Status CheckRates(const ScheduleOptions& schedule, uint64_t step_count);

}  // namespace pando
