// ProgressReport: the committed version and the metrics of each step, told to the scheduler until
// it knows them. Part of the lane.
// Threads: none. Owns: the metric rows that the scheduler may not know.
#pragma once

#include <optional>
#include <vector>

#include "proto/view_member.h"
#include "server/replicas.h"

namespace pando {

class ProgressReport {
 public:
  // All outlive the part.
  ProgressReport(ViewMember& member, const Replicas& replicas, const JobPlan& plan)
      : member_(member), replicas_(replicas), plan_(plan) {}

  // Whether the scheduler knows more rows than this lane knew of.
  bool OnProgressAck(const Envelope& envelope, const ProgressAck& ack);
  // The newest version of a shard was made. Backups note the metric shard's rows as well, so that
  // no row is lost with a primary.
  void NoteMetrics(const Shard& shard);
  // The scheduler knows them. Primaries tell it to their backups (Root::first_row).
  void ForgetRowsBelow(Step step);
  Step known_row() const { return known_row_; }  // rows below it are known to the scheduler

  void EnterView(Micros now, const Replicas::Changes& changes);
  void Clear();  // a new generation begins
  void Tick(Micros now);
  Micros NextDeadline() const { return HasNews() ? report_at_ : kNever; }

 private:
  size_t ReportableRows() const;
  bool HasNews() const;

  ViewMember& member_;
  const Replicas& replicas_;
  const JobPlan& plan_;
  std::vector<StepMetrics> rows_;  // of versions made
  Step known_row_;
  std::optional<Version> reported_;  // under this view: acknowledged
  std::optional<Version> sent_;      // under this view: last sent
  Micros report_at_{0};
};

}  // namespace pando
