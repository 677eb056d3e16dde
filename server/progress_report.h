// ProgressReport sends the committed version and the metric rows of each step to the scheduler
// until they are acknowledged. Owns: the rows that the scheduler may not have.
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

  // Handles an acknowledgement.  Returns whether it acknowledges more rows than before.
  bool OnProgressAck(const Envelope& envelope, const ProgressAck& ack);
  // Adds the row of the newest version, if the shard is the metric shard. Backups do this too, so
  // that no row is lost with a primary.
  void NoteMetrics(const Shard& shard);
  // Drops the rows that the scheduler has. A primary tells its backups (Root::first_row).
  void ForgetRowsBelow(Step step) {
    known_row_ = std::max(known_row_, step);
    std::erase_if(rows_, [&](const StepMetrics& row) { return row.step < known_row_; });
  }
  Step known_row() const { return known_row_; }  // the scheduler has the rows below it

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

  std::vector<StepMetrics> rows_;  // of versions that were made
  Step known_row_;
  std::optional<Version> reported_;  // the version acknowledged under this view
  std::optional<Version> sent_;      // the version last sent under this view
  Micros report_at_{0};
};

}  // namespace pando
