#include "bench/cpp/push_pull/load_generator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "worker/session.h"

namespace pando::bench {
namespace {

constexpr Micros kControlRetry = std::chrono::milliseconds(200);
constexpr Micros kDataRetry = std::chrono::seconds(1);
constexpr float kSumTolerance = 1e-4f;  // relative: fp32, sums of ones times the mean's factor

Blob Ones(size_t float_count, const BufferSource& buffers) {
  auto buffer = std::make_shared<FloatBuffer>(buffers.make(float_count));
  std::ranges::fill(buffer->span(), 1.0f);
  return ToBlob(buffer);
}

}  // namespace

LoadGenerator::LoadGenerator(const Load& load, const ViewMember::Identity& identity, uint32_t rank,
                             const JobPlan& plan, CounterSlot& counters, Outbox& outbox,
                             const BufferSource& buffers)
    : load_(load),
      plan_(plan),
      member_(identity, outbox),
      counters_(counters),
      node_(plan.steps.Tree(Step(0)).Leaf(MicroBatch(rank))),
      shards_(plan.shards.shard_count()) {
  for (uint32_t i = 0; i < shards_.size(); ++i) {
    const size_t float_count = plan.shards.range(ShardId(i)).size();
    shards_[i].gradient = Ones(float_count, buffers);
    if (load.copies) shards_[i].copy = std::make_shared<FloatBuffer>(float_count);
  }
}

void LoadGenerator::OnMessage(Micros now, const Envelope& envelope) {
  if (!member_.Admit(now, envelope)) return;
  if (const auto* update = std::get_if<ViewUpdate>(&envelope.message)) {
    member_.Enter(envelope.sender, update->view);
  } else if (const auto* params = std::get_if<Params>(&envelope.message)) {
    OnParams(*params);
  }
}

void LoadGenerator::OnParams(const Params& params) {
  const Clock::time_point now = Clock::now();
  counters_.message_count.fetch_add(1, std::memory_order_relaxed);
  for (const ParamsItem& item : params.items) {
    if (item.shard.value() < shards_.size()) OnArrived(item, now);
  }
  // P4: version t + 1 of every shard is known to be committed.
  if (!load_.has_barrier || waiting_count_ != shards_.size()) return;
  for (ShardState& shard : shards_) shard.is_ready = true;
  waiting_count_ = 0;
}

// Takes a reply. A second reply to a repeated push has an earlier version.
void LoadGenerator::OnArrived(const ParamsItem& item, Clock::time_point now) {
  ShardState& shard = shards_[item.shard.value()];
  if (shard.is_ready || item.version != VersionMadeBy(shard.step)) return;
  PANDO_CHECK(item.payload.size_bytes() == load_.shard_bytes);
  const float expected = kAddedPerStep * static_cast<float>(item.version.value());
  PANDO_CHECK(load_.has_momentum ||
              std::abs(item.payload.floats()[0] - expected) <= kSumTolerance * std::abs(expected));
  if (load_.copies)
    std::memcpy(shard.copy->data(), item.payload.bytes().data(), item.payload.size_bytes());
  counters_.NoteReply(load_.shard_bytes, now - shard.sent_at);
  shard.ask_at = kNever;
  shard.step = NextStep(shard.step);
  shard.is_ready = !load_.has_barrier;
  ++waiting_count_;
}

void LoadGenerator::Tick(Micros now) {
  if (!member_.has_view()) {
    if (now < control_at_) return;
    member_.SendToScheduler(Ready{.kind = "bench"});
    control_at_ = now + kControlRetry;
    return;
  }
  FlushPushes(now);
  RepeatUnanswered(now);
}

PushItem LoadGenerator::MakeItem(ShardId id) const {
  const ShardState& shard = shards_[id.value()];
  return {id, shard.step, node_, shard.gradient};
}

// Sends a message to a lane when it is large enough (PushGroups::kBytesMax), and the rest when no
// further shard is ready.
void LoadGenerator::FlushPushes(Micros now) {
  std::map<PeerId, Push> parcels;
  for (uint32_t i = 0; i < shards_.size(); ++i) {
    ShardState& shard = shards_[i];
    if (!std::exchange(shard.is_ready, false)) continue;
    shard.sent_at = Clock::now();
    shard.ask_at = now + kDataRetry;
    repeat_at_ = std::min(repeat_at_, shard.ask_at);
    const PeerId& lane = member_.view().shards[i].primary;
    Push& push = parcels[lane];
    push.items.push_back(MakeItem(ShardId(i)));
    if (push.items.size() * load_.shard_bytes >= PushGroups::kBytesMax)
      SendPush(lane, std::exchange(push, {}));
  }
  for (auto& [lane, push] : parcels) {
    if (!push.items.empty()) SendPush(lane, std::move(push));
  }
}

void LoadGenerator::SendPush(const PeerId& lane, Push push) {
  counters_.message_count.fetch_add(1, std::memory_order_relaxed);
  member_.Send(lane, std::move(push));
}

// Repeats unanswered pushes (P10).
void LoadGenerator::RepeatUnanswered(Micros now) {
  if (now < repeat_at_) return;
  repeat_at_ = kNever;
  for (uint32_t i = 0; i < shards_.size(); ++i) {
    if (now >= shards_[i].ask_at) {
      SendPush(member_.view().shards[i].primary, Push{{MakeItem(ShardId(i))}});
      shards_[i].ask_at = now + kDataRetry;
    }
    repeat_at_ = std::min(repeat_at_, shards_[i].ask_at);
  }
}

Micros LoadGenerator::NextDeadline() const { return member_.has_view() ? repeat_at_ : control_at_; }

}  // namespace pando::bench
