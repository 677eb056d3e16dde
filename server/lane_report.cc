// What the lane and the scheduler tell each other: scalars, progress, and reports that are repeated
// until answered.
#include <algorithm>
#include <utility>

#include "common/mutation.h"
#include "server/lane.h"
#include "server/lane_limits.h"

namespace pando {
namespace {

uint64_t BlockOf(Step step) { return step.value() / kScalarsPerBlock; }

}  // namespace

// ---- scalars -----------------------------------------------------------------------------------

// Backups want them too: a promoted one must not have to wait for a scheduler that is away (P28).
Step Lane::LowestStep() const {
  Version lowest = plan_.steps.final_version();
  for (const auto& [id, replica] : replicas_) {
    if (replica.shard.has_data()) {
      lowest = std::min(lowest, replica.shard.committed());
    } else if (replica.role != ReplicaRole::kSyncing) {
      lowest = std::min(lowest, view().restore.version);
    }
  }
  return StepReading(lowest);
}

// The block in use and the next one, so that steps go on for a while without a scheduler (P28).
bool Lane::LacksScalars() const {
  if (replicas_.empty()) return false;
  const uint64_t current = BlockOf(LowestStep());
  return IsWanted(current) || IsWanted(current + 1);
}

// The highest that any replica is at: a backup is a version behind in what it knows committed.
Step Lane::HighestStep() const {
  Version highest;
  for (const auto& [id, replica] : replicas_) {
    if (replica.shard.has_data()) highest = std::max(highest, replica.shard.newest());
  }
  return StepReading(highest);
}

// A block that ends early ends where the scheduler decides (P32): there is no more before that.
bool Lane::IsWanted(uint64_t block) const {
  const uint64_t first = block * kScalarsPerBlock;
  if (first >= plan_.steps.step_count()) return false;
  const auto known = scalar_blocks_.find(block);
  if (known == scalar_blocks_.end()) {
    const auto before = scalar_blocks_.find(block - 1);
    return before == scalar_blocks_.end() || before->second.size() == kScalarsPerBlock;
  }
  const uint64_t end = first + known->second.size();
  const bool is_whole = known->second.size() == kScalarsPerBlock || end == plan_.steps.step_count();
  return !is_whole && HighestStep().value() >= end;
}

void Lane::AskForScalars(Micros now) {
  if (!has_view() || now < ask_scalars_at_ || !LacksScalars()) return;
  const uint64_t current = BlockOf(LowestStep());
  std::erase_if(scalar_blocks_, [&](const auto& entry) {
    return entry.first < current || entry.first > current + 1;
  });
  for (uint64_t block = current; block <= current + 1; ++block) {
    if (!IsWanted(block)) continue;
    member_.SendToScheduler(ScalarsRequest{Step(block * kScalarsPerBlock)});
    ask_scalars_at_ = now + kRetryInterval;
  }
}

void Lane::OnMessageOf(Micros now, const Envelope&, const Scalars& scalars) {
  const uint64_t block = BlockOf(scalars.first);
  const uint64_t current = BlockOf(LowestStep());
  if (scalars.first.value() % kScalarsPerBlock != 0 || block < current || block > current + 1)
    return;
  std::vector<StepScalars>& known = scalar_blocks_[block];
  if (scalars.steps.size() > known.size()) known = scalars.steps;
  for (auto& [id, replica] : replicas_) {
    if (replica.is_primary()) TryAdvance(now, replica);
  }
}

const StepScalars* Lane::FindScalars(Step step) const {
  auto it = scalar_blocks_.find(BlockOf(step));
  const uint64_t index = step.value() % kScalarsPerBlock;
  if (it == scalar_blocks_.end() || index >= it->second.size()) return nullptr;
  return &it->second[index];
}

// ---- progress ----------------------------------------------------------------------------------

// Backups note them as well, so that no row is lost with a primary.
void Lane::NoteMetrics(const Shard& shard) {
  if (shard.id() != plan_.metric_shard()) return;
  const VersionRecord& record = shard.newest_record();
  const Step step(record.version.value() - 1);
  if (step < known_row_) return;
  const float* metrics = record.parameters->data() + plan_.metric_offset();
  rows_.push_back({step, metrics[kMetricLoss], metrics[kMetricCorrect]});
}

void Lane::ForgetRowsBelow(Step step) {
  known_row_ = std::max(known_row_, step);
  std::erase_if(rows_, [&](const StepMetrics& row) { return row.step < known_row_; });
}

// P9: of committed versions only, by the primary.
size_t Lane::ReportableRows() const {
  const auto it = replicas_.find(plan_.metric_shard());
  if (rows_.empty() || it == replicas_.end() || !it->second.is_primary()) return 0;
  const Step end = StepReading(it->second.shard.committed());
  const auto first_hidden = std::ranges::lower_bound(rows_, end, {}, &StepMetrics::step);
  return static_cast<size_t>(first_hidden - rows_.begin());
}

void Lane::OnMessageOf(Micros now, const Envelope& envelope, const ProgressAck& ack) {
  if (envelope.view == view().id)
    reported_ = std::max(reported_.value_or(Version(0)), ack.committed);
  if (ack.next_row <= known_row_) return;
  ForgetRowsBelow(ack.next_row);
  if (speak_at_ != kNever) SpeakSoon(now);  // a report may have waited for this (SendSynced)
}

bool Lane::HasProgressToReport() const {
  if (!has_view() || IsRestoring()) return false;
  return reported_ != committed() || ReportableRows() != 0;
}

void Lane::ReportProgress(Micros now) {
  if (!HasProgressToReport()) return;
  const Version version = committed();
  const bool is_news = version != sent_;
  const bool is_urgent = is_news && (!sent_ || plan_.IsEvaluationDue(version));
  if (!is_urgent && now < report_at_) return;
  const auto count = static_cast<long>(std::min(ReportableRows(), kRowsPerProgressMax));
  member_.SendToScheduler(Progress{version, {rows_.begin(), rows_.begin() + count}});
  sent_ = version;
  report_at_ = now + (is_news ? kProgressInterval : kRetryInterval);
}

// ---- reports -----------------------------------------------------------------------------------

void Lane::SpeakSoon(Micros now) { speak_at_ = std::min(speak_at_, std::max(now, silent_until_)); }

void Lane::RepeatReports(Micros now) {
  if (now < speak_at_) return;
  const bool has_more = SendReports();
  silent_until_ = now + kProgressInterval;
  speak_at_ = has_more ? now + kRetryInterval : kNever;
}

// Whether there is anything to repeat.
bool Lane::SendReports() {
  const bool has_synced = SendSynced();
  for (const auto& [key, divergence] : divergences_) member_.SendToScheduler(divergence);
  SnapshotStored stored;
  for (const auto& [key, item] : stored_) stored.items.push_back(item);
  if (!stored.items.empty()) member_.SendToScheduler(std::move(stored));
  if (restore_failed_) member_.SendToScheduler(*restore_failed_);
  if (is_leaving_) member_.SendToScheduler(Leave{});
  return has_synced || !divergences_.empty() || !stored_.empty() || restore_failed_ || is_leaving_;
}

// P24. The metric shard's newcomer has rows of the versions after its image alone: it is reported
// once the scheduler knows the others.
bool Lane::SendSynced() {
  Synced synced;
  bool has_any = false;
  for (const auto& [id, replica] : replicas_) {
    for (const Backup& backup : replica.backups) {
      const bool is_synced = backup.pair && backup.TakesRoots() &&
                             (backup.is_required || Mutated(Mutation::kReportBeforeAck));
      if (!is_synced) continue;
      has_any = true;
      const bool lacks_rows =
          id == plan_.metric_shard() && known_row_ < StepReading(backup.transfer->newest());
      if (!lacks_rows) synced.items.push_back({id, backup.peer, *backup.pair});
    }
  }
  if (!synced.items.empty()) member_.SendToScheduler(std::move(synced));
  return has_any;
}

}  // namespace pando
