#include "proto/join_core.h"

#include <doctest/doctest.h>

#include <vector>

namespace pando {
namespace {

constexpr PeerId kLeader{kSchedulerNode, Incarnation(10), 0};
constexpr PeerId kOther{NodeId(5), Incarnation(55), 0};
constexpr PeerId kNewcomer{kUnknownNode, Incarnation(33), 0};

struct JoinFixture : Outbox {
  void Send(Envelope envelope) override { sent.push_back(std::move(envelope)); }
  void Receive(const PeerId& from, Message message, const PeerId& to = kNewcomer) {
    join.OnMessage(Micros(0), {.sender = from, .receiver = to, .message = std::move(message)});
  }
  std::vector<Envelope> sent;
  JoinCore join{kNewcomer.incarnation, Register{.host = "h"}, *this};
};

TEST_CASE("a process registers again until it is answered") {
  JoinFixture f;
  for (Micros now{0}; now < std::chrono::seconds(1); now += std::chrono::milliseconds(10))
    f.join.Tick(now);
  REQUIRE(f.sent.size() >= 4);
  CHECK(std::get<Register>(f.sent.back().message).host == "h");
  CHECK(f.sent.back().receiver == PeerId{kSchedulerNode, Incarnation(0), 0});
  f.Receive(kLeader, Welcome{.node = NodeId(3), .rank = 1});
  REQUIRE(f.join.welcome());
  CHECK(f.join.scheduler() == kLeader);
  CHECK(f.join.self(2) == PeerId{NodeId(3), kNewcomer.incarnation, 2});
  CHECK(f.join.NextDeadline() == kNever);
}

TEST_CASE("a process that joins hears the scheduler alone, and for this life alone") {
  JoinFixture f;
  f.Receive(kOther, Welcome{.node = NodeId(3)});
  f.Receive(kOther, Refused{"go away"});
  f.Receive({kUnknownNode, kLeader.incarnation, 0}, Refused{"go away"});
  f.Receive(kLeader, Refused{"an earlier life"}, {kUnknownNode, Incarnation(32), 0});
  CHECK_FALSE(f.join.has_answer());
  f.Receive(kLeader, Refused{"full"});
  REQUIRE(f.join.refused());
  CHECK(f.join.refused()->reason == "full");
}

}  // namespace
}  // namespace pando
