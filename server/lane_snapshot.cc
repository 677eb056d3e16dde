// Snapshots (P29): storing what is due, saying so until the scheduler knows, and restoring.
#include <algorithm>
#include <utility>

#include "common/mutation.h"
#include "server/lane.h"
#include "server/lane_limits.h"

namespace pando {

// Of what is committed just now: only the newest record has the optimizer's state.
void Lane::StoreIfDue(Micros now, Replica& replica) {
  Shard& shard = replica.shard;
  Version version = shard.newest();
  if (shard.committed() != version || version == Version(0)) return;
  const bool is_late = Mutated(Mutation::kSnapshotOneVersionLate) && shard.id() == ShardId(0) &&
                       version != plan_.steps.final_version();
  if (is_late) version = Version(version.value() - 1);
  if (!plan_.IsSnapshotDue(version) && !asked_.contains(version)) return;
  const bool is_final = version == plan_.steps.final_version();
  if (replica.stores_in_flight >= kStoresInFlightMax && !is_final) {
    return ReportStored(now, {.shard = shard.id(),
                              .version = version,
                              .failure = "the snapshots before it are still being written"});
  }
  ++replica.stores_in_flight;
  const VersionRecord& record = shard.ShareNewest();
  snapshots_.Store({.snapshot = {generation_, version},
                    .shard = shard.id(),
                    .hash = record.hash ? *record.hash : shard.NewestHash(),
                    .parameters = record.parameters,
                    .state = record.state});
}

void Lane::OnSnapshotEvent(Micros now, SnapshotEvent event) {
  if (auto* stored = std::get_if<RecordStored>(&event)) return OnStored(now, *stored);
  OnLoaded(now, std::get<RecordLoaded>(std::move(event)));
}

void Lane::OnStored(Micros now, const RecordStored& stored) {
  if (stored.snapshot.generation != generation_) return;
  const auto it = replicas_.find(stored.shard);
  if (it != replicas_.end() && it->second.stores_in_flight > 0) --it->second.stores_in_flight;
  ReportStored(now, {.shard = stored.shard,
                     .version = stored.snapshot.version,
                     .hash = stored.hash,
                     .file = stored.file,
                     .failure = stored.status.message()});
}

void Lane::ReportStored(Micros now, SnapshotStoredItem item) {
  stored_[{item.version, item.shard}] = std::move(item);
  // The scheduler has been away for long: the oldest are given up.
  if (stored_.size() > kUnackedSnapshotsMax * plan_.shards.shard_count())
    stored_.erase(stored_.begin());
  SpeakSoon(now);
}

void Lane::OnMessageOf(Micros, const Envelope&, const SnapshotAck& ack) {
  for (const SnapshotAckItem& item : ack.items) stored_.erase({item.version, item.shard});
}

// The scheduler asks for ascending versions, so an older one is a duplicate.
void Lane::OnMessageOf(Micros now, const Envelope& envelope, const SnapshotAt& at) {
  member_.Send(envelope.sender, SnapshotAtAck{at.version});
  if (at.version <= asked_max_ || at.version > plan_.steps.final_version()) return;
  asked_max_ = at.version;
  asked_.insert(at.version);
  if (asked_.size() > kAskedSnapshotsMax) asked_.erase(asked_.begin());
  if (plan_.IsSnapshotDue(at.version)) return;
  for (auto& [id, replica] : replicas_) {
    if (!replica.is_primary() || !replica.shard.has_data()) continue;
    if (replica.shard.committed() == at.version) StoreIfDue(now, replica);
    if (replica.shard.committed() <= at.version) continue;
    ReportStored(now, {.shard = id,
                       .version = at.version,
                       .failure = "the shard was past this version when it was asked for"});
  }
}

// ---- restore -----------------------------------------------------------------------------------

void Lane::OnLoaded(Micros now, RecordLoaded loaded) {
  const auto it = replicas_.find(loaded.shard);
  if (it == replicas_.end() || !it->second.is_loading) return;
  if (loaded.snapshot != view().restore) return;  // of an older generation
  Replica& replica = it->second;
  replica.is_loading = false;
  if (replica.role == ReplicaRole::kSyncing || replica.shard.has_data()) return;
  if (Status s = Install(replica, std::move(loaded)); !s.ok()) {
    const bool is_corrupt = s.code() == StatusCode::kCorrupt;
    if (!restore_failed_ || is_corrupt)
      restore_failed_ = RestoreFailed{view().restore, replica.shard.id(), is_corrupt, s.message()};
    return SpeakSoon(now);
  }
  BeWhole(now, replica);
}

Status Lane::Install(Replica& replica, RecordLoaded loaded) {
  if (!loaded.status.ok()) return std::move(loaded.status);
  Shard& shard = replica.shard;
  const size_t parameters = loaded.parameters == nullptr ? 0 : loaded.parameters->size();
  const size_t state = loaded.state == nullptr ? 0 : loaded.state->size();
  if (parameters != shard.parameter_floats() || state != shard.state_floats()) {
    return Corrupt("snapshot of version " + std::to_string(loaded.snapshot.version.value()) +
                   ": shard " + std::to_string(shard.id().value()) + " has " +
                   std::to_string(parameters) + " + " + std::to_string(state) +
                   " floats, and the model wants " + std::to_string(shard.parameter_floats()) +
                   " + " + std::to_string(shard.state_floats()));
  }
  shard.Install({{loaded.snapshot.version, std::move(loaded.parameters), std::move(loaded.state),
                  std::nullopt}});
  return {};
}

}  // namespace pando
