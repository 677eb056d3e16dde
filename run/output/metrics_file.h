// MetricsFile writes metrics.csv, each row at once, so that an appended row outlives its process.
// Rows that a full disk refuses are held and retried with every row (PatientRows).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/job.h"
#include "run/output/patient_rows.h"
#include "run/output/row_file.h"
#include "run/run_folder.h"

namespace pando {

// A step's row of metrics.csv; docs/run-folder.md explains each column. Values of a window are
// means over its last second or more of training.
struct MetricsRow {
  uint64_t step = 0;  // completed steps, with this one
  double epoch = 0;   // passes over the data, with the fraction
  double loss = 0;    // NaN: not logged, and the cell is empty; the same for accuracy
  double accuracy = 0;
  double lr = 0;
  double images_per_second = 0;  // in the window
  double images_per_second_mean = 0;
  double elapsed_seconds = 0;  // since the run started
  double step_ms = 0;          // in the window
  double data_stall_ms = 0;    // in the window, per step: computing threads' waits for samples
  double exposed_sync_ms = 0;  // in the window, per step: a computing thread's wait for parameters
  double gpu_memory_mb = 0;    // used by all processes on the fullest GPU of a worker; 0: no GPU
  double gpu_percent = 0;      // of time with a running kernel: mean over the workers' GPUs
  std::vector<double> logged = {};  // a program's further means, as in Job::train_logs
};

// The columns of results in metrics.csv, and the names of their curves: test_accuracy, test_loss
// (or validation_accuracy and so on), and the means of a program's other sums.
struct EvaluationColumns {
  struct Mean {
    std::string name;
    size_t index = 0;  // in Job::eval_sums
  };
  static EvaluationColumns For(const Job& job);

  std::string evaluated_on = "test";  // Job::evaluated_on()
  std::vector<Mean> means = {};
  std::vector<std::string> logged = {};  // Job::train_logs: the last columns of a step's row
};

// An evaluation's row, with only these columns. A value that is NaN leaves its cell empty.
struct EvaluationRow {
  uint64_t step = 0;
  double epoch = 0;
  double elapsed_seconds = 0;
  double test_accuracy = 0;
  double test_loss = 0;
  std::vector<double> means = {};  // as in EvaluationColumns::means
};

// Returns the newest step's row of metrics.csv, or none. Reads only the file's end.
std::optional<MetricsRow> ReadNewestRow(const RunFolder& folder);

class MetricsFile {
 public:
  // Creates the file, and writes the heading.
  static Result<MetricsFile> Create(const RunFolder& folder, const EvaluationColumns& columns = {});
  struct Last {
    std::optional<MetricsRow> row;  // the last step's
    uint64_t evaluated_step = 0;    // of the last evaluation's row; 0: none
  };
  // Continues after the last whole row.
  static Result<MetricsFile> Reopen(const RunFolder& folder, Last* last,
                                    const EvaluationColumns& columns = {});
  Status Append(const MetricsRow& row);
  Status Append(const EvaluationRow& row);
  PatientRows& rows() { return rows_; }

 private:
  MetricsFile(RowFile file, size_t mean_count, size_t logged_count)
      : rows_(std::move(file)), mean_count_(mean_count), logged_count_(logged_count) {}
  PatientRows rows_;
  size_t mean_count_;  // columns of EvaluationColumns::means; 0 in a file of an earlier release
  size_t logged_count_;
};

}  // namespace pando
