#include "server/lane.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "common/mutation.h"

namespace pando {
namespace {

constexpr Micros kRetryInterval = std::chrono::milliseconds(200);
constexpr Micros kProgressInterval = std::chrono::milliseconds(20);
constexpr size_t kRowsPerProgressMax = 4096;
constexpr size_t kReplyBytes =
    64 << 10;  // of parameters for one peer: worth a message by themselves
constexpr Micros kReplyHoldMax = std::chrono::milliseconds(2);
constexpr TreeNode kPulled{0};  // the node that a reply to a pull names

uint64_t BlockOf(Step step) { return step.value() / kScalarsPerBlock; }

}  // namespace

Lane::Lane(const Options& options, const JobPlan& plan, Outbox& outbox)
    : kind_(options.kind),
      plan_(plan),
      member_(options.identity, outbox),
      optimizer_(plan.job.optimizer, plan.layout) {}

Version Lane::committed() const {
  Version lowest = plan_.steps.final_version();
  for (const auto& [id, shard] : shards_) lowest = std::min(lowest, shard.committed());
  return lowest;
}

void Lane::OnMessage(Micros now, const Envelope& envelope) {
  if (!member_.Admit(now, envelope)) return;
  std::visit([&](const auto& message) { OnMessageOf(now, envelope.sender, message); },
             envelope.message);
}

void Lane::OnMessageOf(Micros, const PeerId& from, const ViewUpdate& update) {
  if (!member_.Enter(from, update.view)) return;
  const std::vector<ShardPlacement>& placements = member_.view().shards;
  for (uint32_t i = 0; i < placements.size() && i < plan_.shards.shard_count(); ++i) {
    const ShardId id(i);
    // A shard's first view makes version 0 of it; moving shards comes with replication.
    if (placements[i].primary == member_.self()) shards_.try_emplace(id, id, plan_, optimizer_);
  }
}

void Lane::OnMessageOf(Micros, const PeerId& from, const Push& push) {
  for (const PushItem& item : push.items) {
    auto it = shards_.find(item.shard);
    const Version wanted = VersionMadeBy(item.step);
    if (it == shards_.end()) {
      replies_out_[from].items.push_back({.shard = item.shard,
                                          .version = wanted,
                                          .node = item.node,
                                          .outcome = PushOutcome::kNotPrimary});
      continue;
    }
    const Shard::Taken taken = it->second.Add(item);
    if (taken == Shard::Taken::kRefused) continue;
    const bool is_duplicate = taken == Shard::Taken::kDuplicate;
    if (is_duplicate && Mutated(Mutation::kUnansweredDuplicate)) continue;
    TryAdvance(it->second);
    AnswerFor(from, it->second, wanted, item.node, /*says_pending=*/is_duplicate);
  }
}

void Lane::OnMessageOf(Micros, const PeerId& from, const Pull& pull) {
  for (const PullItem& item : pull.items) {
    auto it = shards_.find(item.shard);
    if (it == shards_.end()) {
      replies_out_[from].items.push_back(
          {.shard = item.shard, .version = item.version, .outcome = PushOutcome::kNotPrimary});
    } else if (item.version <= plan_.steps.final_version()) {
      AnswerFor(from, it->second, item.version, kPulled, /*says_pending=*/true);
    }
  }
}

// P9, P10: a committed version that is kept, or why there is none. A fresh push gets no Pending:
// its reply follows by itself, and if it was lost the push is repeated.
void Lane::AnswerFor(const PeerId& peer, const Shard& shard, Version wanted, TreeNode node,
                     bool says_pending) {
  if (const VersionRecord* record = shard.Find(wanted)) {
    auto& items = params_out_[peer].items;
    const auto is_same = [&](const ParamsItem& item) {
      return item.shard == shard.id() && item.version == wanted;
    };
    if (std::ranges::none_of(items, is_same))
      items.push_back({shard.id(), wanted, record->payload()});
  } else if (shard.IsGone(wanted)) {
    replies_out_[peer].items.push_back({.shard = shard.id(),
                                        .version = wanted,
                                        .node = node,
                                        .outcome = PushOutcome::kBehind,
                                        .current = shard.committed()});
  } else {
    waiting_[shard.id()][peer.incarnation] = {peer, wanted};
    if (!says_pending) return;
    replies_out_[peer].items.push_back(
        {.shard = shard.id(), .version = wanted, .node = node, .outcome = PushOutcome::kPending});
  }
}

void Lane::OnMessageOf(Micros now, const PeerId& from, const Question& question) {
  if (question.view != member_.view().id) {  // P17: the answer would be of another view
    if (question.view < member_.view().id) member_.HintView(now, from);
    return;
  }
  Answer answer{question.view, {}};
  for (const auto& [id, shard] : shards_) {
    answer.items.push_back({id, shard.committed(), shard.held_nodes()});
  }
  member_.Send(from, std::move(answer));
}

void Lane::OnMessageOf(Micros, const PeerId&, const Scalars& scalars) {
  const uint64_t block = BlockOf(scalars.first);
  const uint64_t current = BlockOf(StepReading(committed()));
  if (scalars.first.value() % kScalarsPerBlock != 0 || block < current || block > current + 1)
    return;
  scalar_blocks_.emplace(block, scalars.steps);
  for (auto& [id, shard] : shards_) TryAdvance(shard);
}

void Lane::OnMessageOf(Micros, const PeerId&, const ProgressAck& ack) {
  reported_ = std::max(reported_, ack.committed);
  std::erase_if(rows_, [&](const StepMetrics& row) { return row.step < ack.next_row; });
}

void Lane::OnMessageOf(Micros, const PeerId& from, const ReleasePin& release) {
  for (auto& [id, shard] : shards_) {
    shard.ReleasePin(release.version);
    TryAdvance(shard);  // the pin may have been in its way
  }
  member_.Send(from, PinReleased{release.version});
}

void Lane::OnMessageOf(Micros, const PeerId& from, const Stop& stop) {
  member_.Send(from, Bye{});
  if (!stop_) stop_ = stop;
}

void Lane::OnMessageOf(Micros, const PeerId&, const Refused& refused) {
  if (!stop_) stop_ = Stop{StopReason::kFailed, refused.reason};
}

const StepScalars* Lane::FindScalars(Step step) const {
  auto it = scalar_blocks_.find(BlockOf(step));
  const uint64_t index = step.value() % kScalarsPerBlock;
  if (it == scalar_blocks_.end() || index >= it->second.size()) return nullptr;
  return &it->second[index];
}

void Lane::TryAdvance(Shard& shard) {
  const StepScalars* scalars = shard.is_ready() ? FindScalars(shard.step()) : nullptr;
  if (scalars == nullptr) return;
  shard.Advance(*scalars);
  NoteMetrics(shard);
  ReplyToWaiting(shard);
}

void Lane::NoteMetrics(const Shard& shard) {
  if (shard.id() != plan_.metric_shard()) return;
  const VersionRecord* record = shard.Find(shard.committed());
  const float* metrics = record->parameters->data() + plan_.metric_offset();
  rows_.push_back({.step = Step(shard.committed().value() - 1),
                   .loss = metrics[kMetricLoss],
                   .accuracy = metrics[kMetricCorrect]});
}

void Lane::ReplyToWaiting(const Shard& shard) {
  auto& waiting = waiting_[shard.id()];
  for (auto it = waiting.begin(); it != waiting.end();) {
    const VersionRecord* record = shard.Find(it->second.version);
    if (record != nullptr) {
      params_out_[it->second.peer].items.push_back(
          {shard.id(), record->version, record->payload()});
    }
    it = record != nullptr ? waiting.erase(it) : std::next(it);
  }
}

// A step's small shards are answered together: while other shards of the lane are about to make the
// same version, and the bytes gathered are few, the answer waits for them, though never for long.
bool Lane::HasReplyToHold() const {
  if (params_out_.empty()) return false;
  for (const auto& [peer, params] : params_out_) {
    size_t bytes = 0;
    for (const ParamsItem& item : params.items) bytes += item.payload.size_bytes();
    if (bytes >= kReplyBytes) return false;
  }
  const auto [least, most] =
      std::ranges::minmax(shards_ | std::views::values | std::views::transform(&Shard::committed));
  return least != most;
}

void Lane::FlushReplies(Micros now) {
  for (auto& [peer, reply] : replies_out_) member_.Send(peer, std::move(reply));
  replies_out_.clear();
  if (HasReplyToHold()) {
    if (!held_until_) held_until_ = now + kReplyHoldMax;
    if (now < *held_until_) return;
  }
  for (auto& [peer, params] : params_out_) member_.Send(peer, std::move(params));
  params_out_.clear();
  held_until_.reset();
}

void Lane::Tick(Micros now) {
  if (finished()) return;
  FlushReplies(now);
  if (member_.self().lane == 0 && !has_view() && now >= ready_at_) {
    member_.SendToScheduler(Ready{.kind = kind_});
    ready_at_ = now + kRetryInterval;
  }
  AskForScalars(now);
  ReportProgress(now);
}

// The block in use and the next one, so that steps go on for a while without a scheduler (P28).
void Lane::AskForScalars(Micros now) {
  if (!has_view() || shards_.empty() || now < ask_scalars_at_) return;
  const uint64_t current = BlockOf(StepReading(committed()));
  std::erase_if(scalar_blocks_, [&](const auto& entry) { return entry.first < current; });
  for (uint64_t block = current; block <= current + 1; ++block) {
    const Step first(block * kScalarsPerBlock);
    if (first.value() >= plan_.steps.step_count() || scalar_blocks_.contains(block)) continue;
    member_.SendToScheduler(ScalarsRequest{first});
    ask_scalars_at_ = now + kRetryInterval;
  }
}

void Lane::ReportProgress(Micros now) {
  if (!has_view() || shards_.empty()) return;
  const Version version = committed();
  if (version == reported_ && rows_.empty()) return;
  const bool is_news = version != sent_;
  const bool is_due = is_news && plan_.IsEvaluationDue(version);
  if (!is_due && now < report_at_) return;
  const auto count = std::min(rows_.size(), kRowsPerProgressMax);
  member_.SendToScheduler(
      Progress{version, {rows_.begin(), rows_.begin() + static_cast<long>(count)}});
  sent_ = version;
  report_at_ = now + (is_news ? kProgressInterval : kRetryInterval);
}

Micros Lane::NextDeadline() const {
  if (finished()) return kNever;
  if (!has_view()) return member_.self().lane == 0 ? ready_at_ : kNever;
  Micros deadline = held_until_.value_or(kNever);
  if (!shards_.empty()) {
    const uint64_t current = BlockOf(StepReading(committed()));
    const bool has_next = scalar_blocks_.contains(current + 1) ||
                          (current + 1) * kScalarsPerBlock >= plan_.steps.step_count();
    const bool has_current =
        scalar_blocks_.contains(current) || committed() == plan_.steps.final_version();
    if (!has_current || !has_next) deadline = std::min(deadline, ask_scalars_at_);
    if (committed() != reported_ || !rows_.empty()) deadline = std::min(deadline, report_at_);
  }
  return deadline;
}

}  // namespace pando
