#include "server/shard_snapshots.h"

#include <span>
#include <string>

#include "server/lane_limits.h"

namespace pando {

// ---- store -------------------------------------------------------------------------------------

// Only the newest record has the optimizer's state, so only the newest version can be stored.
void ShardSnapshots::StoreIfDue(Micros now, Shard& shard) {
  const Version version = shard.newest();
  if (shard.committed() != version || version == Version(0)) return;
  if (!plan_.IsSnapshotDue(version) && !asked_.contains(version)) return;
  const bool is_final = version == plan_.steps.final_version();
  uint32_t& in_flight = stores_in_flight_[shard.id()];
  if (in_flight >= kStoresInFlightMax && !is_final) {
    return ReportStored(now, {.shard = shard.id(),
                              .version = version,
                              .failure = "the snapshots before it are still being written"});
  }
  ++in_flight;
  const VersionRecord& record = shard.records().ShareNewest();
  const uint64_t hash = record.hash ? *record.hash : shard.records().NewestHash();
  port_.Store({.snapshot = {member_.view().generation, version},
               .shard = shard.id(),
               .hash = hash,
               .parameters = record.parameters,
               .state = record.state});
}

void ShardSnapshots::ReportHashIfDue(Micros now, const Shard& shard) {
  const Version version = shard.newest();
  if (!plan_.IsSnapshotDue(version) && !asked_.contains(version)) return;
  const std::optional<uint64_t> hash = shard.records().KnownHash(version);
  if (hash) ReportStored(now, {.shard = shard.id(), .version = version, .hash = *hash});
}

void ShardSnapshots::OnStored(Micros now, const RecordStored& stored) {
  if (stored.snapshot.generation != member_.view().generation) return;
  const auto in_flight = stores_in_flight_.find(stored.shard);
  if (in_flight != stores_in_flight_.end() && in_flight->second > 0) --in_flight->second;
  ReportStored(now, {.shard = stored.shard,
                     .version = stored.snapshot.version,
                     .hash = stored.hash,
                     .file = stored.file,
                     .failure = stored.status.message()});
}

void ShardSnapshots::ReportStored(Micros now, SnapshotStoredItem item) {
  stored_[{item.version, item.shard}] = std::move(item);
  // If the scheduler is absent for long, the oldest reports are dropped.
  if (stored_.size() > kUnackedSnapshotsMax * plan_.shards.shard_count())
    stored_.erase(stored_.begin());
  clock_.SpeakSoon(now);
}

// The scheduler asks for ascending versions, so an older version is a duplicate.
void ShardSnapshots::OnSnapshotAt(Micros now, const Envelope& envelope, const SnapshotAt& at) {
  member_.Send(envelope.sender, SnapshotAtAck{at.version});
  if (asked_.contains(at.version) || at.version > plan_.steps.final_version()) return;
  asked_.insert(at.version);
  if (asked_.size() > kAskedSnapshotsMax) asked_.erase(asked_.begin());
  if (plan_.IsSnapshotDue(at.version)) return;
  for (auto& [id, replica] : replicas_.all()) {
    if (!replica.is_primary() || !replica.shard.has_data()) continue;
    if (replica.shard.committed() == at.version) StoreIfDue(now, replica.shard);
    if (replica.shard.committed() <= at.version) continue;
    ReportStored(now, {.shard = id,
                       .version = at.version,
                       .failure = "the shard was past this version when it was asked for"});
  }
}

bool ShardSnapshots::AddReports(std::vector<Message>* reports) const {
  SnapshotStored stored;
  for (const auto& [key, item] : stored_) stored.items.push_back(item);
  if (!stored.items.empty()) reports->push_back(std::move(stored));
  if (restore_failed_) reports->push_back(*restore_failed_);
  return !stored_.empty() || restore_failed_;
}

// ---- restore -----------------------------------------------------------------------------------

void ShardSnapshots::EnterView(Micros now, const Replicas::Changes& changes) {
  for (ShardId id : changes.dropped) {
    loading_.erase(id);
    stores_in_flight_.erase(id);
  }
  for (auto& [id, replica] : replicas_.all()) {
    const bool is_in_sync = replica.role() != ReplicaRole::kSyncing;
    if (is_in_sync && !replica.shard.has_data() && !IsLoading(id)) Load(replica.shard);
  }
  for (ShardId id : changes.promoted) StoreIfDue(now, replicas_.Find(id)->shard);
}

void ShardSnapshots::Load(const Shard& shard) {
  loading_.insert(shard.id());
  port_.Load({.snapshot = member_.view().restore,
              .shard = shard.id(),
              .parameter_floats = shard.records().parameter_floats(),
              .state_floats = shard.records().state_floats()});
}

std::optional<ShardId> ShardSnapshots::OnLoaded(Micros now, RecordLoaded loaded) {
  const ShardId id = loaded.shard;
  const SnapshotRef& restore = member_.view().restore;
  if (!IsLoading(id) || loaded.snapshot != restore) return std::nullopt;  // of an older generation
  loading_.erase(id);
  Replica& replica = *replicas_.Find(id);
  if (replica.role() == ReplicaRole::kSyncing || replica.shard.has_data()) return std::nullopt;
  const Status installed = Install(replica.shard, std::move(loaded));
  if (installed.ok()) return id;
  const bool is_corrupt = installed.code() == StatusCode::kCorrupt;
  if (!restore_failed_ || is_corrupt)
    restore_failed_ = RestoreFailed{restore, id, is_corrupt, installed.message()};
  clock_.SpeakSoon(now);
  return std::nullopt;
}

Status ShardSnapshots::Install(Shard& shard, RecordLoaded loaded) const {
  if (!loaded.status.ok()) return std::move(loaded.status);
  const ShardRecords& records = shard.records();
  const size_t parameters = loaded.parameters == nullptr ? 0 : loaded.parameters->size();
  const size_t state = loaded.state == nullptr ? 0 : loaded.state->size();
  if (parameters != records.parameter_floats() || state != records.state_floats()) {
    return Corrupt("snapshot of version " + std::to_string(loaded.snapshot.version.value()) +
                   ": shard " + std::to_string(shard.id().value()) + " has " +
                   std::to_string(parameters) + " + " + std::to_string(state) +
                   " floats, and the model wants " + std::to_string(records.parameter_floats()) +
                   " + " + std::to_string(records.state_floats()));
  }
  shard.Install({{loaded.snapshot.version, std::move(loaded.parameters), std::move(loaded.state),
                  std::nullopt}});
  return {};
}

void ShardSnapshots::Clear() {
  loading_.clear();
  stores_in_flight_.clear();
  asked_.clear();
  stored_.clear();
  restore_failed_.reset();
}

}  // namespace pando
