// How a process learns that it cannot join a run, or not with this incarnation.
#include "node/node_join.h"

#include <doctest/doctest.h>

#include <csignal>
#include <fstream>
#include <future>
#include <thread>

#include "common/hash.h"
#include "job/job_file.h"
#include "node/node_watch.h"
#include "run/run_folder.h"
#include "tests/deadline.h"
#include "tests/net/net_fixture.h"
#include "tests/temp_folder.h"

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
    Transport line(context, {kUnknownNode, {}, 0}, {});
    JoiningProcess process{.transports = {&line},
                           .registration = {.role = Role::kWorker, .host = "here"},
                           .scheduler_endpoint = endpoint,
                           .timeout_ms = kTimeoutMs,
                           .shutdown = shutdown};
    return JoinRun(process);
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

Job JobIn(const std::string& run_dir) {
  Job job;
  job.run_dir = run_dir;
  job.scheduler_timeout_ms = 86'400'000;
  return job;
}

// A member of a run whose scheduler answered at time 0 for the last time.
struct LonelyMember {
  TempFolder temp;
  Job job = JobIn(temp.path() + "/run");
  RunFolder folder = *RunFolder::Create(job, false);
  ZmqContext context;
  Membership membership{{.job_toml = WriteJobText(job), .snapshot_dir = folder.SnapshotsPath()},
                        {NodeId(2), NewIncarnation(), 0},
                        {kSchedulerNode, NewIncarnation(), 0},
                        JobId(7),
                        job,
                        "tcp://127.0.0.1:1"};
  HeartbeatSender heartbeat{context, HeartbeatOptions(membership), {}};
  ShutdownSignal shutdown;
  int leave_count = 0;
  NodeWatch watch{shutdown, heartbeat, membership, [this](Micros) { ++leave_count; }};
  LocalEvents source = watch.Source();
};

TEST_CASE("a process that is asked to leave does not wait for a scheduler that is gone") {
  using namespace std::chrono_literals;
  LonelyMember member;
  member.source.handle(3s);
  CHECK_FALSE(member.watch.verdict());  // without it, the process goes on
  raise(SIGTERM);
  member.source.handle(3s);
  CHECK(member.leave_count == 1);
  CHECK_FALSE(member.watch.verdict());
  member.source.handle(6900ms);
  CHECK_FALSE(member.watch.verdict());
  member.source.handle(7100ms);
  REQUIRE(member.watch.verdict());
  CHECK(member.watch.verdict()->status().code() == StatusCode::kInterrupted);
}

TEST_CASE("a process that missed the end of its run finds it in the run's folder") {
  using namespace std::chrono_literals;
  LonelyMember member;
  Micros now = 10s;
  // A thread reads the folder: more looks than one.
  const auto look = [&](int count) {
    for (int i = 0; i < count && !member.watch.verdict(); ++i) {
      member.source.handle(now += 1s);
      std::this_thread::yield();
    }
  };
  look(20);
  CHECK_FALSE(member.watch.verdict());
  Summary summary = MakeSummary(member.job);
  summary.run_id = HexText(8);  // another run's
  REQUIRE(member.folder.WriteSummary(summary).ok());
  look(20);
  CHECK_FALSE(member.watch.verdict());
  summary.run_id = HexText(member.membership.job_id.value());
  REQUIRE(member.folder.WriteSummary(summary).ok());
  const auto deadline = std::chrono::steady_clock::now() + kEventDeadline;
  while (!member.watch.verdict() && std::chrono::steady_clock::now() < deadline) look(1);
  REQUIRE(member.watch.verdict());
  REQUIRE(member.watch.verdict()->ok());
  CHECK(**member.watch.verdict() == MembershipEnd::kFailed);  // as the summary says
  REQUIRE(member.watch.stop().has_value());
  CHECK(member.watch.stop()->reason == StopReason::kFailed);
}

TEST_CASE("a server refuses to serve where it cannot reach the run's folder") {
  LonelyMember member;
  CHECK(CheckRunFolder(member.membership).ok());
  member.membership.snapshot_dir = member.temp.path() + "/elsewhere/snapshots";
  const Status status = CheckRunFolder(member.membership);
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(status.message().find("/elsewhere/job.toml: No such file") != std::string::npos);
}

}  // namespace
}  // namespace pando
