#include "scheduler/views/view_publisher.h"

#include <algorithm>
#include <utility>

namespace pando {
namespace {

bool IsSame(const ShardPlacement& a, const ShardPlacement& b) {
  return a.primary == b.primary && a.in_sync_backups == b.in_sync_backups &&
         a.syncing_backups == b.syncing_backups;
}
bool IsSame(const MicroBatchOwner& a, const MicroBatchOwner& b) {
  return a.worker == b.worker && a.first_step == b.first_step && a.previous == b.previous;
}
bool IsSame(const NodeInfo& a, const NodeInfo& b) {
  return a.node == b.node && a.incarnation == b.incarnation;
}
template <class T>
bool AreSame(const std::vector<T>& a, const std::vector<T>& b) {
  return std::ranges::equal(a, b, [](const T& x, const T& y) { return IsSame(x, y); });
}

}  // namespace

bool ViewPublisher::IsNews(const View& next) const {
  const View& view = views_.view();
  const bool is_same = AreSame(next.nodes, view.nodes) && AreSame(next.shards, view.shards) &&
                       AreSame(next.owners, view.owners);
  return !is_same || !views_.HasAnnounced();
}

void ViewPublisher::Publish(Micros now, View next) {
  const bool had_worker = views_.view().owners.empty() || WaitingText().empty();
  std::string signature;
  if (seal_) signature = seal_->Sign(SealedText(outbox_.job(), next));
  views_.Publish(std::move(next), std::move(signature));
  outbox_.MarkChanged();
  const View& view = views_.view();
  outbox_.RepeatAt(now);
  size_t syncing = 0;
  for (const ShardPlacement& placement : view.shards) syncing += placement.syncing_backups.size();
  const Members& members = membership_.members();
  outbox_.Tell(now, "view", "", "view {}: {} workers, {} servers, {} shards, {} replicas syncing",
               view.id.number, members.CountReady(Role::kWorker), members.CountReady(Role::kServer),
               view.shards.size(), syncing);
  const std::string waiting = WaitingText();
  if (had_worker && !waiting.empty())
    outbox_.TellNotable(now, "waiting", "", "the job waits: {}", waiting);
}

void ViewPublisher::RepeatTo(const PeerId& lane) {
  const View& view = views_.view();
  if (acked_.Newest(lane) < view.id) outbox_.Send(lane, ViewUpdate{view, views_.signature()});
}

void ViewPublisher::OnViewAck(Micros now, const Envelope& envelope, const ViewAck& ack) {
  // A member that answers an earlier life of the scheduler got the view from another member and
  // does not know this life yet.
  if (envelope.receiver.incarnation != outbox_.self().incarnation) return;
  acked_.OnAck(envelope.sender, ack.id);
  if (faults_.IsOpen("scheduler") && HaveAllAcked()) faults_.Recover(now, "scheduler");
}

// Returns whether every lane has acknowledged a view of this life of the scheduler.
bool ViewPublisher::HaveAllAcked() const {
  for (const auto& [node, member] : membership_.members().all()) {
    if (!member.takes_part()) continue;
    for (const PeerId& lane : member.Peers()) {
      if (acked_.Newest(lane).term != views_.term()) return false;
    }
  }
  return true;
}

std::string ViewPublisher::WaitingText() const {
  if (phase_.is_gathering()) return "for " + membership_.MissingText();
  if (phase_.is_rolling_back()) {
    const bool has_server = membership_.members().CountReady(Role::kServer) != 0;
    return has_server ? "restoring the last snapshot" : "no server";
  }
  const bool has_worker = std::ranges::any_of(
      views_.view().owners, [](const auto& owner) { return owner.worker != kUnknownNode; });
  return phase_.is_running() && !has_worker ? "no worker" : "";
}

}  // namespace pando
