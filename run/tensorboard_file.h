// TensorBoardFile writes what TensorBoard shows of a run (`tensorboard --logdir runs`): curves and
// hyperparameters, in RUN_DIR/events.out.tfevents.TIME.HOST. Each life of the scheduler adds a
// file.
//
// Format: records of TFRecord, each an Event of TensorFlow's event.proto; hyperparameters are of
// the plugin hparams (its plugin_data.proto).  Threads: none.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/atomic_file.h"
#include "common/status.h"
#include "plan/job.h"
#include "run/run_folder.h"

namespace pando {

class TensorBoardFile {
 public:
  // Of the curves; TensorBoard draws 1,000 points of each.
  static constexpr double kIntervalSeconds = 0.1;

  // A new file in the run's folder, which sorts behind its earlier ones.
  static Result<TensorBoardFile> Create(const RunFolder& folder, const Job& job);
  // Rows within kIntervalSeconds of the one before are left out, the run's last excepted. Held on a
  // full disk as those of metrics.csv are; they do not count as missing.
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
  std::optional<MetricsRow> later_;  // left out
};

// The check sum of TFRecord: CRC-32C (Castagnoli), rotated and moved.
uint32_t MaskedCrc32c(std::string_view bytes);

}  // namespace pando
