#include "server/reporting.h"

#include "plan/unlogged_metric.h"

namespace pando {
namespace {

uint64_t BlockIndex(Step step) { return step.value() / kScalarsPerBlock; }

}  // namespace

// ---- scalars -----------------------------------------------------------------------------------

void ScalarBlocks::OnScalars(const Scalars& scalars) {
  const uint64_t block = BlockIndex(scalars.first);
  const uint64_t current = BlockIndex(replicas_.lowest_step());
  if (scalars.first.value() % kScalarsPerBlock != 0 || block < current || block > current + 1)
    return;
  std::vector<StepScalars>& known = blocks_[block];
  if (scalars.steps.size() > known.size()) known = scalars.steps;
}

const StepScalars* ScalarBlocks::Find(Step step) const {
  const auto it = blocks_.find(BlockIndex(step));
  const uint64_t index = step.value() % kScalarsPerBlock;
  if (it == blocks_.end() || index >= it->second.size()) return nullptr;
  return &it->second[index];
}

bool ScalarBlocks::LacksAny() const {
  if (replicas_.all().empty()) return false;
  const uint64_t current = BlockIndex(replicas_.lowest_step());
  return IsWanted(current) || IsWanted(current + 1);
}

// A block that ends early ends where the scheduler has yet to decide (P32).
bool ScalarBlocks::IsWanted(uint64_t block) const {
  const uint64_t first = block * kScalarsPerBlock;
  if (first >= plan_.steps.step_count()) return false;
  const auto known = blocks_.find(block);
  if (known == blocks_.end()) {
    const auto before = blocks_.find(block - 1);
    return before == blocks_.end() || before->second.size() == kScalarsPerBlock;
  }
  const uint64_t end = first + known->second.size();
  const bool is_whole = known->second.size() == kScalarsPerBlock || end == plan_.steps.step_count();
  return !is_whole && replicas_.highest_step().value() >= end;
}

void ScalarBlocks::Tick(Micros now) {
  if (!member_.has_view() || now < ask_at_ || !LacksAny()) return;
  const uint64_t current = BlockIndex(replicas_.lowest_step());
  std::erase_if(blocks_, [&](const auto& entry) {
    return entry.first < current || entry.first > current + 1;
  });
  for (uint64_t block = current; block <= current + 1; ++block) {
    if (!IsWanted(block)) continue;
    member_.SendToScheduler(ScalarsRequest{Step(block * kScalarsPerBlock)});
    ask_at_ = now + kRetryInterval;
  }
}

// ---- progress ----------------------------------------------------------------------------------

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
  rows_.push_back({step, LoggedMean(metrics[kMetricLoss]), LoggedMean(metrics[kMetricCorrect])});
}

// Progress counts only for its view.
void ProgressReport::EnterView(Micros now, const Replicas::Changes& changes) {
  reported_.reset();
  sent_.reset();
  report_at_ = now;
  for (const auto* shards : {&changes.dropped, &changes.emptied}) {
    if (std::ranges::find(*shards, plan_.metric_shard()) != shards->end()) rows_.clear();
  }
}

// P9: the primary reports rows of committed versions only.
size_t ProgressReport::ReportableRows() const {
  const Shard* shard = rows_.empty() ? nullptr : replicas_.FindPrimary(plan_.metric_shard());
  if (shard == nullptr) return 0;
  // P46: the same report says that their versions are committed.
  const auto first_hidden =
      std::ranges::lower_bound(rows_, StepReading(replicas_.committed()), {}, &StepMetrics::step);
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

// ---- reports -----------------------------------------------------------------------------------

void Reports::Tick(Micros now) {
  if (!clock_.IsDue(now)) return;
  std::vector<Message> reports;
  bool has_more = is_leaving_;
  for (const ReportSource* source : sources_) has_more |= source->AddReports(&reports);
  if (is_leaving_) reports.push_back(Leave{});
  for (Message& report : reports) member_.SendToScheduler(std::move(report));
  clock_.OnSpoken(now, has_more);
}

}  // namespace pando
