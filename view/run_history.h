// RunHistory keeps a run's past for the page, from the rows of metrics.csv and events.jsonl. Its
// memory is bounded for a run of any length. RunWatch uses it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "view/thinned.h"

namespace pando {

// The cells of a step's row of metrics.csv, in the order of its columns (docs/run-folder.md).
enum StepCell : size_t {
  kCellStep,
  kCellEpoch,
  kCellLoss,
  kCellAccuracy,
  kCellLr,
  kCellSpeed,
  kCellSpeedMean,
  kCellElapsed,
  kCellStepMs,
  kCellDataStallMs,
  kCellExposedSyncMs,
  kCellGpuMemory,
  kCellGpuPercent,
  kStepCells
};
inline constexpr std::array<const char*, kStepCells> kStepColumns{"step",
                                                                  "epoch",
                                                                  "loss",
                                                                  "accuracy",
                                                                  "lr",
                                                                  "images_per_second",
                                                                  "images_per_second_mean",
                                                                  "elapsed_seconds",
                                                                  "step_ms",
                                                                  "data_stall_ms",
                                                                  "exposed_sync_ms",
                                                                  "gpu_memory_mb",
                                                                  "gpu_percent"};
// The cells that a page shows: the columns of its rows.
inline constexpr std::array kPageCells{kCellStep, kCellEpoch, kCellLoss,    kCellAccuracy,
                                       kCellLr,   kCellSpeed, kCellElapsed, kCellStepMs};
struct StepRow : std::array<double, kStepCells> {
  std::vector<double> logged;  // a program's further means, the last columns
};
// The cells: step, epoch, elapsed_seconds, accuracy, loss, and the means of further sums.
using EvaluatedRow = std::vector<double>;

// The columns after those of every run. An evaluation's begin with the name of its samples.
struct ColumnNames {
  std::vector<std::string> means;   // an evaluation's, without "test_"
  std::vector<std::string> logged;  // a step's
};

struct CsvRow {
  std::optional<StepRow> step;  // one of the three is set; none, if the text is not a row
  std::optional<EvaluatedRow> evaluation;
  std::optional<ColumnNames> names;  // the heading
};
// `logged_count`: of the heading's ColumnNames::logged.
CsvRow ParseCsvRow(std::string_view text, size_t logged_count = 0);

// Threads: none.
class RunHistory {
 public:
  static constexpr size_t kRowsMax = 2'000;
  static constexpr size_t kNewRowsMax = 5;  // of each update after the first
  static constexpr size_t kEvaluationsMax = 1'000;
  static constexpr size_t kEventsMax = 1'000;  // the newest

  void Add(const CsvRow& row);
  void AddEvent(nlohmann::json event);
  const ColumnNames& names() const { return names_; }

  // The place up to which a reader has read.
  struct Mark {
    uint64_t rows = 0;
    uint64_t evaluations = 0;
    uint64_t events = 0;
  };
  // Adds the "rows", "evaluations" and "events" after the mark to `update`, if there are any, and
  // moves the mark. It adds the names of an evaluation's "means" and those of a step's "logged".
  void Tell(Mark* mark, nlohmann::json* update) const;

 private:
  Thinned<StepRow> rows_{kRowsMax};
  Thinned<EvaluatedRow> evaluations_{kEvaluationsMax};
  ColumnNames names_;
  std::deque<nlohmann::json> events_;
  uint64_t event_count_ = 0;  // includes the dropped ones
};

}  // namespace pando
