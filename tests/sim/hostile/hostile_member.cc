#include "tests/sim/hostile/hostile_member.h"

#include <algorithm>
#include <memory>
#include <type_traits>

#include "common/float_buffer.h"
#include "optim/optimizer.h"
#include "proto/assignment.h"

namespace pando::sim {
namespace {

constexpr size_t kTries = 8;

Blob Floats(Chance& chance, size_t count) {
  auto buffer = std::make_shared<FloatBuffer>(count);
  for (float& value : buffer->span()) value = static_cast<float>(chance.Below(1000));
  return ToBlob(std::move(buffer));
}

bool IsAt(const ShardPlacement& placement, const PeerId& peer) {
  return placement.primary == peer || std::ranges::count(placement.in_sync_backups, peer) != 0 ||
         std::ranges::count(placement.syncing_backups, peer, &SyncingBackup::peer) != 0;
}

template <class M>
size_t KindFor() {
  return Message(M{}).index();
}

}  // namespace

void HostileMember::Begin() {
  if (stage_.swarm.hostile_interval == Micros(0)) return;
  SpeakAndGoOn();
}

void HostileMember::SpeakAndGoOn() {
  Speak();
  stage_.world.After(Micros(1) + chance_.Until(2 * stage_.swarm.hostile_interval),
                     [this] { SpeakAndGoOn(); });
}

void HostileMember::OnSent(const Envelope& envelope) {
  const auto* evaluate = std::get_if<Evaluate>(&envelope.message);
  if (evaluate == nullptr || stage_.swarm.hostile_interval == Micros(0)) return;
  const Slice slice{evaluate->version, evaluate->slice};
  slices_[slice].push_back(envelope.receiver.incarnation);
  slice_samples_[slice] = evaluate->last_sample - evaluate->first_sample;
}

void HostileMember::OnView(const View& newest) {
  if (!views_.empty() && views_.back().generation != newest.generation) views_.clear();
  if (views_.empty() || views_.back().id != newest.id) views_.push_back(newest);
}

void HostileMember::Speak() {
  if (views_.empty() || view().shards.empty() || population_.Leader() == nullptr) return;
  const Role role = chance_.OneIn(0.5) ? Role::kServer : Role::kWorker;
  const std::vector<Process*> living = population_.Living(role);
  if (living.empty()) return;
  const Process& thief = *living[chance_.Below(living.size())];
  if (thief.member() == nullptr) return;
  PeerId self = thief.self();
  self.lane =
      static_cast<uint16_t>(chance_.Below(std::max<size_t>(1, thief.member()->lanes().size())));
  const bool is_to_scheduler = chance_.OneIn(0.7);
  PeerId receiver = population_.Leader()->self();
  if (!is_to_scheduler) {
    const std::vector<Process*> others =
        population_.Living(chance_.OneIn(0.5) ? Role::kServer : Role::kWorker);
    if (others.empty()) return;
    receiver = others[chance_.Below(others.size())]->self();
  }
  std::optional<Message> lie = DrawLie(self, role, is_to_scheduler);
  if (!lie) return;
  const Envelope envelope{.job = kJob,
                          .generation = view().generation,
                          .view = view().id,
                          .sender = self,
                          .receiver = receiver,
                          .message = *std::move(lie)};
  stage_.network.DeliverForged(envelope);
}

Version HostileMember::committed() const { return population_.Leader()->scheduler()->committed(); }

// Near what is committed.
Version HostileMember::DrawVersion() {
  const uint64_t at = committed().value();
  return Version(at - std::min<uint64_t>(at, 1) + chance_.Below(4));
}

bool HostileMember::HasHad(const PeerId& self, ShardId shard) const {
  return std::ranges::any_of(views_, [&](const View& view) {
    return shard.value() < view.shards.size() && IsAt(view.shards[shard.value()], self);
  });
}

std::optional<ShardId> HostileMember::DrawOthersShard(const PeerId& self) {
  for (size_t i = 0; i < kTries; ++i) {
    const ShardId shard(static_cast<uint32_t>(chance_.Below(view().shards.size())));
    if (!HasHad(self, shard)) return shard;
  }
  return std::nullopt;
}

std::optional<Message> HostileMember::DrawLie(const PeerId& self, Role role, bool is_to_scheduler) {
  if (role == Role::kWorker && is_to_scheduler && chance_.OneIn(0.7)) return LieOfWorker(self);
  if (role == Role::kServer && is_to_scheduler && chance_.OneIn(0.3)) return LieAboutVersion(self);
  const std::optional<ShardId> shard = DrawOthersShard(self);
  if (!shard) return std::nullopt;
  return is_to_scheduler ? LieAboutShard(self, role, *shard) : LieToPeers(role, *shard);
}

// To the scheduler.
std::optional<Message> HostileMember::LieAboutShard(const PeerId& self, Role role, ShardId shard) {
  const JobPlan& plan = population_.plan();
  const bool is_final = population_.Leader()->scheduler()->phase() == Scheduler::Phase::kCollecting;
  if (is_final || role == Role::kWorker) {
    const Version version = population_.Leader()->scheduler()->final_version();
    return Params{{{shard, version, Floats(chance_, plan.shards.range(shard).size())}}};
  }
  const ShardPlacement& placement = view().shards[shard.value()];
  switch (chance_.Below(6)) {
    case 0:
      return SnapshotStored{{{shard, DrawVersion(), chance_.Next(), kLie, ""}}};
    case 1:
      return SnapshotStored{{{shard, DrawVersion(), 0, "", kLie}}};
    case 2:
      return RestoreFailed{view().restore, shard, chance_.OneIn(0.5), kLie};
    case 3:
      if (placement.syncing_backups.empty()) return std::nullopt;
      return Synced{
          {{shard, placement.syncing_backups[0].peer, placement.syncing_backups[0].since}}};
    case 4:
      if (placement.in_sync_backups.empty()) return std::nullopt;
      return Divergence{shard, DrawVersion(), placement.in_sync_backups[0], 1, 2};
    default:
      if (HasHad(self, plan.metric_shard())) return std::nullopt;
      return LieAboutRows();
  }
}

// A lie about the member's shards: a version that no shard can have, or that the member failed to
// restore a snapshot that it has restored.
std::optional<Message> HostileMember::LieAboutVersion(const PeerId& self) {
  const ShardId shard(static_cast<uint32_t>(chance_.Below(view().shards.size())));
  if (!IsAt(view().shards[shard.value()], self)) return std::nullopt;
  if (chance_.OneIn(0.5)) {
    if (committed() <= view().restore.version) return std::nullopt;
    return RestoreFailed{view().restore, shard, true, kLie};
  }
  SnapshotStored lie;
  for (uint64_t i = 0; i < 70; ++i) {
    const uint64_t last = population_.plan().steps.final_version().value();
    lie.items.push_back({shard, Version(last + 1 + i), 0, "", kLie});
  }
  return lie;
}

// The scheduler knows already what the message says of the lane's shards. It lacks the row, which
// is of a version that the message does not call committed.
Message HostileMember::LieAboutRows() {
  return Progress{.committed = committed(),
                  .rows = {{Step(committed().value() + chance_.Below(2)), 7.0F, 0.5F}}};
}

bool HostileMember::HasComputed(NodeId worker, Step step, MicroBatch m) const {
  return std::ranges::any_of(views_, [&](const View& view) {
    if (m.value() >= view.owners.size()) return false;
    return ComputesAt(view.owners[m.value()], step) == worker ||
           view.owners[m.value()].previous == worker || view.owners[m.value()].worker == worker ||
           FindVerifier(view, step, m) == worker;
  });
}

std::optional<Message> HostileMember::LieOfWorker(const PeerId& self) {
  const JobPlan& plan = population_.plan();
  if (!slices_.empty() && chance_.OneIn(0.5)) {
    const auto& [slice, workers] = *std::prev(slices_.end());
    if (std::ranges::count(workers, self.incarnation) != 0) return std::nullopt;
    // The slice of a dead worker may be given to this one before the lie arrives.
    if (population_.Find(workers.back()) == nullptr) return std::nullopt;
    const uint64_t count = slice_samples_[slice];
    return EvaluationResult{.version = slice.first,
                            .slice = slice.second,
                            .sample_count = count,
                            .correct_count = 0,
                            .loss_sum = 1e6,
                            .confusion = {{0, 0, static_cast<uint32_t>(count)}}};
  }
  const Step step = StepUpdating(DrawVersion());
  const MicroBatch m(static_cast<uint32_t>(chance_.Below(plan.job.micro_batches)));
  if (m.value() >= view().owners.size() || HasComputed(self.node, step, m)) return std::nullopt;
  return GradientHashes{{{step, m, chance_.Next() | 1}}};
}

// To a lane or a worker: all its fields but the shard are random and near.
std::optional<Message> HostileMember::LieToPeers(Role role, ShardId shard) {
  // A relay has a part in all shards.
  if (role == Role::kWorker && population_.plan().may_sum_near()) return std::nullopt;
  const RunKnowledge run{.plan = population_.plan(),
                         .view = view().id,
                         .generation = view().generation,
                         .committed = committed(),
                         .peers = {view().shards[shard.value()].primary}};
  const std::vector<size_t> kinds =
      role == Role::kWorker
          ? std::vector{KindFor<Params>(), KindFor<Answer>()}
          : std::vector{KindFor<Params>(), KindFor<Answer>(),  KindFor<PushReply>(),
                        KindFor<Root>(),   KindFor<RootAck>(), KindFor<Partials>(),
                        KindFor<Chunk>(),  KindFor<ChunkAck>()};
  Message lie = RandomMessage(chance_, run, kinds[chance_.Below(kinds.size())]);
  std::visit(
      [&](auto& m) {
        if constexpr (requires { m.shard = shard; }) m.shard = shard;
        if constexpr (requires { m.items.front().shard = shard; }) {
          m.items.resize(std::min<size_t>(m.items.size(), 1));
          for (auto& item : m.items) item.shard = shard;
        }
        if constexpr (std::is_same_v<std::decay_t<decltype(m)>, Partials>) {
          // Every lane drops values of other sizes.
          const Optimizer optimizer(run.plan.job.optimizer, run.plan.layout);
          const size_t count = optimizer.partial_count(run.plan.shards.range(shard));
          for (PartialsItem& item : m.items) item.values.resize(count, 1.0f);
        }
        if constexpr (requires { m.view = run.view; }) m.view = run.view;
      },
      lie);
  return lie;
}

}  // namespace pando::sim
