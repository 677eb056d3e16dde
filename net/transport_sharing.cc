// The part of Transport that shares memory with peers, and restores messages that name it (P42).
#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "common/clock.h"
#include "net/transport.h"

namespace pando {
namespace {

std::optional<LinkPeer> ToLinkPeer(const std::optional<Dialer>& dialer) {
  if (!dialer) return std::nullopt;
  return LinkPeer(dialer->incarnation, dialer->lane);
}

bool Shares(const SharedLinks& links, const PeerId& dialed) {
  const SharedLink* link = links.Find({MakeLinkPeer(dialed), true});
  return link != nullptr && link->shares();
}

}  // namespace

Status Transport::ShareMemory(SharedMemory options) {
  PANDO_CHECK(links_ == nullptr);
  const auto sign = [this](Incarnation peer, const std::string& text) {
    return guard_.SignLink(peer, text);
  };
  auto links =
      std::make_unique<SharedLinks>(SharedLink::End{options.pool, options.on_mapped, sign});
  if (lines_.contains(std::nullopt)) {
    PANDO_RETURN_IF_ERROR(links->Listen(MakeLinkPeer(self_)));
  }
  links_ = std::move(links);
  shared_memory_ = std::move(options);
  return Status();
}

void Transport::Link(Line& line) {
  // The scheduler is never on the data path.
  if (links_ == nullptr || !line.peer || line.peer->node == kSchedulerNode ||
      line.peer->incarnation == Incarnation())
    return;
  const Status linked = links_->Connect(MakeLinkPeer(self_), MakeLinkPeer(*line.peer));
  // The link exists, or may exist later (LinkAgain), or the peer shared memory before and has
  // restarted.
  if (linked.ok() || linked.code() == StatusCode::kInterrupted || line.has_shared) return;
  line.unshared = linked.message();
  if (line.is_local) shared_memory_.NoteUnshared(line.endpoint, line.unshared);
}

void Transport::SharedMemory::NoteUnshared(const std::string& peer, const std::string& why) {
  if (!on_note) return;
  std::exchange(
      on_note, {})(fmt::format("no memory is shared with {}: {}; payloads go as bytes", peer, why));
}

// Records which links share memory now, and which ones ended before they did.
void Transport::NoteSharing() {
  for (auto& [peer, line] : lines_) {
    if (peer && Shares(*links_, *peer)) line.has_shared = true;
  }
  for (const SharedLinks::Refusal& refusal : links_->TakeRefusals()) {
    if (!refusal.line.is_dialed) shared_memory_.NoteUnshared("a peer that dialed us", refusal.why);
    for (auto& [peer, line] : lines_) {
      const bool is_its = peer && refusal.line == SharedLinks::Line{MakeLinkPeer(*peer), true};
      if (!is_its || line.has_shared) continue;
      line.unshared = refusal.why;
      shared_memory_.NoteUnshared(line.endpoint, refusal.why);
    }
  }
}

// Links again: a peer that closed its link may have lacked a descriptor, or may have restarted.
void Transport::LinkAgain() {
  const Micros now = SteadyNow();
  if (now < link_again_at_) return;
  link_again_at_ = now + options_.link_again;
  const std::vector<LinkPeer> connected = links_->connected();
  for (auto& [peer, line] : lines_) {
    if (!peer || !line.unshared.empty()) continue;
    if (std::ranges::find(connected, MakeLinkPeer(*peer)) == connected.end()) Link(line);
  }
}

// Restores the payloads that the message names. A message whose payload was overtaken counts as
// lost: its sender does not need it any more, or repeats it (P10).
bool Transport::Restore(const Line& line, ZmqSocket::Received* received) {
  const std::optional<LinkPeer> peer =
      line.peer ? MakeLinkPeer(*line.peer) : ToLinkPeer(ParseRoutingId(received->routing_id));
  SharedLink* link = peer ? FindLink(links_, {*peer, line.peer.has_value()}) : nullptr;
  const auto restored =
      link != nullptr ? link->Restore(&received->frames) : SharedLink::Restored::kOvertaken;
  if (restored == SharedLink::Restored::kWhole) return true;
  const bool is_corrupt = restored == SharedLink::Restored::kCorrupt;
  ++(is_corrupt ? counters_.undecodable : counters_.overtaken);
  if (is_corrupt)
    warnings_.Warn(line.DialedEndpoint(), received->routing_id, received->address,
                   "it names shared memory that does not exist");
  return false;
}

// A message from a link counts as received on the connection that the link belongs to.
bool Transport::ReceiveByLink(Envelope* envelope) {
  if (links_ == nullptr) return false;
  SharedLinks::Line link;
  ZmqSocket::Received received{.is_of_user = true};
  while (links_->Take(&link, &received.frames)) {
    if (context_.is_isolated()) {
      ++counters_.isolated;
      continue;
    }
    const auto line = std::ranges::find_if(lines_, [&](const auto& entry) {
      const std::optional<PeerId>& peer = entry.first;
      return link.is_dialed ? peer && MakeLinkPeer(*peer) == link.peer : !peer;
    });
    PANDO_CHECK(line != lines_.end());
    if (!link.is_dialed)
      received.routing_id = RoutingId({Channel::kData, link.peer.first, link.peer.second}, self_);
    if (Accept(line->second, received, envelope)) return true;
  }
  return false;
}

// Records a failure if memory must be shared. The peer answers, but it will never share memory.
void Transport::JudgeSharing(const Line& line) {
  if (!shared_memory_.is_required || !sharing_failure_.ok()) return;
  sharing_failure_ = Unavailable(
      fmt::format("run.transport is shm, and no memory can be shared with {}: {}; use --transport "
                  "auto, which sends bytes where it must",
                  line.endpoint, line.unshared));
}

Transport::LineCounts Transport::CountLines() const {
  LineCounts counts;
  for (const auto& [peer, line] : lines_) {
    if (!peer || peer->node == kSchedulerNode) continue;
    if (links_ != nullptr && Shares(*links_, *peer))
      ++counts.shm;
    else
      ++(line.kind() == LineKind::kIpc ? counts.ipc : counts.tcp);
  }
  return counts;
}

}  // namespace pando
