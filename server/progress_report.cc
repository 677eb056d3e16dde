#include "server/progress_report.h"

#include "plan/unlogged_metric.h"
#include "server/lane_limits.h"

namespace pando {

bool ProgressReport::OnProgressAck(const Envelope& envelope, const ProgressAck& ack) {
  if (envelope.view == member_.view().id)
    reported_ = std::max(reported_.value_or(Version(0)), ack.committed);
  if (ack.next_row <= known_row_) return false;
  ForgetRowsBelow(ack.next_row);
  return true;
}

void ProgressReport::NoteMetrics(const Shard& shard) {
  if (shard.id() != plan_.metric_shard()) return;
  const VersionRecord& record = shard.records().newest();
  const Step step(record.version.value() - 1);
  if (step < known_row_) return;
  const float* metrics = record.parameters->data() + plan_.metric_offset();
  StepMetrics& row = rows_.emplace_back();
  row = {step, LoggedMean(metrics[kMetricLoss]), LoggedMean(metrics[kMetricCorrect]), {}};
  for (size_t i = 0; i < plan_.job.train_logs.size(); ++i)
    row.logged.push_back(LoggedMean(metrics[kMetricSlotCount + i]));
}

// Progress counts only under the view in which it was sent, so it is sent again.
void ProgressReport::EnterView(Micros now, const Replicas::Changes& changes) {
  reported_.reset();
  sent_.reset();
  report_at_ = now;
  for (const auto* shards : {&changes.dropped, &changes.emptied}) {
    if (std::ranges::find(*shards, plan_.metric_shard()) != shards->end()) rows_.clear();
  }
}

// P9. Returns how many rows may be reported: a primary reports only rows of committed versions.
size_t ProgressReport::ReportableRows() const {
  const Shard* shard = rows_.empty() ? nullptr : replicas_.FindPrimary(plan_.metric_shard());
  if (shard == nullptr) return 0;
  // P46: the report also says that these rows' versions are committed.
  const auto first_hidden =
      std::ranges::lower_bound(rows_, StepUpdating(replicas_.committed()), {}, &StepMetrics::step);
  return static_cast<size_t>(first_hidden - rows_.begin());
}

void ProgressReport::Tick(Micros now) {
  if (!HasNews()) return;
  const Version version = replicas_.committed();
  const bool is_news = version != sent_;
  const bool is_urgent = is_news && (!sent_ || plan_.IsEvaluationDue(version));
  if (!is_urgent && now < report_at_) return;
  const auto count = static_cast<long>(std::min(ReportableRows(), kRowsPerProgressMax));
  member_.SendToScheduler(Progress{version, {rows_.begin(), rows_.begin() + count}});
  sent_ = version;
  report_at_ = now + (is_news ? kProgressInterval : kRetryInterval);
}

}  // namespace pando
