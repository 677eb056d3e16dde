#include "tests/sim/world.h"

#include <array>
#include <cstdio>
#include <cstring>

#include "common/check.h"
#include "common/hash.h"

namespace pando::sim {

uint64_t Chance::Next() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

void World::After(Micros delay, std::function<void()> action) {
  queue_.push({now_ + delay, order_++, std::move(action)});
}

bool World::Step() {
  if (queue_.empty()) return false;
  auto action =
      std::move(const_cast<Event&>(queue_.top()).action);  // popped at once: nobody sees it
  now_ = queue_.top().time;
  queue_.pop();
  action();
  return true;
}

std::string NameOfMessage(const Message& message) {
  static constexpr std::array kNames{"Register",
                                     "Welcome",
                                     "Refused",
                                     "Ready",
                                     "Heartbeat",
                                     "HeartbeatAck",
                                     "ViewUpdate",
                                     "ViewAck",
                                     "Push",
                                     "Pull",
                                     "Params",
                                     "PushReply",
                                     "Question",
                                     "Answer",
                                     "ScalarsRequest",
                                     "Scalars",
                                     "Progress",
                                     "ProgressAck",
                                     "Evaluate",
                                     "EvaluationResult",
                                     "ReleasePin",
                                     "PinReleased",
                                     "Stop",
                                     "Bye",
                                     "Failure",
                                     "StatusRequest",
                                     "StatusReport",
                                     "Root",
                                     "RootAck",
                                     "Chunk",
                                     "ChunkAck",
                                     "Synced",
                                     "Divergence",
                                     "PeerSilent",
                                     "SnapshotStored",
                                     "SnapshotAck",
                                     "SnapshotAt",
                                     "SnapshotAtAck",
                                     "Leave",
                                     "GradientHashes",
                                     "GradientHashesAck",
                                     "Command",
                                     "CommandReply",
                                     "FaultNote",
                                     "FaultNoteAck"};
  static_assert(kNames.size() == std::variant_size_v<Message>);
  return kNames[message.index()];
}

void Network::Attach(const PeerId& peer, Deliver deliver) {
  peers_[{peer.incarnation, peer.lane}] = std::move(deliver);
}

void Network::Detach(Incarnation incarnation) {
  std::erase_if(peers_, [&](const auto& peer) { return peer.first.first == incarnation; });
}

uint64_t Network::EpochOf(Incarnation a, Incarnation b) { return resets_[a] + resets_[b]; }

void Network::ResetConnections(Incarnation incarnation) { ++resets_[incarnation]; }

void Network::Heal() { options_.loss = options_.duplication = options_.straggle = 0; }

void Network::Send(const Envelope& envelope) {
  if (watch_) watch_(envelope);
  ++message_count_;
  const Frames frames = Encode(envelope);
  uint64_t hash = Hash64(std::as_bytes(std::span(&trace_hash_, 1)), world_.now().count());
  for (const Blob& frame : frames) hash = Hash64(frame.bytes(), hash);
  trace_hash_ = hash;
  if (is_tracing_) {
    std::printf("%10ld us  %2d.%u -> %2d.%u  view %lu  %s\n", long{world_.now().count()},
                static_cast<int>(envelope.sender.node.value()), envelope.sender.lane,
                static_cast<int>(envelope.receiver.node.value()), envelope.receiver.lane,
                envelope.view.number, NameOfMessage(envelope.message).c_str());
  }
  // A lease counts heartbeats over TCP, which loses only with the connection.
  const bool is_heartbeat = std::holds_alternative<Heartbeat>(envelope.message);
  Chance& chance = world_.chance();
  if (is_heartbeat || !chance.OneIn(options_.loss)) Transmit(envelope, frames, is_heartbeat);
  if (!is_heartbeat && chance.OneIn(options_.duplication)) Transmit(envelope, frames, false);
}

void Network::Transmit(const Envelope& envelope, const Frames& frames, bool is_reliable) {
  // The bytes as they are now: the sender may reuse its buffers once the message has left.
  struct Flight {
    std::vector<std::vector<std::byte>> frames;
  };
  auto flight = std::make_shared<Flight>();
  Chance& chance = world_.chance();
  for (const Blob& frame : frames) {
    auto& copy = flight->frames.emplace_back(frame.size_bytes());
    std::memcpy(copy.data(), frame.bytes().data(), frame.size_bytes());
  }
  Micros delay(chance.Between(options_.delay_min.count(), options_.delay_max.count()));
  if (!is_reliable && chance.OneIn(options_.straggle)) delay *= 100;
  PeerId to = envelope.receiver;
  if (to.incarnation == Incarnation(0)) to = scheduler_;
  const Incarnation from = envelope.sender.incarnation;
  world_.After(delay, [this, flight, to, from, epoch = EpochOf(from, to.incarnation)] {
    auto peer = peers_.find({to.incarnation, to.lane});
    if (peer == peers_.end() || EpochOf(from, to.incarnation) != epoch) return;
    Frames received;
    for (const auto& bytes : flight->frames) received.emplace_back(std::span(bytes), flight);
    Result<Envelope> decoded = Decode(received);
    PANDO_CHECK(decoded.ok());
    const Deliver deliver = peer->second;  // it may detach itself
    deliver(*decoded);
  });
}

}  // namespace pando::sim
