// How a process learns that it cannot join a run, or not with this incarnation.
#include "node/node_join.h"

#include <doctest/doctest.h>

#include <future>

#include "tests/net/net_fixture.h"

namespace pando {
namespace {

constexpr uint32_t kTimeoutMs = 20'000;

// Answers the first Register with `refused`; returns what the process makes of it.
Result<JoinOutcome> JoinRefusedWith(const Refused& refused) {
  ZmqContext context;
  const PeerId scheduler{kSchedulerNode, NewIncarnation(), 0};
  Transport transport(context, scheduler, {});
  const std::string endpoint = MustBind(transport, kAnyTcpPort);
  ShutdownSignal shutdown;
  auto joining = std::async(std::launch::async, [&] {
    const PeerId self{kUnknownNode, NewIncarnation(), 0};
    Transport line(context, self, {});
    REQUIRE(line.Dial({kSchedulerNode, {}, 0}, endpoint).ok());
    return JoinRun(line, self.incarnation, {.role = Role::kWorker, .host = "here"}, endpoint,
                   kTimeoutMs, shutdown);
  });
  const Envelope heard = MustReceive(transport);
  CHECK(std::holds_alternative<Register>(heard.message));
  transport.Send({.sender = scheduler, .receiver = heard.sender, .message = refused});
  return joining.get();
}

// Its welcome was lost in a partition, say, that outlasted its lease.
TEST_CASE("a process that is given up before it knows that it is a member may join again") {
  const Result<JoinOutcome> outcome = JoinRefusedWith({"given up", RefusalKind::kGivenUp});
  REQUIRE(outcome.ok());
  CHECK(std::get<MembershipEnd>(*outcome) == MembershipEnd::kGivenUp);
}

TEST_CASE(
    "a process that joins after the end leaves without an error, one that does not fit with one") {
  const Result<JoinOutcome> late = JoinRefusedWith({"it is over", RefusalKind::kRunIsOver});
  REQUIRE(late.ok());
  CHECK(std::get<MembershipEnd>(*late) == MembershipEnd::kStopped);
  const Result<JoinOutcome> other = JoinRefusedWith({"no lanes", RefusalKind::kNotThisOne});
  CHECK(other.status().code() == StatusCode::kInvalidArgument);
  CHECK(other.status().message() == "the scheduler refused: no lanes");
}

}  // namespace
}  // namespace pando
