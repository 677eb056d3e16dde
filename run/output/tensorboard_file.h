// TensorBoardFile writes a run's curves and hyperparameters for TensorBoard (`tensorboard
// --logdir runs`), in RUN_DIR/events.out.tfevents.TIME.HOST. Each life of the scheduler adds a
// file.
//
// Format: TFRecord, where each record is an Event of TensorFlow's event.proto; hyperparameters
// belong to the plugin hparams (its plugin_data.proto). Threads: none.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"
#include "plan/job.h"
#include "run/output/metrics_file.h"
#include "run/output/patient_rows.h"
#include "run/output/row_file.h"
#include "run/run_folder.h"

namespace pando {

class TensorBoardFile {
 public:
  // The least interval of a curve's points. TensorBoard draws 1,000 points of each curve.
  static constexpr double kIntervalSeconds = 0.1;

  // Creates a new file in the run's folder, which sorts after the earlier ones.
  static Result<TensorBoardFile> Create(const RunFolder& folder, const Job& job);
  // Appends a row. Leaves out rows within kIntervalSeconds of the previous one, except the run's
  // last. Rows that a full disk refuses are held, as in MetricsFile; they do not count as missing.
  void Append(const MetricsRow& row);
  void Append(const EvaluationRow& row);
  void End(bool has_completed);

 private:
  using Scalars = std::vector<std::pair<std::string, double>>;
  TensorBoardFile(RowFile file, const Job& job);
  void Write(const MetricsRow& row);
  void Write(uint64_t step, const Scalars& scalars);
  void WriteEvent(uint64_t step, const std::string& body);

  PatientRows rows_;
  EvaluationColumns columns_;
  double written_at_ = -1;           // elapsed_seconds of the last row
  std::optional<MetricsRow> later_;  // the row that was left out
};

// Returns TFRecord's check sum: CRC-32C (Castagnoli), rotated, with a constant added.
uint32_t MaskedCrc32c(std::string_view bytes);

}  // namespace pando
