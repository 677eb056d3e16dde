// Summary is the content of summary.json and of `pando train --json`. It is written once, at the
// run's end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "plan/job_plan.h"
#include "scheduler/journal.h"

namespace pando {

inline constexpr const char* kStatusCompleted = "completed";
inline constexpr const char* kStatusFailed = "failed";
inline constexpr const char* kStatusInterrupted = "interrupted";

struct Summary {
  std::string status = kStatusFailed;
  std::string failure;                  // the reason, for people; empty unless failed
  std::string weights_hash;             // WeightsHash; empty if the run did not end
  std::string evaluated_on = "test";    // or "validation": the samples of evaluations, and
                                        // how the names of the test_ fields begin in JSON
  EvaluatedValues evaluated;            // not written
  std::optional<double> test_accuracy;  // the last evaluation's, 0 to 1; null if not measured
  std::optional<double> test_top5_accuracy;
  std::optional<double> best_test_accuracy;
  std::optional<uint64_t> best_step;          // the first version that had that accuracy
  std::optional<uint64_t> best_weights_step;  // best.safetensors' step; null: no such file
  std::optional<double> test_loss;            // mean over the test set
  std::string test_sums;             // an external model's results: "loss 0.0712, correct 0.9750"
  std::optional<double> train_loss;  // mean over the last step's samples
  double images_per_second = 0;      // of training time, which includes evaluations beside steps
  double evaluation_seconds = 0;     // all evaluations in this life
  double data_stall_seconds = 0;     // all computing threads' waits for samples in this life
  double data_stall_share = 0;       // share of their time for training
  double exposed_sync_seconds = 0;   // a computing thread's average wait for parameters
  uint64_t steps = 0;                // completed
  bool stopped_early = false;        // by eval.early_stop_patience, or by the program
  double epochs = 0;                 // completed
  double wall_seconds = 0;           // of the whole run
  uint32_t workers = 0;              // 0: --serial
  uint32_t servers = 0;
  uint32_t threads = 1;  // per worker
  uint64_t global_batch = 0;
  uint32_t micro_batches = 0;
  uint64_t seed = 0;
  std::string optimizer;        // optimizer.type
  double lr = 0;                // optimizer.lr: the highest of a schedule
  std::string precision;        // train.precision
  bool is_reproducible = true;  // no: workers of several kinds, train.allow_nondeterministic, or
                                // a codec of gradients that adds what earlier ones have lost
  std::string dataset;
  std::string input_shape;      // "28x28x1": height, width, channels; a table has 1x1xinputs
  Preprocessing preprocessing;  // with the names of the classes
  std::string model;
  uint64_t parameter_count = 0;
  std::string job_hash;  // JobIdentityText's hash, 16 hex digits
  std::string run_id;    // of the run and its resumptions, 16 hex digits; empty: --serial
  std::string hostname;
  std::string pando_version;
  std::string run_dir;
  uint32_t generation = 0;  // incremented by every rollback and every `pando resume`
  uint64_t rollbacks = 0;   // announced ones, back to a snapshot
  // Micro-batches that verify.every chose: those whose results agreed, and those not compared.
  uint64_t verified_micro_batches = 0;
  uint64_t unverified_micro_batches = 0;
  uint64_t missing_rows = 0;  // of metrics.csv and events.jsonl, which a full disk refused
  std::vector<EvaluationSummary> evaluations;  // by step
  // The last evaluation, by class; the matrix is empty beyond kConfusionClassesMax.
  std::vector<ClassScore> classes;
  std::vector<std::vector<uint64_t>> confusion_matrix;  // [label][predicted], samples
  std::vector<SnapshotRef> snapshots;                   // the kept ones, ascending
  uint64_t fault_count = 0;                             // faults of processes, injected or not
  std::vector<FaultRecord> faults;                      // the newest ones
};

// Sets the fields that a job determines. The caller sets status, results and durations.
Summary MakeSummary(const Job& job);
// Also sets the fields that data and model determine.
Summary MakeSummary(const JobPlan& plan);

// Adds the newest result. A version that is evaluated again after a rollback has the same result.
void AddEvaluation(const EvaluationSummary& evaluation, Summary* summary);
// Removes the results of all versions above `last_good`.
void DropEvaluations(Version last_good, Summary* summary);

// Returns whether the run failed in a way that would recur if it were resumed.
bool HasDiverged(const Summary& summary);

// Returns the time from the fault, or from its detection if the fault's time is unknown, to the
// recovery. REQUIRES: the run has recovered from it.
double RecoveryMs(const FaultRecord& fault);
// Returns for example "recovered after 1028 ms", or "recovered 32 ms after its detection".
std::string RecoveryText(const FaultRecord& fault);
std::string ToJson(const Summary& summary);  // one object, indented, a newline at the end
Result<Summary> SummaryFromJson(const std::string& text, const std::string& file_name);

}  // namespace pando
