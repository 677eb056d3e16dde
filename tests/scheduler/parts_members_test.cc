// The parts that know the run's processes, each alone: RunMembers, Silences, Failures, Commands.
#include <doctest/doctest.h>

#include "common/endpoint.h"
#include "tests/scheduler/parts_fixture.h"

namespace pando {
namespace {

// ---- RunMembers ---------------------------------------------------------------------------------

TEST_CASE("the view names racks if they sum: always, or where many hosts have workers (P6a)") {
  PartsFixture f;
  const auto add = [&f](uint64_t who) {
    f.parts.membership.OnRegister(f.now, {kUnknownNode, Incarnation(who), 0},
                                  {.host = "h" + std::to_string(who),
                                   .process_id = static_cast<uint32_t>(who),
                                   .lane_endpoints = {"tcp://10.0.0.1:1"},
                                   .rack = "a"});
    const PeerId peer = f.parts.members.Find(Incarnation(who))->peer;
    f.parts.membership.OnReady(f.now, peer, {.data_fingerprint = f.plan.data.fingerprint});
  };
  const auto rack = [&f](SumUse use, const View& last = {}) {
    return f.parts.members.NodeInfos(use, last).front().rack;
  };
  for (uint64_t who = 1; who <= kHostsWithoutRackSums; ++who) add(1000 + who);
  CHECK(rack(SumUse::kAuto).empty());
  CHECK(rack(SumUse::kAlways) == "a");
  CHECK(rack(SumUse::kAuto, {.nodes = {{.rack = "a"}}}) == "a");  // it stays
  add(1);
  CHECK(rack(SumUse::kAuto) == "a");
  CHECK(rack(SumUse::kOff).empty());
}

TEST_CASE("replicas are apart by racks where there are several, else by machines, else by hosts") {
  PartsFixture f;
  const auto add = [&f](uint64_t who, const std::string& machine, const std::string& rack) {
    f.parts.membership.OnRegister(f.now, {kUnknownNode, Incarnation(who), 0},
                                  {.role = Role::kServer,
                                   .host = "h",
                                   .process_id = static_cast<uint32_t>(who),
                                   .lane_endpoints = {"tcp://10.0.0.1:1"},
                                   .machine = machine,
                                   .rack = rack});
    const PeerId peer = f.parts.members.Find(Incarnation(who))->peer;
    f.parts.membership.OnReady(f.now, peer, {.data_fingerprint = f.plan.data.fingerprint});
    return peer;
  };
  const auto domains = [&f] {
    std::vector<std::string> names;
    for (const PlacementServer& server : f.parts.members.Servers({}))
      names.push_back(server.domain);
    return names;
  };
  add(10, "", "");
  CHECK(domains() == std::vector<std::string>{"h"});
  add(11, "one", "");
  CHECK(domains() == std::vector<std::string>{"machine h", "machine one"});
  const PeerId in_rack = add(12, "two", "a");
  add(13, "three", "a");
  CHECK(domains() == std::vector<std::string>{"machine h", "machine one", "rack a", "rack a"});
  for (const uint64_t who : {10, 11})
    f.parts.membership.OnDeath(f.now, f.parts.members.Find(Incarnation(who))->peer.node, "",
                               "lease");
  CHECK(domains() == std::vector<std::string>{"two", "three"});
  f.parts.membership.OnDeath(f.now, in_rack.node, "silence", "lease");
  CHECK(domains() == std::vector<std::string>{"three"});
}

TEST_CASE("a new incarnation of a process is the death of its old one (P19)") {
  PartsFixture f;
  const PeerId old = f.Add(20, Role::kWorker);
  f.parts.membership.OnRegister(f.now, {kUnknownNode, Incarnation(30), 0},
                                {.role = Role::kWorker, .host = "h", .process_id = 120});
  CHECK(f.forgotten == std::vector<std::string>{"worker 0"});
  CHECK(f.recorder.HasEvent("dead"));
  const Member* member = f.parts.members.Find(Incarnation(30));
  REQUIRE(member != nullptr);
  CHECK(member->peer.node != old.node);
  CHECK(member->rank == 0);
  CHECK(f.parts.views.due_at() == f.now);
}

TEST_CASE("a process whose lease expired is refused, and never welcomed again") {
  PartsFixture f;
  const PeerId worker = f.Add(20, Role::kWorker);
  f.parts.membership.OnDeath(f.now, worker.node, "silence", "lease");
  CHECK(f.parts.membership.OnHeard(f.now, {.sender = worker, .message = Heartbeat{}}) == nullptr);
  f.parts.membership.OnRegister(f.now, worker, {.role = Role::kWorker, .host = "h"});
  const auto refusals = f.SentTo<Refused>(worker);
  REQUIRE(refusals.size() == 2);
  CHECK(refusals[0].kind == RefusalKind::kGivenUp);
  CHECK(refusals[1].kind == RefusalKind::kGivenUp);
}

TEST_CASE("a member's first heartbeat and each fourth after it are acknowledged") {
  PartsFixture f;
  const PeerId worker = f.Add(20, Role::kWorker);
  std::vector<size_t> ack_counts;  // of each heartbeat
  for (int i = 0; i < 9; ++i) {
    f.parts.membership.OnHeartbeat(worker, {});
    ack_counts.push_back(f.SentTo<HeartbeatAck>(worker).size());
  }
  CHECK(ack_counts == std::vector<size_t>{1, 0, 0, 0, 1, 0, 0, 0, 1});
}

// With keys, a scheduler that does not have a process's key cannot reach its other connections.
TEST_CASE("a heartbeat of a process that is not a member any more is answered") {
  PartsFixture f;
  const PeerId stranger{NodeId(9), Incarnation(99), 0};
  const PeerId newcomer{kUnknownNode, Incarnation(98), 0};
  const auto is_member = [&](const PeerId& peer) {
    return f.parts.membership.OnHeard(f.now, {.sender = peer, .message = Heartbeat{}}) != nullptr;
  };
  CHECK_FALSE(is_member(stranger));
  CHECK(f.SentTo<Refused>(stranger).back().kind == RefusalKind::kGivenUp);
  CHECK_FALSE(is_member(stranger));
  CHECK(f.SentTo<HeartbeatAck>(stranger).back().is_given_up);
  CHECK_FALSE(is_member(newcomer));
  CHECK(f.SentTo<HeartbeatAck>(newcomer).empty());
}

TEST_CASE("an acknowledgement of a heartbeat names all schedulers") {
  PartsFixture f;
  const PeerId worker = f.Add(20, Role::kWorker);
  const std::vector<SchedulerPlace> places{{"tcp://a:1", "leads"}, {"tcp://b:1", "may lead"}};
  f.parts.options.schedulers = &places;
  f.parts.membership.OnHeartbeat(worker, {});
  const std::vector<std::string> endpoints{"tcp://a:1", "tcp://b:1"};
  CHECK(f.SentTo<HeartbeatAck>(worker).back().schedulers == endpoints);
  // One that does not have the list is answered at once.
  f.parts.membership.OnHeartbeat(worker, {});
  CHECK(f.SentTo<HeartbeatAck>(worker).size() == 1);
  f.parts.membership.OnHeartbeat(worker, {.schedulers_hash = HashEndpoints(endpoints)});
  CHECK(f.SentTo<HeartbeatAck>(worker).empty());
}

TEST_CASE("a member that sends what is no message is given up, with what it sent") {
  PartsFixture f;
  const PeerId worker = f.Add(20, Role::kWorker);
  f.parts.membership.OnDisconnect(f.now, Incarnation(99), "a stranger's words");
  f.parts.membership.OnDisconnect(f.now, worker.incarnation, "");
  CHECK(f.forgotten.empty());
  f.parts.membership.OnDisconnect(f.now, worker.incarnation, "a message without frames");
  CHECK(f.forgotten == std::vector<std::string>{"worker 0"});
  CHECK(f.parts.membership.OnHeard(f.now, {.sender = worker, .message = Heartbeat{}}) == nullptr);
}

TEST_CASE("the members of an earlier life are known, and not all heard until each reports") {
  PartsFixture f;
  const PeerId worker{NodeId(4), Incarnation(20), 0};
  SchedulerState state{.next_node = 5};
  state.members.push_back({.peer = worker, .registration = {.host = "h"}, .is_ready = true});
  Members members;
  RunMembers membership({.state = state}, f.parts.shared, f.parts.faults, f.parts.progress, members,
                        f);
  CHECK(membership.Begin(f.now));
  CHECK_FALSE(membership.Begin(f.now));
  CHECK_FALSE(membership.HasHeardAll());
  CHECK(membership.OnHeard(f.now, {.sender = worker, .message = Heartbeat{}}) != nullptr);
  CHECK(membership.HasHeardAll());
  CHECK(membership.next_node() == 5);
}

TEST_CASE(
    "only a member that is asked to leave is removed by its Bye, once all its lanes said it") {
  PartsFixture f;
  const PeerId worker = f.Add(20, Role::kWorker);
  f.parts.membership.OnBye(worker);
  CHECK(f.forgotten.empty());
  f.parts.membership.MarkLeaving(worker.node);
  CHECK(f.parts.membership.RepeatDrained(*f.parts.members.Find(worker.node), worker));
  f.parts.membership.OnBye(worker);
  CHECK(f.forgotten.size() == 1);
  CHECK(f.SentTo<Stop>(worker).size() == 1);
}

// ---- Silences ----------------------------------------------------------------------------------

TEST_CASE("the first worker that does not hear a server goes, with the second the server goes") {
  PartsFixture f;
  f.StartTraining();
  const PeerId second = f.parts.members.Find(Incarnation(21))->peer;
  View view = f.parts.views.view();
  view.owners[0].worker = second.node;
  f.parts.views.Publish(view);
  f.parts.silences.OnPeerSilent(f.now, f.worker, {f.server, 2000});
  CHECK(f.forgotten == std::vector<std::string>{"worker 0"});
  f.parts.silences.OnPeerSilent(f.now, second, {f.server, 2000});
  CHECK(f.forgotten == std::vector<std::string>{"worker 0", "server 0"});
}

TEST_CASE("a backup that its primary does not hear loses the shards and is avoided for a while") {
  PartsFixture f;
  f.StartTraining();
  const PeerId backup = f.parts.members.Find(Incarnation(11))->peer;
  View view = f.parts.views.view();
  view.shards[0].in_sync_backups = {backup};
  f.parts.views.Publish(view);
  f.parts.silences.OnPeerSilent(f.now, f.server, {backup, 2000});
  CHECK(f.forgotten.empty());
  CHECK(f.parts.silences.Avoided(f.now) == std::set{backup.node});
  f.parts.silences.ApplyTo(view);
  CHECK(view.shards[0].in_sync_backups.empty());
  f.parts.views.DropRequest();
  f.parts.silences.RequestViews(f.now);
  CHECK(f.parts.views.due_at() == f.now + std::chrono::seconds(5));
  CHECK(f.parts.silences.Avoided(f.parts.views.due_at()).empty());
}

TEST_CASE("a server that listens for its own machine is not joined with members of another") {
  PartsFixture f;
  const auto register_as = [&](uint64_t who, Role role, const char* host, const char* endpoint) {
    const PeerId from{kUnknownNode, Incarnation(who), 0};
    Register registration{.role = role, .host = host, .process_id = static_cast<uint32_t>(who)};
    if (role == Role::kServer) registration.lane_endpoints = {endpoint};
    f.parts.membership.OnRegister(f.now, from, registration);
    const auto refused = f.SentTo<Refused>(from);
    return refused.empty() ? std::string() : refused[0].reason;
  };
  CHECK(register_as(10, Role::kServer, "left", "tcp://127.0.0.1:4000").empty());
  CHECK(register_as(20, Role::kWorker, "left", "").empty());
  CHECK(register_as(21, Role::kWorker, "right", "") ==
        "the server on left listens on tcp://127.0.0.1:4000, which right cannot reach; start it "
        "with --keys or --insecure and without --bind, or with an address that both can reach");
  CHECK(register_as(11, Role::kServer, "right", "ipc:///tmp/x").starts_with("the server on right"));
}

// ---- Failures ----------------------------------------------------------------------------------

struct FailureFixture : PartsFixture {
  FailureFixture() { StartTraining(); }
  void Fail(const PeerId& member, FailureKind kind) {
    parts.failures.OnFailure(now, {.sender = member}, {"boom", kind});
  }
};

TEST_CASE("a failure of one machine gives the member up; if it follows the work, the run ends") {
  FailureFixture f;
  const PeerId left = f.Add(22, Role::kWorker, "left");
  const PeerId right = f.Add(23, Role::kWorker, "right");
  f.Fail(left, FailureKind::kMachine);
  CHECK(f.forgotten == std::vector<std::string>{"worker 2"});
  CHECK(f.parts.phase.is_running());
  SUBCASE("before a step is made") {
    f.Fail(right, FailureKind::kMachine);
    CHECK(f.parts.phase.is_ending());
  }
  SUBCASE("after a step is made") {
    f.Commit(1);
    f.Fail(right, FailureKind::kMachine);
    CHECK(f.parts.phase.is_running());
  }
}

TEST_CASE("a failure of training ends the run when another process repeats it") {
  FailureFixture f;
  const PeerId second = f.parts.members.Find(Incarnation(21))->peer;
  f.Fail(f.worker, FailureKind::kTraining);
  REQUIRE(f.parts.phase.is_running());
  SUBCASE("at the same step") { f.Fail(second, FailureKind::kTraining); }
  SUBCASE("at a later step, when there is no other process") {
    f.Commit(1);
    f.Fail(second, FailureKind::kTraining);
  }
  f.now += LastSnapshot::kPatience;
  f.parts.last_snapshot.Tick(f.now);
  CHECK(f.parts.phase.stop().text == "worker 1 on h: boom");
}

TEST_CASE("a failure of training ends the run when the process's supervisor saw it end") {
  FailureFixture f;
  const FaultNote note{.number = 1,
                       .action = "exit",
                       .host = "h",
                       .process_id = 120,
                       .exited_us = 1,
                       .text = "exit code 7",
                       .process_key = 5};
  f.parts.membership.OnRegister(
      f.now, {kUnknownNode, Incarnation(25), 0},
      {.role = Role::kWorker, .host = "h", .process_id = 120, .process_key = 5});
  const PeerId worker = f.parts.members.Find(Incarnation(25))->peer;
  f.parts.membership.OnReady(f.now, worker, {.data_fingerprint = f.plan.data.fingerprint});
  SUBCASE("with that failure") {
    f.Fail(worker, FailureKind::kTraining);
    REQUIRE(f.parts.phase.is_running());
    f.parts.failures.OnFaultNote(f.now, {kUnknownNode, Incarnation(900), 0}, note);
    CHECK(f.parts.phase.stop().text == "worker 2 on h: boom");
  }
  SUBCASE("with its machine's trouble, which costs the process alone") {
    f.Fail(worker, FailureKind::kMachine);
    f.parts.failures.OnFaultNote(f.now, {kUnknownNode, Incarnation(900), 0}, note);
    CHECK(f.parts.phase.is_running());
  }
}

TEST_CASE("a supervisor's note of an exit is a death, and is acknowledged") {
  FailureFixture f;
  const PeerId supervisor{kUnknownNode, Incarnation(900), 0};
  f.parts.failures.OnFaultNote(
      f.now, supervisor,
      {.number = 3, .action = "exit", .host = "h", .process_id = 120, .exited_us = 1});
  CHECK(f.forgotten == std::vector<std::string>{"worker 0"});
  CHECK(f.SentTo<FaultNoteAck>(supervisor).size() == 1);
  REQUIRE(f.parts.faults.records().size() == 1);
  CHECK(f.parts.faults.records()[0].detected_by == "exit");
}

// ---- Commands ----------------------------------------------------------------------------------

struct CommandFixture : PartsFixture {
  CommandFixture() { StartTraining(); }
  CommandReply Ask(uint64_t client, CommandKind kind, const std::string& target = "") {
    const PeerId from{kUnknownNode, Incarnation(client), 0};
    parts.commands.OnCommand(now, from, {kind, target});
    const auto replies = SentTo<CommandReply>(from);
    return replies.empty() ? CommandReply{} : replies.back();
  }
  void OnForget(const Member& member) override {
    PartsFixture::OnForget(member);
    parts.commands.Forget(member);
  }
};

TEST_CASE("a drained worker leaves when no view names it, and then the command is done") {
  CommandFixture f;
  CHECK(f.Ask(99, CommandKind::kDrain, "worker 0").outcome == CommandOutcome::kAccepted);
  const PeerId drained = f.worker;
  const Member& member = *f.parts.members.Find(drained.node);
  f.parts.commands.StopDrained(f.now);
  CHECK(member.is_draining);
  CHECK_FALSE(member.is_leaving);
  f.worker = f.parts.members.Find(Incarnation(21))->peer;
  f.PublishView();
  f.parts.commands.StopDrained(f.now);
  CHECK(member.is_leaving);
  f.parts.membership.Forget(drained.node);
  CHECK(f.Ask(99, CommandKind::kDrain, "worker 0").outcome == CommandOutcome::kDone);
}

TEST_CASE("the last server is not drained, nor is a member that is not there") {
  CommandFixture f;
  CHECK(f.Ask(97, CommandKind::kDrain, "worker 9").outcome == CommandOutcome::kRefused);
  CHECK(f.Ask(98, CommandKind::kDrain, "server-1").outcome == CommandOutcome::kAccepted);
  CHECK(f.Ask(99, CommandKind::kDrain, "server-0").outcome == CommandOutcome::kRefused);
}

TEST_CASE("a command to stop ends the run once, and later ones are refused") {
  CommandFixture f;
  CHECK(f.Ask(98, CommandKind::kStop).outcome == CommandOutcome::kDone);
  CHECK(f.parts.phase.stop().reason == StopReason::kInterrupted);
  CHECK(f.Ask(99, CommandKind::kSnapshot).outcome == CommandOutcome::kRefused);
}

TEST_CASE("a command for a snapshot is concluded when the version is given up often enough") {
  CommandFixture f;
  const CommandReply reply = f.Ask(99, CommandKind::kSnapshot);
  CHECK(reply.outcome == CommandOutcome::kAccepted);
  f.parts.snapshots.ledger().GiveUp(f.parts.requests.Ask(f.now));
  for (int attempt = 0; attempt < 6; ++attempt) f.parts.commands.ConcludeSnapshots(f.now);
  CHECK(f.Ask(99, CommandKind::kSnapshot).outcome == CommandOutcome::kRefused);
}

}  // namespace
}  // namespace pando
