// The lane in its view: which replicas it holds, in which role, and where their data come from.
#include <algorithm>
#include <utility>

#include "common/mutation.h"
#include "server/lane.h"
#include "server/lane_limits.h"

namespace pando {

// Pushes and pulls of a newer view are early only where we are not the primary (OnMessageOf).
bool Lane::IsEarly(const Envelope& envelope) const {
  const Message& m = envelope.message;
  if (envelope.view <= view().id) return false;
  if (std::holds_alternative<Root>(m)) return !Mutated(Mutation::kUnequalViews);
  return std::holds_alternative<Chunk>(m) || std::holds_alternative<Question>(m);
}

void Lane::KeepEarly(Envelope envelope) {
  if (early_.size() < kEarlyMax) early_.push_back(std::move(envelope));
}

void Lane::OnMessageOf(Micros now, const Envelope& envelope, const ViewUpdate& update) {
  MakeSealed();  // under the view that it was sealed in
  if (member_.Enter(envelope.sender, update.view)) EnterView(now);
}

void Lane::EnterView(Micros now) {
  if (view().generation != generation_) Discard();
  roots_out_.clear();  // of the old view; what matters of them is gathered again below
  acks_out_.clear();
  partials_out_.clear();
  partials_silence_.Clear();
  is_view_fresh_ = has_partials_news_ = true;
  pull_partials_at_ = now;
  heard_at_.clear();
  acknowledged_at_.clear();
  reported_.reset();  // progress counts for its view only
  sent_.reset();
  report_at_ = now;
  repeat_at_ = now;
  const std::vector<ShardPlacement>& placements = view().shards;
  for (uint32_t i = 0; i < placements.size() && i < plan_.shards.shard_count(); ++i) {
    Assume(now, ShardId(i), placements[i]);
  }
  for (const auto& [id, replica] : replicas_) {
    const Shard& shard = replica.shard;
    if (replica.is_primary() && shard.has_partials() && !shard.is_sealed()) TellPartials(shard);
  }
  for (Envelope& envelope : std::exchange(early_, {})) {
    if (envelope.generation == generation_ && envelope.view >= view().id) OnMessage(now, envelope);
  }
}

// P21. Scalars are the same in every generation, but they may be of steps that are to be decided on
// anew (P32).
void Lane::Discard() {
  generation_ = view().generation;
  if (Mutated(Mutation::kNoGeneration)) return;
  if (plan_.job.early_stop_patience != 0) scalar_blocks_.clear();
  replicas_.clear();
  released_ = Version(0);
  rows_.clear();
  known_row_ = Step(0);
  params_out_.clear();
  replies_out_.clear();
  acknowledged_.clear();
  partials_.clear();
  asked_.clear();
  asked_max_ = Version(0);
  stored_.clear();
  divergences_.clear();
  restore_failed_.reset();
}

void Lane::Assume(Micros now, ShardId id, const ShardPlacement& placement) {
  const PeerId& self = member_.self();
  const bool is_primary = placement.primary == self;
  const bool is_backup =
      std::ranges::find(placement.in_sync_backups, self) != placement.in_sync_backups.end();
  const auto syncing = std::ranges::find(placement.syncing_backups, self, &SyncingBackup::peer);
  const bool is_syncing = syncing != placement.syncing_backups.end();
  if (!is_primary && !is_backup && !is_syncing) return Drop(id);

  auto [it, is_new] = replicas_.try_emplace(id, id, plan_, optimizer_, buffers_);
  Replica& replica = it->second;
  if (is_new) replica.shard.ReleasePin(released_);
  if (is_primary) {
    AssumePrimary(now, replica, placement);
  } else if (is_backup) {
    AssumeBackup(now, replica, placement.primary);
  } else {
    AssumeSyncing(replica, placement.primary, syncing->since);
  }
}

void Lane::Drop(ShardId id) {
  if (replicas_.erase(id) != 0 && id == plan_.metric_shard()) rows_.clear();
}

namespace {

// Of what was known of the backups: what the new view leaves of it. P13: an acknowledgement of a
// version that is not committed was of the old view.
std::vector<Backup> BackupsIn(const ShardPlacement& placement, std::vector<Backup> known,
                              Version committed) {
  const auto find = [&](const PeerId& peer) {
    return std::ranges::find(known, peer, &Backup::peer);
  };
  std::vector<Backup> backups;
  for (const PeerId& peer : placement.in_sync_backups) {
    const auto it = find(peer);
    const Version acked = it == known.end() ? committed : std::min(it->acked, committed);
    backups.push_back({.peer = peer, .acked = acked});
  }
  for (const SyncingBackup& syncing : placement.syncing_backups) {
    const auto it = find(syncing.peer);
    const bool is_same = it != known.end() && it->pair && IsSamePair(*it->pair, syncing.since);
    if (!is_same) {
      backups.push_back({.peer = syncing.peer, .pair = syncing.since, .is_required = false});
      continue;
    }
    it->acked = std::min(it->acked, committed);
    backups.push_back(std::move(*it));
  }
  return backups;
}

}  // namespace

void Lane::AssumePrimary(Micros now, Replica& replica, const ShardPlacement& placement) {
  const bool was_primary = replica.is_primary();
  Shard& shard = replica.shard;
  replica.role = ReplicaRole::kPrimary;
  replica.primary = member_.self();
  replica.pair.reset();
  replica.incoming.reset();
  replica.backups = BackupsIn(placement, std::exchange(replica.backups, {}), shard.committed());
  if (!shard.has_data()) return Restore(now, replica);
  if (!was_primary) {
    shard.StartLeading();
    StoreIfDue(now, replica);  // the old primary may not have got to it
  }
  for (Backup& backup : replica.backups) {  // P22
    if (backup.TakesRoots()) GatherRoots(now, replica, backup, backup.acked);
  }
  acknowledged_.insert(shard.id());  // with fewer backups to wait for it may be committed now
  StartTransfers(now, replica);
}

void Lane::AssumeBackup(Micros now, Replica& replica, const PeerId& primary) {
  if (replica.is_primary()) replica.shard.StopLeading();
  replica.role = ReplicaRole::kBackup;
  replica.primary = primary;
  replica.backups.clear();
  replica.waiting.clear();
  replica.pair.reset();
  replica.incoming.reset();
  if (!replica.shard.has_data()) Restore(now, replica);
}

// P24: a new primary or a new `since` is a new pair, and starts over.
void Lane::AssumeSyncing(Replica& replica, const PeerId& primary, ViewId since) {
  const bool was_syncing = replica.role == ReplicaRole::kSyncing && replica.pair.has_value();
  if (was_syncing && replica.primary == primary && IsSamePair(*replica.pair, since)) return;
  if (replica.shard.id() == plan_.metric_shard()) rows_.clear();
  replica.role = ReplicaRole::kSyncing;
  replica.primary = primary;
  replica.backups.clear();
  replica.waiting.clear();
  replica.pair = since;
  replica.incoming.reset();
  replica.shard.Clear();
}

// A replica that is in sync from the beginning of a generation.
void Lane::Restore(Micros now, Replica& replica) {
  Shard& shard = replica.shard;
  const SnapshotRef& restore = view().restore;
  if (restore.version == Version(0)) {
    shard.StartFromSeed();
    return BeWhole(now, replica);
  }
  if (replica.is_loading) return;
  replica.is_loading = true;
  snapshots_.Load({.snapshot = restore,
                   .shard = shard.id(),
                   .parameter_floats = shard.parameter_floats(),
                   .state_floats = shard.state_floats()});
}

void Lane::BeWhole(Micros now, Replica& replica) {
  if (!replica.is_primary()) return;
  replica.shard.StartLeading();
  for (Backup& backup : replica.backups) backup.acked = replica.shard.committed();
  StartTransfers(now, replica);
  ReplyToWaiting(replica);
}

bool Lane::IsRestoring() const {
  return std::ranges::any_of(replicas_, [](const auto& entry) {
    return entry.second.is_primary() && !entry.second.shard.has_data();
  });
}

// ---- the end -----------------------------------------------------------------------------------

void Lane::OnMessageOf(Micros, const Envelope& envelope, const Stop& stop) {
  member_.Send(envelope.sender, Bye{});
  if (!stop_) stop_ = stop;
}

void Lane::OnMessageOf(Micros, const Envelope&, const Refused& refused) {
  if (stop_) return;
  refusal_ = refused.kind;
  stop_ = Stop{StopReason::kFailed, refused.reason};
}

void Lane::StartLeaving(Micros now) {
  is_leaving_ = true;
  SpeakSoon(now);
}

}  // namespace pando
