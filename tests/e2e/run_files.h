// The files in a run's folder, as the end-to-end tests read them, and jobs small enough for them.
#pragma once

#include <string>
#include <vector>

#include "run/summary.h"
#include "tests/e2e/process.h"

namespace pando {

// The job of most tests: the MNIST CNN, drop-out included, on a few drawn digits. The last batch
// has fewer samples than there are micro-batches.
inline constexpr uint64_t kTinyTrainSamples = 1923;
inline constexpr uint64_t kTinySteps = 16;
Args TinyJob(const Args& more = {});
// The same network and data, for as many steps as a test needs time.
Args LongJob(uint64_t steps, const Args& more = {});
inline constexpr uint64_t kEndlessSteps = 1'000'000;

// A flag with a value that both have counts as `right` has it; --set adds up.
Args operator+(Args left, const Args& right);

Summary SummaryIn(const std::string& run_dir);                // fails the test where there is none
std::string ReadBytes(const std::string& path);               // of a whole file
std::vector<std::string> RowsIn(const std::string& run_dir);  // of metrics.csv, those of steps
// The bytes that `pando export --ema` writes, in `folder`.
std::string AverageIn(const std::string& folder, const std::string& run_dir);
size_t RowCountIn(const std::string& run_dir);  // 0 where there is no file yet
// The columns that do not depend on the clock: step, epoch, loss, accuracy, lr.
std::vector<std::string> TrainingColumnsIn(const std::string& run_dir);

}  // namespace pando
