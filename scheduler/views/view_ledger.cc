#include "scheduler/views/view_ledger.h"

#include <algorithm>

#include "proto/message_limits.h"

namespace pando {

ViewLedger::ViewLedger(const std::optional<SchedulerState>& state) {
  if (!state) return;
  view_ = state->view;
  term_ = state->term + 1;
  first_term_ = term_;
  journal_view_ = view_->id;
}

uint32_t ViewLedger::NextGeneration() const {
  return std::max(view_->generation, generation_seen_) + 1;
}

bool ViewLedger::IsOurs(ViewId id, uint32_t generation) const {
  if (generation != view_->generation) return generation < view_->generation;
  return id <= journal_view_ || (id.term >= first_term_ && id <= view_->id);
}

bool ViewLedger::IsBelievable(ViewId id, uint32_t generation) const {
  return pando::IsBelievable(generation, std::max(view_->generation, generation_seen_)) &&
         pando::IsBelievable(id.term, term_) && pando::IsBelievable(id.number, view_->id.number);
}

void ViewLedger::OnNewsBeyond(ViewId id, uint32_t generation) {
  generation_seen_ = std::max(generation_seen_, generation);
  term_ = std::max(term_, id.term + 1);
}

void ViewLedger::RequestView(Micros at) { due_at_ = std::min(due_at_.value_or(at), at); }

bool HasBackupOn(const ShardPlacement& placement, NodeId server) {
  return std::ranges::count(placement.in_sync_backups, server, &PeerId::node) != 0 ||
         std::ranges::any_of(placement.syncing_backups,
                             [&](const SyncingBackup& s) { return s.peer.node == server; });
}

bool HasReplicaOn(const View& view, NodeId server) {
  return std::ranges::any_of(view.shards, [&](const ShardPlacement& placement) {
    return placement.primary.node == server || HasBackupOn(placement, server);
  });
}

bool LeadsShards(const View& view, NodeId server) {
  return std::ranges::any_of(view.shards, [&](const ShardPlacement& placement) {
    return placement.primary.node == server;
  });
}

bool HasWorkFor(const View& view, NodeId worker, Version committed) {
  return std::ranges::any_of(view.owners, [&](const MicroBatchOwner& owner) {
    const bool has_handed_over = committed >= VersionUpdatedBy(owner.first_step);
    return owner.worker == worker || (owner.previous == worker && !has_handed_over);
  });
}

}  // namespace pando
