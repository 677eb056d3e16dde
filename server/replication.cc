#include "server/replication.h"

#include <algorithm>

#include "proto/item_messages.h"
#include "server/lane_limits.h"

namespace pando {

// ---- the view ----------------------------------------------------------------------------------

void Replication::EnterView(Micros now, const std::vector<ShardId>& promoted) {
  roots_out_.clear();  // of the old view; those that still count are gathered again below
  clock_.EnterView(now);
  std::erase_if(backups_, [&](const auto& entry) {
    const bool is_over = replicas_.FindPrimary(entry.first) == nullptr;
    if (is_over) inquiry_.End(entry.first);
    if (is_over) contradictions_.Forget(entry.first);
    return is_over;
  });
  const std::vector<ShardPlacement>& placements = member_.view().shards;
  for (auto& [id, replica] : replicas_.all()) {
    if (!replica.is_primary() || id.value() >= placements.size()) continue;
    Shard& shard = replica.shard;
    Backups& backups = backups_[id];
    backups = InView(placements[id.value()], std::move(backups), shard.committed());
    if (!shard.has_data()) continue;
    const std::vector<PeerId>& in_sync = placements[id.value()].in_sync_backups;
    const bool is_promoted = std::ranges::find(promoted, id) != promoted.end();
    if (is_promoted && shard.step().value() < plan_.steps.step_count()) inquiry_.Begin(id, in_sync);
    inquiry_.Retain(id, in_sync);
    for (Backup& backup : backups) {  // P22
      if (backup.TakesRoots()) GatherRoots(now, shard, backup, backup.acked);
    }
    committable_.insert(id);  // it may now wait for fewer backups
    StartImages(now, shard);
  }
}

// Returns the backups of the new view, with what is still known of them. P13: acknowledgements of
// an uncommitted version belonged to the old view.
Replication::Backups Replication::InView(const ShardPlacement& placement, Backups known,
                                         Version committed) {
  const auto find = [&](const PeerId& peer) {
    return std::ranges::find(known, peer, &Backup::peer);
  };
  Backups backups;
  for (const PeerId& peer : placement.in_sync_backups) {
    const auto it = find(peer);
    const Version acked = it == known.end() ? committed : std::min(it->acked, committed);
    backups.push_back({.peer = peer, .acked = acked});
  }
  for (const SyncingBackup& syncing : placement.syncing_backups) {
    const auto it = find(syncing.peer);
    const bool is_same = it != known.end() && it->pair == syncing.since;
    if (!is_same) {
      backups.push_back({.peer = syncing.peer, .pair = syncing.since, .is_required = false});
      continue;
    }
    it->acked = std::min(it->acked, committed);
    backups.push_back(std::move(*it));
  }
  return backups;
}

Replication::Backup* Replication::Find(ShardId shard, const PeerId& peer) {
  const auto of_shard = backups_.find(shard);
  if (of_shard == backups_.end()) return nullptr;
  const auto it = std::ranges::find(of_shard->second, peer, &Backup::peer);
  return it == of_shard->second.end() ? nullptr : &*it;
}

// ---- roots -------------------------------------------------------------------------------------

void Replication::GatherRoots(Micros now, const Shard& shard, Backup& backup, Version after) {
  const auto gather = [&](RootItem gathered) {
    std::vector<RootItem>& items = roots_out_[backup.peer].items;
    const auto is_same = [&](const RootItem& item) {
      return item.shard == gathered.shard && item.step == gathered.step;
    };
    if (std::ranges::any_of(items, is_same)) return;
    items.push_back(std::move(gathered));
    clock_.Expect(now, backup.debt);
  };
  for (const StepRoot* root : shard.RootsAfter(after))
    gather({shard.id(), root->step, root->scalars, root->gradient, root->factors});
  if (inquiry_.IsOpen(shard.id(), backup.peer)) gather({.shard = shard.id(), .step = shard.step()});
}

// A sealed step counts as made, because its root is already gathered.
void Replication::SendRoots(Micros now) {
  const auto made = [](const Shard& shard) {
    return shard.is_sealed() ? VersionMadeBy(shard.step()) : shard.newest();
  };
  const bool is_worth_waiting =
      !roots_out_.empty() && !HasFullMessage(roots_out_) && replicas_.VersionsDiffer(made);
  if (IsHeld(now, is_worth_waiting, &roots_held_until_)) return;
  const bool has_rows = replicas_.FindPrimary(plan_.metric_shard()) != nullptr;
  for (auto& [peer, root] : roots_out_) {
    for (auto& items : InMessages(std::move(root.items)))
      member_.Send(peer, Root{std::move(items), has_rows ? progress_.known_row() : Step(0)});
  }
  roots_out_.clear();
}

void Replication::OnRootAck(Micros now, const Envelope& envelope, const RootAck& ack) {
  if (!CountsFor(envelope)) return;
  clock_.OnRootAck(envelope.sender, now);
  for (const RootAckItem& item : ack.items) {
    Backup* backup = Find(item.shard, envelope.sender);
    if (backup != nullptr && backup->TakesRoots()) OnAcked(now, *backup, item);
  }
}

void Replication::OnAcked(Micros now, Backup& backup, const RootAckItem& item) {
  const Shard& shard = *replicas_.FindPrimary(item.shard);
  if (item.is_answer) OnAnswer(now, shard, backup, item.version);
  if (item.version <= backup.acked || item.version > shard.newest()) return;
  const uint64_t ours = shard.records().KnownHash(item.version).value_or(item.hash);
  if (contradictions_.Compare({item.shard, item.version, backup.peer, ours, item.hash}))
    return report_clock_.SpeakSoon(now);
  if (item.version == shard.newest()) contradictions_.OnAgreed(item.shard, backup.peer);
  backup.acked = item.version;
  backup.debt.since.reset();
  const bool owes_more = backup.acked < shard.newest() || shard.is_sealed() ||
                         inquiry_.IsOpen(item.shard, backup.peer);
  if (owes_more) clock_.Expect(now, backup.debt);
  committable_.insert(item.shard);
  NoteCaughtUp(now, shard, backup);
}

// P22. A backup that has made a later version has sent its root before this. If that has not
// arrived, or not made a version, the question is repeated.
void Replication::OnAnswer(Micros now, const Shard& shard, Backup& backup, Version newest) {
  if (newest > shard.newest() || !inquiry_.IsOpen(shard.id(), backup.peer)) return;
  inquiry_.OnAnswer(shard.id(), backup.peer);
  backup.debt.since.reset();
  if (backup.acked < shard.newest()) clock_.Expect(now, backup.debt);
}

bool Replication::IsRootOfBackup(const Envelope& envelope, const RootItem& item) const {
  if (!CountsFor(envelope) || item.payload.size_bytes() == 0) return false;
  const Shard* shard = replicas_.FindPrimary(item.shard);
  return shard != nullptr && shard->has_data() && item.step == shard->step() &&
         item.payload.floats().size() == shard->records().parameter_floats() &&
         inquiry_.IsOpen(item.shard, envelope.sender);
}

void Replication::OnAdopted(Micros now, const Shard& shard) {
  for (Backup& backup : backups_[shard.id()]) {
    if (backup.TakesRoots()) GatherRoots(now, shard, backup, backup.acked);
  }
  NoteMade(shard.id());
}

bool Replication::MayCommit(const Shard& shard) const {
  const auto it = backups_.find(shard.id());
  const Version newest = shard.newest();
  if (!contradictions_.MayCommit(shard.id(), newest)) return false;
  return it == backups_.end() || std::ranges::all_of(it->second, [&](const Backup& backup) {
           if (backup.is_required) return backup.acked >= newest;
           return !backup.transfer ||
                  newest.value() - backup.acked.value() < kUnackedRootsMax;  // I6
         });
}

// ---- images ------------------------------------------------------------------------------------

void Replication::StartImages(Micros now, Shard& shard) {
  if (shard.newest() != shard.committed()) return;  // ShardSteps calls this after the commit
  const auto it = backups_.find(shard.id());
  if (it == backups_.end()) return;
  for (Backup& backup : it->second) {
    if (!backup.pair || backup.transfer) continue;
    backup.transfer.emplace(shard.id(), *backup.pair, shard.records().ShareKept());
    backup.acked = shard.newest();
    SendChunks(now, backup);
  }
}

void Replication::SendChunks(Micros now, Backup& backup) {
  while (std::optional<Chunk> chunk = backup.transfer->Next()) {
    member_.Send(backup.peer, std::move(*chunk));
    clock_.Expect(now, backup.debt);
  }
}

void Replication::OnChunkAck(Micros now, const Envelope& envelope, const ChunkAck& ack) {
  Backup* backup = Find(ack.shard, envelope.sender);
  if (backup == nullptr || !backup->transfer || *backup->pair != ack.pair) return;
  clock_.OnAnswer(envelope.sender, now);
  // The memory of the image has changed since the version was made, or the newcomer's is wrong.
  const std::optional<uint64_t> hash = backup->transfer->hash();
  if (ack.hash != 0 && hash &&
      contradictions_.Compare(
          {ack.shard, backup->transfer->newest(), backup->peer, *hash, ack.hash}))
    return report_clock_.SpeakSoon(now);
  if (!backup->transfer->OnAck(ack)) return;
  backup->debt.since.reset();
  if (!backup->transfer->is_complete()) {
    clock_.Expect(now, backup->debt);
    return SendChunks(now, *backup);
  }
  const Shard& shard = *replicas_.FindPrimary(ack.shard);
  GatherRoots(now, shard, *backup, backup->acked);
  NoteCaughtUp(now, shard, *backup);
}

// P24. Makes a newcomer's acknowledgements required, once it has every version, and reports it.
void Replication::NoteCaughtUp(Micros now, const Shard& shard, Backup& backup) {
  if (!backup.pair || backup.is_required || backup.acked != shard.newest()) return;
  backup.is_required = true;
  report_clock_.SpeakSoon(now);
}

// ---- repeats and reports -----------------------------------------------------------------------

void Replication::Tick(Micros now) {
  if (!clock_.IsDue(now)) return;
  clock_.StartRound();
  std::map<PeerId, Micros> silent;
  for (auto& [id, backups] : backups_) {
    for (Backup& backup : backups) {
      if (!backup.debt.since) continue;
      const bool is_due = clock_.IsRepeatDue(now, backup.peer, backup.TakesRoots(), backup.debt);
      if (is_due) Repeat(now, *replicas_.FindPrimary(id), backup);
      const auto silence = clock_.SilenceOver(now, backup.peer, backup.debt);
      if (silence) silent[backup.peer] = *silence;
    }
  }
  for (const auto& [peer, silence] : silent) ReportSilent(peer, silence);
}

void Replication::Repeat(Micros now, const Shard& shard, Backup& backup) {
  member_.HintView(now, backup.peer);  // in an older view it keeps the roots
  if (backup.TakesRoots()) return GatherRoots(now, shard, backup, backup.acked);
  backup.transfer->Rewind();
  SendChunks(now, backup);
}

// P23. Reports a silent backup. Versions wait for it until a view drops it (P24).
void Replication::ReportSilent(const PeerId& peer, Micros silence) {
  const auto silent_ms = std::chrono::duration_cast<std::chrono::milliseconds>(silence).count();
  member_.SendToScheduler(PeerSilent{peer, static_cast<uint64_t>(silent_ms)});
}

// P24. Adds the newcomers that are in sync. The metric shard's newcomer has only the rows after its
// image, so it is reported once the scheduler has the others.
bool Replication::AddSynced(std::vector<Message>* reports) const {
  Synced synced;
  bool has_any = false;
  for (const auto& [id, backups] : backups_) {
    for (const Backup& backup : backups) {
      const bool is_synced = backup.pair && backup.TakesRoots() && backup.is_required;
      if (!is_synced) continue;
      has_any = true;
      const bool lacks_rows = id == plan_.metric_shard() &&
                              progress_.known_row() < StepUpdating(backup.transfer->newest());
      if (!lacks_rows) synced.items.push_back({id, backup.peer, *backup.pair});
    }
  }
  if (!synced.items.empty()) reports->push_back(std::move(synced));
  return has_any;
}

// ---- the clock ---------------------------------------------------------------------------------

std::optional<Replication::Owed> Replication::OldestOwed() const {
  std::optional<Owed> oldest;
  for (const auto& [shard, backups] : backups_) {
    for (const Backup& backup : backups) {
      const std::optional<Micros>& since = backup.debt.since;
      if (since && (!oldest || *since < oldest->since)) oldest = {backup.peer, *since};
    }
  }
  return oldest;
}

void BackupClock::Expect(Micros now, Debt& debt) {
  if (!debt.since) {
    debt.since = now;
    debt.repeat_interval = kRootRetryFirst;
  }
  debt.repeat_at = now + debt.repeat_interval;
  next_repeat_at_ = std::min(next_repeat_at_, debt.repeat_at);
}

// While others are acknowledged, this root may be under way on a slow link: it is not repeated.
bool BackupClock::IsRepeatDue(Micros now, const PeerId& backup, bool sends_roots, Debt& debt) {
  const auto acknowledged = acknowledged_at_.find(backup);
  if (acknowledged != acknowledged_at_.end() && sends_roots)
    debt.repeat_at = std::max(debt.repeat_at, acknowledged->second + debt.repeat_interval);
  const bool is_due = now >= debt.repeat_at;
  if (is_due) {
    debt.repeat_interval = std::min(2 * debt.repeat_interval, kRootRetryMax);
    debt.repeat_at = now + debt.repeat_interval;
  }
  next_repeat_at_ = std::min(next_repeat_at_, debt.repeat_at);
  return is_due;
}

std::optional<Micros> BackupClock::SilenceOver(Micros now, const PeerId& backup,
                                               const Debt& debt) const {
  const auto heard = heard_at_.find(backup);
  const Micros since =
      heard == heard_at_.end() ? *debt.since : std::max(*debt.since, heard->second);
  if (now - since < 2 * lease_) return std::nullopt;
  return now - since;
}

}  // namespace pando
