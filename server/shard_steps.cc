#include "server/shard_steps.h"

#include <utility>

namespace pando {

void ShardSteps::OnPush(Micros now, const Envelope& envelope, const Push& push) {
  Push others;
  for (const PushItem& item : push.items) {
    Shard* shard = parts_.replicas.FindPrimary(item.shard);
    if (shard == nullptr) others.items.push_back(item);
    if (shard == nullptr || !shard->has_data()) continue;
    const Shard::Taken taken = Add(*shard, item);
    if (taken == Shard::Taken::kRefused) continue;
    TryAdvance(now, *shard);
    // An encoded push is one leaf, and a worker may push its last leaf long after its first.
    const bool says_pending = taken == Shard::Taken::kDuplicate || !plan_.pushes.is_exact();
    parts_.replies.AnswerPush(envelope.sender, *shard, item, says_pending);
  }
  parts_.replies.AnswerNotPrimary(envelope, std::move(others));
}

void ShardSteps::OnRoot(Micros now, const Envelope& envelope, const Root& root) {
  for (const RootItem& item : root.items) {
    if (!parts_.replication.IsRootOfBackup(envelope, item)) continue;
    Shard& shard = *parts_.replicas.FindPrimary(item.shard);
    // The root proves that the version before it is committed.
    if (shard.newest() != shard.committed()) Show(now, shard);
    const LaneProbe::Scope work(parts_.probe, LaneWork::kUpdate, item.shard, item.step);
    if (!shard.Adopt({item.step, item.scalars, item.payload, item.factors})) continue;
    parts_.progress.NoteMetrics(shard);
    parts_.norms.OnAdopted(item.step);
    parts_.replication.OnAdopted(now, shard);
  }
}

// Without backups the record is made and committed at once. With backups the root is sent first,
// and the record is made in Tick, so that all replicas make it at the same time.
void ShardSteps::TryAdvance(Micros now, Shard& shard) {
  const StepScalars* scalars = shard.is_ready() ? parts_.scalars.Find(shard.step()) : nullptr;
  if (scalars == nullptr || parts_.inquiry.IsOpen(shard.id())) return;
  std::optional<std::vector<float>> factors = parts_.norms.CollectFactors(now, shard, *scalars);
  if (!factors) return;
  if (!parts_.replication.HasBackups(shard.id())) {
    MakeNext(shard, [&] { shard.MakeAlone(*scalars, *std::move(factors)); });
    return Commit(now, shard);
  }
  shard.Seal(*scalars, *std::move(factors));
  if (parts_.probe != nullptr) parts_.probe->OnReplicating(shard.id(), shard.step());
  parts_.replication.GatherSealedRoot(now, shard);
  sealed_.insert(shard.id());
}

void ShardSteps::MakeSealed() {
  for (ShardId id : std::exchange(sealed_, {})) {
    Shard* shard = parts_.replicas.FindPrimary(id);
    if (shard == nullptr || !shard->is_sealed()) continue;
    MakeNext(*shard, [&] { shard->MakeSealed(); });
    parts_.replication.NoteMade(id);
  }
}

template <class Make>
void ShardSteps::MakeNext(Shard& shard, const Make& make) {
  const LaneProbe::Scope work(parts_.probe, LaneWork::kUpdate, shard.id(), shard.step());
  make();
  parts_.progress.NoteMetrics(shard);
}

void ShardSteps::Tick(Micros now) {
  for (ShardId id : parts_.inquiry.TakeAnswered()) {
    if (Shard* shard = parts_.replicas.FindPrimary(id)) TryAdvance(now, *shard);
  }
  MakeSealed();
  for (ShardId id : parts_.replication.TakeCommittable()) {
    Shard* shard = parts_.replicas.FindPrimary(id);
    if (shard == nullptr || shard->newest() == shard->committed()) continue;
    if (parts_.replication.MayCommit(*shard)) Commit(now, *shard);
  }
}

// P9. Commits the newest version: workers get it from now on.
void ShardSteps::Commit(Micros now, Shard& shard) {
  Show(now, shard);
  TryAdvance(now, shard);  // a promoted replica may hold the next step's contributions
}

void ShardSteps::Show(Micros now, Shard& shard) {
  shard.records().Commit();
  const Step made_by(shard.newest().value() - 1);
  if (parts_.probe != nullptr) parts_.probe->OnCommitted(shard.id(), made_by);
  const LaneProbe::Scope work(parts_.probe, LaneWork::kCommit, shard.id(), made_by);
  parts_.replication.OnCommitted(shard);
  parts_.snapshots.StoreIfDue(now, shard);
  parts_.replication.StartImages(now, shard);
  parts_.replies.ReplyToWaiting(shard);
}

void ShardSteps::OnRestored(Micros now, ShardId id) {
  parts_.replicas.Restored(id);
  Shard* shard = parts_.replicas.FindPrimary(id);
  if (shard == nullptr) return;
  parts_.replication.OnRestored(now, *shard);
  parts_.replies.ReplyToWaiting(*shard);
}

}  // namespace pando
