// These functions say how random delays and failures slow a run: the slowest of many workers, and
// the share of time that failures leave. `pando plan` and step_time call them. They are pure.
#pragma once

#include <cstdint>

namespace pando {

// Returns the expected maximum of `count` draws from the standard normal distribution (David and
// Nagaraja, Order Statistics, 3rd edition, 2003, section 3.1). REQUIRES: count >= 1.
double ExpectedMaximum(uint32_t count);

// Failures are a Poisson process: each machine fails once per mtbf_s on average.
struct Failures {
  double mtbf_s = 0;
  double recovery_s = 0;    // what a failure costs if a replica has the state
  double checkpoint_s = 0;  // to store a checkpoint, during which a run stands still
  double restart_s = 0;     // from the failure to the first step after the checkpoint
  bool operator==(const Failures&) const = default;
};

// Return the share of time that is not lost to failures of `machines` (goodput), by the renewal
// theorem: the mean useful time between two renewals, divided by the mean time.
double GoodputWithReplicas(const Failures& failures, uint32_t machines);
// A failure also loses all steps since the last checkpoint. Checkpoints have the best interval.
double GoodputWithCheckpoints(const Failures& failures, uint32_t machines);
// Returns the computing time between two checkpoints that loses least time (Daly, A higher order
// estimate of the optimum checkpoint interval for restart dumps, Future Generation Computer Systems
// 22, 2006, which improves Young's square root of 2 * checkpoint_s * mtbf_s).
double BestIntervalS(const Failures& failures, uint32_t machines);

}  // namespace pando
