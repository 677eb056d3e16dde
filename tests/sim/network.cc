#include "tests/sim/network.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "common/check.h"
#include "common/hash.h"
#include "tests/sim/trace.h"

namespace pando::sim {
namespace {

constexpr size_t kEchoesMax = 32;  // a receiver's: the newest
constexpr Micros kEchoDelayMax = std::chrono::microseconds(300);

}  // namespace

// The bytes as they were when they were sent: the sender may reuse its buffers afterwards. What is
// named is read where it lies, when the message is here.
struct Network::Parcel {
  std::vector<std::vector<std::byte>> frames;
  std::vector<SharedMemory::Named> named;
  PeerId to;
  Incarnation from;
  Place from_place = 0;
  uint64_t epoch = 0;
};

void Network::Attach(Place place, const PeerId& peer, Deliver deliver) {
  peers_[{peer.incarnation, peer.lane}] = {place, std::move(deliver)};
}

void Network::Detach(Incarnation incarnation) {
  std::erase_if(peers_, [&](const auto& peer) { return peer.first.first == incarnation; });
  shared_memory_.Forget(incarnation);
}

uint64_t Network::Epoch(Incarnation a, Incarnation b) { return resets_[a] + resets_[b]; }

void Network::CutLink(Place from, Place to, Micros until, Cut kind) {
  Link& link = links_[{from, to}];
  link.cut_until = std::max(link.cut_until, until);
  link.kind = kind;
}

bool Network::IsCut(Place from, Place to) const {
  const auto link = links_.find({from, to});
  return link != links_.end() && world_.now() < link->second.cut_until;
}

Micros Network::last_cut_end(Place place) const {
  Micros end{0};
  for (const auto& [ends, link] : links_) {
    if (ends.first == place || ends.second == place) end = std::max(end, link.cut_until);
  }
  return end;
}

void Network::Heal() {
  options_.loss = options_.duplication = options_.straggle = options_.echo = 0;
  echoes_.clear();
  for (auto& [ends, link] : links_) link.cut_until = std::min(link.cut_until, world_.now());
}

void Network::Send(Place from, Envelope envelope) {
  if (watch_ && !watch_(envelope)) return;
  const std::optional<Micros> late_copy = std::exchange(late_copy_, std::nullopt);
  ++message_count_;
  ++counts_[envelope.message.index()];
  std::vector<SharedMemory::Named> named = shared_memory_.Take(envelope.receiver, &envelope);
  const Content content{Encode(envelope), std::move(named)};
  AddToTrace(envelope, content);
  // A lease counts heartbeats over TCP, which loses only with the connection.
  const bool is_heartbeat = std::holds_alternative<Heartbeat>(envelope.message);
  Chance& chance = world_.chance();
  if (is_heartbeat || !chance.OneIn(options_.loss)) Transmit(from, envelope, content, is_heartbeat);
  if (!is_heartbeat && chance.OneIn(options_.duplication)) Transmit(from, envelope, content, false);
  if (late_copy) Transmit(from, envelope, content, true, *late_copy);
  // A view counts from the moment that the scheduler sends it.
  const bool is_view = HoldsAny<ViewUpdate, ViewDelta>(envelope.message);
  if (is_view && envelope.sender.node == kSchedulerNode)
    Echo({scheduler_.incarnation, 0}, envelope.view);
}

void Network::SendForged(Place from, const Envelope& envelope) {
  const Content content{Encode(envelope), {}};
  if (is_tracing_) std::printf("forged: ");
  AddToTrace(envelope, content);
  Transmit(from, envelope, content, true);
}

void Network::DeliverForged(const Envelope& envelope) {
  const Content content{Encode(envelope), {}};
  if (is_tracing_) std::printf("forged: ");
  AddToTrace(envelope, content);
  const auto peer = peers_.find({envelope.receiver.incarnation, envelope.receiver.lane});
  const Result<Envelope> decoded = Decode(content.frames);
  if (peer == peers_.end() || !decoded.ok()) return;
  const Deliver deliver = peer->second.deliver;  // it may detach itself
  deliver(*decoded);
}

void Network::AddToTrace(const Envelope& envelope, const Content& content) {
  uint64_t hash = Hash64(std::as_bytes(std::span(&trace_hash_, 1)), world_.now().count());
  for (const Blob& frame : content.frames) hash = Hash64(frame.bytes(), hash);
  for (const auto& one : content.named) hash = Hash64(std::as_bytes(std::span(&one.hash, 1)), hash);
  trace_hash_ = hash;
  if (is_tracing_) Trace(envelope);
}

// Messages of earlier views come once more, when their receiver has just entered another.
void Network::Echo(const Address& receiver, ViewId entered) {
  const auto held = echoes_.find(receiver);
  ViewId& newest = entered_[receiver];
  if (entered <= newest) return;
  newest = entered;
  if (held == echoes_.end()) return;
  Chance& chance = world_.chance();
  std::erase_if(held->second, [&](const std::shared_ptr<const Parcel>& parcel) {
    world_.After(chance.Until(kEchoDelayMax), [this, parcel] { Arrive(parcel); });
    return chance.OneIn(0.5);
  });
}

void Network::Transmit(Place from, const Envelope& envelope, const Content& content,
                       bool is_reliable, Micros extra_delay) {
  auto parcel = std::make_shared<Parcel>();
  parcel->named = content.named;
  for (const Blob& frame : content.frames) {
    auto& copy = parcel->frames.emplace_back(frame.size_bytes());
    std::memcpy(copy.data(), frame.bytes().data(), frame.size_bytes());
  }
  Chance& chance = world_.chance();
  Micros delay(chance.Between(options_.delay_min.count(), options_.delay_max.count()));
  if (!is_reliable && chance.OneIn(options_.straggle)) delay *= 100;
  delay += extra_delay;
  parcel->to = envelope.receiver;
  const bool is_to_scheduler = envelope.receiver.node == kSchedulerNode;
  if (is_to_scheduler || parcel->to.incarnation == Incarnation(0)) {
    parcel->to = scheduler_;
    if (is_to_scheduler) parcel->to.lane = envelope.receiver.lane;
  }
  parcel->from = envelope.sender.incarnation;
  parcel->from_place = from;
  parcel->epoch = Epoch(parcel->from, parcel->to.incarnation);
  if (options_.echo > 0 && chance.OneIn(options_.echo)) {
    auto& held = echoes_[{parcel->to.incarnation, parcel->to.lane}];
    if (held.size() == kEchoesMax) held.erase(held.begin());
    held.push_back(parcel);
  }
  world_.After(delay, [this, parcel = std::move(parcel)] { Arrive(parcel); });
}

void Network::Arrive(std::shared_ptr<const Parcel> parcel) {
  const auto peer = peers_.find({parcel->to.incarnation, parcel->to.lane});
  if (peer == peers_.end() || Epoch(parcel->from, parcel->to.incarnation) != parcel->epoch) {
    return;
  }
  const auto link = links_.find({parcel->from_place, peer->second.place});
  if (link != links_.end() && world_.now() < link->second.cut_until) {
    if (link->second.kind == Cut::kLoses) return;
    // It comes when the link is whole again; which is looked at then.
    return world_.After(link->second.cut_until - world_.now(),
                        [this, parcel = std::move(parcel)] { Arrive(parcel); });
  }
  Frames received;
  for (const auto& bytes : parcel->frames) received.emplace_back(std::span(bytes), parcel);
  Result<Envelope> decoded = Decode(received);
  PANDO_CHECK(decoded.ok());
  if (!shared_memory_.Restore(parcel->named, parcel->to, &*decoded)) return;
  const Deliver deliver = peer->second.deliver;  // it may detach itself
  deliver(*decoded);
  if (HoldsAny<ViewUpdate, ViewDelta>(decoded->message))
    Echo({parcel->to.incarnation, parcel->to.lane}, decoded->view);
}

void Network::Trace(const Envelope& envelope) const {
  const auto name_of = [](const PeerId& peer) {
    char text[64];
    const long node = peer.node == kUnknownNode ? -1 : static_cast<long>(peer.node.value());
    std::snprintf(text, sizeof text, "%2ld.%u/%04lx", node, peer.lane,
                  peer.incarnation.value() & 0xffff);
    return std::string(text);
  };
  std::printf("%10ld us  %s -> %s  g%u v%lu.%lu  %s %s\n", long{world_.now().count()},
              name_of(envelope.sender).c_str(), name_of(envelope.receiver).c_str(),
              envelope.generation, envelope.view.term, envelope.view.number,
              RowFor(envelope.message).name, Detail(envelope.message).c_str());
}

}  // namespace pando::sim
