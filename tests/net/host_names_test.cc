// Peers that are dialed by name: names that are not found, not yet, or somewhere else later.
#include "net/host_names.h"

#include <atomic>
#include <thread>

#include "tests/net/net_fixture.h"

namespace pando {
namespace {

// "tcp://scheduler.test:4123" for an endpoint of this machine.
std::string Named(const std::string& bound) {
  return "tcp://scheduler.test" + bound.substr(bound.rfind(':'));
}

// Says something to the lane, again and again, until it arrives.
void MustReach(Transport& from, const PeerId& self, Transport& lane, const PeerId& lane_peer) {
  const uint64_t received = lane.counters().received;
  const Micros deadline = SteadyNow() + kEventDeadline;
  while (lane.counters().received == received) {
    REQUIRE(SteadyNow() < deadline);
    from.Send(TextFrom(self, lane_peer, "hello"));
    from.Wait(SteadyNow() + std::chrono::milliseconds(5));
    Envelope ignored;
    while (lane.Receive(&ignored)) {
    }
    lane.Wait(SteadyNow() + std::chrono::milliseconds(5));
  }
}

TEST_CASE("a name that is not found yet is warned about once, and found later") {
  Pair pair(kAnyTcpPort);
  std::atomic<int> asked = 0;
  std::vector<std::string> warnings;
  const PeerId self = NewPeer(5);
  Transport worker(pair.context, self,
                   {.look_up = [&asked](const Endpoint&) -> Result<std::string> {
                      if (++asked < 3) return NotFound("no such host");
                      return std::string("127.0.0.1");
                    },
                    .on_warning = [&](const std::string& text) { warnings.push_back(text); }});
  REQUIRE(worker.Dial(pair.lane_peer, Named(pair.bound)).ok());
  MustReach(worker, self, pair.lane, pair.lane_peer);
  CHECK(warnings == std::vector<std::string>{"no such host"});
  CHECK(asked >= 3);
}

TEST_CASE("a silent peer's name is looked up again, and its new address is dialed") {
  Pair pair(kAnyTcpPort);
  std::atomic<bool> has_moved = false;
  const PeerId self = NewPeer(5);
  Transport worker(pair.context, self, {.look_up = [&](const Endpoint&) -> Result<std::string> {
                     return std::string(has_moved ? "127.0.0.1" : "127.0.0.2");
                   }});
  REQUIRE(worker.Dial(pair.lane_peer, Named(pair.bound)).ok());
  worker.Send(TextFrom(self, pair.lane_peer, "to the old address"));
  has_moved = true;
  MustReach(worker, self, pair.lane, pair.lane_peer);
}

TEST_CASE("a lookup that does not end holds up no other peer, and the last good address stays") {
  Pair pair(kAnyTcpPort);
  struct Gate {
    std::atomic<int> asked = 0;
    std::atomic<bool> is_open = false;
  };
  const auto gate = std::make_shared<Gate>();  // the lookup's thread outlives the test
  const PeerId self = NewPeer(5);
  Transport worker(pair.context, self, {.look_up = [gate](const Endpoint&) -> Result<std::string> {
                     if (++gate->asked == 1) return std::string("127.0.0.1");
                     while (!gate->is_open) std::this_thread::yield();
                     return NotFound("too late");
                   }});
  REQUIRE(worker.Dial(pair.lane_peer, Named(pair.bound)).ok());
  // The lane never answers, so the name is asked for again after a while.
  const Micros deadline = SteadyNow() + kEventDeadline;
  while (gate->asked < 2) {
    REQUIRE(SteadyNow() < deadline);
    worker.Wait(SteadyNow() + std::chrono::milliseconds(50));
  }
  MustReach(worker, self, pair.lane, pair.lane_peer);
  gate->is_open = true;
}

}  // namespace
}  // namespace pando
