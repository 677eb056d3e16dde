// ProgressReport sends the committed version and the metrics of each step until the scheduler knows
// them. Owns: the metric rows that the scheduler may not know.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "proto/messages.h"
#include "server/lane_part.h"

namespace pando {

class ProgressReport : LanePart {
 public:
  using LanePart::LanePart;

  // Returns whether the scheduler knows more rows than this lane knew of.
  bool OnProgressAck(const Envelope& envelope, const ProgressAck& ack);
  // The newest version of a shard was made. Backups also note the metric shard's rows, so that no
  // row is lost with a primary.
  void NoteMetrics(const Shard& shard);
  // The scheduler knows these rows. Primaries tell their backups (Root::first_row).
  void ForgetRowsBelow(Step step) {
    known_row_ = std::max(known_row_, step);
    std::erase_if(rows_, [&](const StepMetrics& row) { return row.step < known_row_; });
  }
  Step known_row() const { return known_row_; }  // rows below it are known to the scheduler

  void EnterView(Micros now, const Replicas::Changes& changes);
  // A new generation begins.
  void Clear() {
    rows_.clear();
    known_row_ = Step(0);
  }
  void Tick(Micros now);
  Micros NextDeadline() const { return HasNews() ? report_at_ : kNever; }

 private:
  size_t ReportableRows() const;
  bool HasNews() const {
    if (!member_.has_view() || replicas_.is_restoring()) return false;
    return reported_ != replicas_.committed() || ReportableRows() != 0;
  }

  std::vector<StepMetrics> rows_;  // of versions made
  Step known_row_;
  std::optional<Version> reported_;  // under this view: acknowledged
  std::optional<Version> sent_;      // under this view: last sent
  Micros report_at_{0};
};

}  // namespace pando
