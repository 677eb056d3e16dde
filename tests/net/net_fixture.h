// Shared by the network tests: parties on this machine, and waiting for events with a deadline.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include "common/clock.h"
#include "common/system.h"
#include "net/transport.h"
#include "tests/deadline.h"

namespace pando {

inline const char* const kAnyTcpPort = "tcp://127.0.0.1:0";

inline Envelope MakePush(const PeerId& sender, const PeerId& receiver, Blob payload) {
  Push push;
  push.items.push_back({ShardId(1), Step(2), TreeNode(1), std::move(payload)});
  return {.sender = sender, .receiver = receiver, .message = std::move(push)};
}

inline Blob Payload(const Envelope& envelope) {
  return std::get<Push>(envelope.message).items.at(0).payload;
}

// A separate folder, removed at the end.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = std::filesystem::temp_directory_path() / "pando-net-XXXXXX";
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::string Ipc(const std::string& name) const { return "ipc://" + (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// Waits for a message.  Fails the test if none comes.
inline Envelope MustReceive(Transport& transport) {
  const Micros deadline = SteadyNow() + kEventDeadline;
  Envelope envelope;
  while (!transport.Receive(&envelope)) {
    REQUIRE(SteadyNow() < deadline);
    transport.Wait(deadline);
  }
  return envelope;
}

// Reads `transport` until the condition holds; the messages go to waste.
inline void MustBecome(Transport& transport, const std::function<bool()>& condition) {
  const Micros deadline = SteadyNow() + kEventDeadline;
  while (!condition()) {
    REQUIRE(SteadyNow() < deadline);
    Envelope ignored;
    if (!transport.Receive(&ignored)) transport.Wait(SteadyNow() + std::chrono::milliseconds(1));
  }
}

// Binds where another transport may have been bound: ZeroMQ lets go of an endpoint a moment after
// its socket is closed.
inline std::string MustBind(Transport& transport, const std::string& endpoint) {
  const Micros deadline = SteadyNow() + kEventDeadline;
  Result<std::string> bound = transport.Bind(endpoint);
  while (!bound.ok()) {
    REQUIRE_MESSAGE(SteadyNow() < deadline, bound.status().message());
    bound = transport.Bind(endpoint);
  }
  return *bound;
}

// All roles' keys.
inline Keys DrawKeys() {
  Keys keys{.folder = "in memory", .pairs = {}};
  for (KeyPair& pair : keys.pairs) pair = DrawKeyPair();
  return keys;
}

inline PeerId NewPeer(uint32_t node, uint16_t lane = 0) {
  return {NodeId(node), NewIncarnation(), lane};
}

inline Envelope TextFrom(const PeerId& sender, const PeerId& receiver, std::string text) {
  return {.sender = sender, .receiver = receiver, .message = Failure{std::move(text)}};
}

inline std::string Text(const Envelope& envelope) {
  const auto* failure = std::get_if<Failure>(&envelope.message);
  return failure == nullptr ? "another message" : failure->text;
}

// Two parties: `lane` is bound, `worker` dials it.
struct Pair {
  explicit Pair(const std::string& endpoint, Transport::Options lane_options = {})
      : lane(context, lane_peer, std::move(lane_options)), worker(context, worker_peer, {}) {
    const Result<std::string> bound_at = lane.Bind(endpoint);
    REQUIRE_MESSAGE(bound_at.ok(), bound_at.status().message());
    bound = *bound_at;
    REQUIRE(worker.Dial(lane_peer, bound).ok());
  }
  // Says something both ways.
  void CheckTraffic(const std::string& text) {
    worker.Send(TextFrom(worker_peer, lane_peer, text));
    CHECK(Text(MustReceive(lane)) == text);
    lane.Send(TextFrom(lane_peer, worker_peer, text + " back"));
    CHECK(Text(MustReceive(worker)) == text + " back");
  }

  ZmqContext context;
  PeerId lane_peer = NewPeer(1, 3);
  PeerId worker_peer = NewPeer(2);
  Transport lane;
  Transport worker;
  std::string bound;
};

}  // namespace pando
