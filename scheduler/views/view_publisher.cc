#include "scheduler/views/view_publisher.h"

#include <algorithm>
#include <utility>

#include "proto/view_delta.h"

namespace pando {
namespace {

constexpr size_t kHistoryMax = 8;
// While a view is not acknowledged, it is repeated less and less often.
constexpr Micros kRepeatFirst = std::chrono::milliseconds(200);
constexpr Micros kRepeatMax = std::chrono::seconds(3);

}  // namespace

bool ViewPublisher::IsNews(const View& next) const {
  const View& view = views_.view();
  return next.nodes != view.nodes || next.shards != view.shards || next.owners != view.owners ||
         !views_.HasAnnounced();
}

void ViewPublisher::Publish(Micros now, View next) {
  const bool had_worker = views_.view().owners.empty() || WaitingText().empty();
  std::string signature;
  if (seal_) signature = seal_->Sign(SealedText(outbox_.job(), next));
  views_.Publish(std::move(next), std::move(signature));
  outbox_.MarkChanged();
  history_.push_back(views_.shared());
  if (history_.size() > kHistoryMax) history_.pop_front();
  changes_.clear();
  const View& view = views_.view();
  outbox_.RepeatAt(now);
  repeat_at_ = now;
  repeat_interval_ = kRepeatFirst;
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

bool ViewPublisher::TakeRepeat(Micros now) {
  if (now < repeat_at_) return false;
  repeat_at_ = now + repeat_interval_;
  repeat_interval_ = std::min(2 * repeat_interval_, kRepeatMax);
  return true;
}

void ViewPublisher::RepeatTo(const PeerId& lane) {
  const ViewId acked = acked_.Newest(lane);
  const ViewId newest = views_.view().id;
  if (acked >= newest) return;
  // The acknowledgement of the last view may be on its way. If the lane lacks that view, it asks.
  const ViewId sent = sent_.Newest(lane);
  sent_.OnAck(lane, newest);
  const std::optional<SharedChange>& change =
      ChangeSince(sent < newest ? std::max(sent, acked) : acked);
  if (change) return outbox_.Send(lane, ViewDelta{*change, views_.signature()});
  SendWhole(lane);
}

void ViewPublisher::SendWhole(const PeerId& lane) {
  if (views_.HasAnnounced()) outbox_.Send(lane, ViewUpdate{views_.shared(), views_.signature()});
}

// Returns none if the view is not one of the last ones, or must be replaced as a whole.
const std::optional<SharedChange>& ViewPublisher::ChangeSince(ViewId base) {
  const auto [change, is_new] = changes_.try_emplace(base);
  const auto from = std::ranges::find(history_, base, [](const SharedView& v) { return v->id; });
  if (is_new && from != history_.end()) change->second = Difference(*from, views_.shared());
  return change->second;
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
