// Replication: roots and their acknowledgements (P8, P13, P22), transfers to new backups (P20,
// P24), and backups that do not answer (P23).
#include <algorithm>
#include <utility>

#include "common/mutation.h"
#include "server/lane.h"
#include "server/lane_limits.h"

namespace pando {

bool Lane::CountsForReplication(const Envelope& envelope) const {
  return envelope.view == view().id || Mutated(Mutation::kUnequalViews);
}

// ---- backup ------------------------------------------------------------------------------------

void Lane::OnMessageOf(Micros, const Envelope& envelope, const Root& root) {
  if (!CountsForReplication(envelope)) return;
  for (const RootItem& item : root.items) OnRootItem(envelope.sender, item);
  const auto metric = replicas_.find(plan_.metric_shard());
  if (metric != replicas_.end() && metric->second.primary == envelope.sender)
    ForgetRowsBelow(root.first_row);
}

void Lane::OnRootItem(const PeerId& from, const RootItem& item) {
  const auto it = replicas_.find(item.shard);
  if (it == replicas_.end()) return;
  Replica& replica = it->second;
  if (replica.is_primary() || replica.primary != from) return;
  Shard& shard = replica.shard;
  const Shard::Followed followed = Follow(shard, item);
  if (replica.is_loading) acks_out_[from];  // there, and of no version yet: that is no silence
  if (followed == Shard::Followed::kRefused) return;
  if (followed == Shard::Followed::kMade) NoteMetrics(shard);
  const Version made = VersionMadeBy(item.step);
  // What a pin holds up is not silence: the newest version is acknowledged once more.
  const bool is_known = followed != Shard::Followed::kHeld && shard.KnownHash(made).has_value();
  Acknowledge(replica, is_known ? made : shard.newest());
}

Shard::Followed Lane::Follow(Shard& shard, const RootItem& item) {
  const ProbedWork work(probe_, LaneWork::kUpdate, item.shard, item.step);
  return shard.Follow({item.step, item.scalars, item.payload, item.factors});
}

void Lane::Acknowledge(const Replica& replica, Version version) {
  const std::optional<uint64_t> hash = replica.shard.KnownHash(version);
  acks_out_[replica.primary].items.push_back(
      {replica.shard.id(), version, hash ? *hash : replica.shard.NewestHash()});
}

void Lane::FlushAcks() {
  for (auto& [peer, ack] : acks_out_) member_.Send(peer, std::move(ack));
  acks_out_.clear();
}

// ---- primary -----------------------------------------------------------------------------------

void Lane::GatherRoots(Micros now, const Replica& replica, Backup& backup, Version after) {
  for (const StepRoot* root : replica.shard.RootsAfter(after)) {
    std::vector<RootItem>& items = roots_out_[backup.peer].items;
    const auto is_same = [&](const RootItem& item) {
      return item.shard == replica.shard.id() && item.step == root->step;
    };
    if (std::ranges::any_of(items, is_same)) continue;
    items.push_back({replica.shard.id(), root->step, root->scalars, root->gradient, root->factors});
    ExpectAnswer(now, backup);
  }
}

Backup* Lane::FindBackup(ShardId shard, const PeerId& peer) {
  Replica* replica = FindPrimary(shard);
  if (replica == nullptr) return nullptr;
  const auto it = std::ranges::find(replica->backups, peer, &Backup::peer);
  return it == replica->backups.end() ? nullptr : &*it;
}

void Lane::OnMessageOf(Micros now, const Envelope& envelope, const RootAck& ack) {
  if (!CountsForReplication(envelope)) return;
  heard_at_[envelope.sender] = acknowledged_at_[envelope.sender] = now;
  for (const RootAckItem& item : ack.items) {
    Backup* backup = FindBackup(item.shard, envelope.sender);
    if (backup != nullptr && backup->TakesRoots()) OnAcked(now, *backup, item);
  }
}

void Lane::OnAcked(Micros now, Backup& backup, const RootAckItem& item) {
  Replica& replica = *FindPrimary(item.shard);
  const Shard& shard = replica.shard;
  if (item.version <= backup.acked || item.version > shard.newest()) return;
  const std::optional<uint64_t> ours = shard.KnownHash(item.version);
  if (ours && *ours != item.hash) {
    divergences_[{item.shard, backup.peer}] = {item.shard, item.version, backup.peer, *ours,
                                               item.hash};
    return SpeakSoon(now);
  }
  backup.acked = item.version;
  backup.owing_since.reset();
  if (backup.acked < shard.newest() || shard.is_sealed()) ExpectAnswer(now, backup);
  acknowledged_.insert(item.shard);
  NoteCaughtUp(now, shard, backup);
}

bool Lane::MayCommit(const Replica& replica) const {
  if (Mutated(Mutation::kCommitBeforeAck)) return true;
  const Version newest = replica.shard.newest();
  return std::ranges::all_of(replica.backups, [&](const Backup& backup) {
    if (backup.is_required) return backup.acked >= newest;
    return !backup.transfer || newest.value() - backup.acked.value() < kUnackedRootsMax;  // I6
  });
}

void Lane::CommitAcknowledged(Micros now) {
  for (ShardId id : std::exchange(acknowledged_, {})) {
    Replica* replica = FindPrimary(id);
    if (replica == nullptr || replica->shard.newest() == replica->shard.committed()) continue;
    if (MayCommit(*replica)) Commit(now, *replica);
  }
}

// ---- transfer, source --------------------------------------------------------------------------

void Lane::StartTransfers(Micros now, Replica& replica) {
  Shard& shard = replica.shard;
  if (shard.newest() != shard.committed()) return;  // Commit comes back here
  for (Backup& backup : replica.backups) {
    if (!backup.pair || backup.transfer) continue;
    backup.transfer.emplace(shard.id(), *backup.pair, shard.ShareKept());
    backup.acked = shard.newest();
    SendChunks(now, backup);
  }
}

void Lane::SendChunks(Micros now, Backup& backup) {
  while (std::optional<Chunk> chunk = backup.transfer->Next()) {
    member_.Send(backup.peer, std::move(*chunk));
    ExpectAnswer(now, backup);
  }
}

void Lane::OnMessageOf(Micros now, const Envelope& envelope, const ChunkAck& ack) {
  Backup* backup = FindBackup(ack.shard, envelope.sender);
  if (backup == nullptr || !backup->transfer || !IsSamePair(*backup->pair, ack.pair)) return;
  heard_at_[envelope.sender] = now;
  if (!backup->transfer->OnAck(ack)) return;
  backup->owing_since.reset();
  if (!backup->transfer->is_complete()) {
    ExpectAnswer(now, *backup);
    return SendChunks(now, *backup);
  }
  const Replica& replica = *FindPrimary(ack.shard);
  GatherRoots(now, replica, *backup, backup->acked);
  NoteCaughtUp(now, replica.shard, *backup);
}

// P24: it has every version made. Its acknowledgements are required from here on, and only then is
// it reported.
void Lane::NoteCaughtUp(Micros now, const Shard& shard, Backup& backup) {
  if (!backup.pair || backup.is_required || backup.acked != shard.newest()) return;
  backup.is_required = !Mutated(Mutation::kReportBeforeAck);
  SpeakSoon(now);
}

// ---- transfer, newcomer ------------------------------------------------------------------------

void Lane::OnMessageOf(Micros, const Envelope& envelope, const Chunk& chunk) {
  const auto it = replicas_.find(chunk.shard);
  if (it == replicas_.end()) return;
  Replica& replica = it->second;
  if (!replica.pair || replica.primary != envelope.sender) return;
  if (!IsSamePair(*replica.pair, chunk.pair)) return;
  const IncomingTransfer::Sizes sizes{replica.shard.parameter_floats(),
                                      replica.shard.state_floats()};
  if (!IncomingTransfer::IsSound(chunk, sizes)) return;
  if (!replica.incoming) replica.incoming.emplace(chunk, sizes);
  IncomingTransfer& incoming = *replica.incoming;
  if (!incoming.IsOf(chunk)) return;
  incoming.Take(chunk);
  if (incoming.is_complete() && !replica.shard.has_data())
    replica.shard.Install(incoming.TakeRecords());
  member_.Send(envelope.sender, incoming.Ack());
}

// ---- repeats -----------------------------------------------------------------------------------

void Lane::ExpectAnswer(Micros now, Backup& backup) {
  if (!backup.owing_since) {
    backup.owing_since = now;
    backup.repeat_interval = kRootRetryFirst;
  }
  backup.repeat_at = now + backup.repeat_interval;
  repeat_at_ = std::min(repeat_at_, backup.repeat_at);
}

void Lane::RepeatReplication(Micros now) {
  if (now < repeat_at_) return;
  repeat_at_ = kNever;
  std::map<PeerId, Micros> silent;
  for (auto& [id, replica] : replicas_) {
    for (Backup& backup : replica.backups) {
      if (!backup.owing_since) continue;
      const auto heard = heard_at_.find(backup.peer);
      PutOffRepeat(backup);
      if (now >= backup.repeat_at) RepeatTo(now, replica, backup);
      repeat_at_ = std::min(repeat_at_, backup.repeat_at);
      const Micros since = heard == heard_at_.end() ? *backup.owing_since
                                                    : std::max(*backup.owing_since, heard->second);
      if (now - since >= 2 * lease_) silent[backup.peer] = now - since;
    }
  }
  for (const auto& [peer, silence] : silent) ReportSilent(peer, silence);
}

// Over a slow link other roots are acknowledged before this one: what is on its way is not repeated.
void Lane::PutOffRepeat(Backup& backup) const {
  const auto acknowledged = acknowledged_at_.find(backup.peer);
  if (acknowledged == acknowledged_at_.end() || !backup.TakesRoots()) return;
  backup.repeat_at = std::max(backup.repeat_at, acknowledged->second + backup.repeat_interval);
}

void Lane::RepeatTo(Micros now, const Replica& replica, Backup& backup) {
  backup.repeat_interval = std::min(2 * backup.repeat_interval, kRootRetryMax);
  backup.repeat_at = now + backup.repeat_interval;
  if (Mutated(Mutation::kNoRetransmission)) return;
  if (backup.TakesRoots()) return GatherRoots(now, replica, backup, backup.acked);
  backup.transfer->Rewind();
  SendChunks(now, backup);
}

// P23. P24: until a view says so it is waited for all the same.
void Lane::ReportSilent(const PeerId& peer, Micros silence) {
  const auto silent_ms = std::chrono::duration_cast<std::chrono::milliseconds>(silence).count();
  member_.SendToScheduler(PeerSilent{peer, static_cast<uint64_t>(silent_ms)});
  if (!Mutated(Mutation::kKeepWaitingDropped)) return;
  for (auto& [id, replica] : replicas_) {
    std::erase_if(replica.backups, [&](const Backup& backup) { return backup.peer == peer; });
    acknowledged_.insert(id);
  }
}

}  // namespace pando
