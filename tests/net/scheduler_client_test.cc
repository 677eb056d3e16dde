#include "net/scheduler_client.h"

#include "tests/net/net_fixture.h"

namespace pando {
namespace {

// A scheduler that the test speaks for.
struct FakeScheduler {
  FakeScheduler(ZmqContext& context, const std::string& endpoint)
      : self{kSchedulerNode, NewIncarnation(), 0}, transport(context, self, {}) {
    bound = MustBind(transport, endpoint);
  }
  void Answer(const PeerId& client, Message message) {
    transport.Send({.sender = self, .receiver = client, .message = std::move(message)});
  }

  PeerId self;
  Transport transport;
  std::string bound;
};

Message MustPoll(SchedulerClient& client) {
  const Micros deadline = SteadyNow() + kEventDeadline;
  while (true) {
    if (std::optional<Message> answer = client.Poll()) return *std::move(answer);
    REQUIRE(SteadyNow() < deadline);
    client.Wait(deadline);
  }
}

FaultNote MakeNote(uint64_t number) { return {.number = number, .action = "exit"}; }

TEST_CASE("a request is repeated until it is answered, and its late answers are dropped") {
  ZmqContext context;
  FakeScheduler scheduler(context, kAnyTcpPort);
  SchedulerClient client(context, {.repeat_interval = std::chrono::milliseconds(1)});
  REQUIRE(client.Dial(scheduler.bound).ok());
  CHECK(client.NextDeadline() == kNever);
  REQUIRE(client.Ask(MakeNote(1)));
  REQUIRE(client.Ask(MakeNote(2)));
  PeerId self;
  std::map<uint64_t, int> times_heard;
  while (times_heard[1] < 3 || times_heard[2] < 3) {
    Envelope envelope;
    scheduler.transport.Wait(SteadyNow());
    if (scheduler.transport.Receive(&envelope)) {
      ++times_heard[std::get<FaultNote>(envelope.message).number];
      self = envelope.sender;
    }
    client.Wait(client.NextDeadline());
    CHECK(!client.Poll());
  }
  for (const uint64_t number : {2, 2, 3}) scheduler.Answer(self, FaultNoteAck{number});
  scheduler.Answer(self, FaultNoteAck{1});
  CHECK(std::get<FaultNoteAck>(MustPoll(client)).number == 2);
  CHECK(client.open_count() == 1);
  CHECK(std::get<FaultNoteAck>(MustPoll(client)).number == 1);
  CHECK(client.open_count() == 0);
}

TEST_CASE("a command is open until it is done or refused") {
  ZmqContext context;
  FakeScheduler scheduler(context, kAnyTcpPort);
  SchedulerClient client(context, {});
  REQUIRE(client.Dial(scheduler.bound).ok());
  REQUIRE(client.Ask(Command{CommandKind::kDrain, "worker 1"}));
  const Envelope heard = MustReceive(scheduler.transport);
  CHECK(std::get<Command>(heard.message).target == "worker 1");
  scheduler.Answer(heard.sender, CommandReply{CommandOutcome::kAccepted, ""});
  CHECK(std::get<CommandReply>(MustPoll(client)).outcome == CommandOutcome::kAccepted);
  CHECK(client.open_count() == 1);
  scheduler.Answer(heard.sender, CommandReply{CommandOutcome::kRefused, "no such worker"});
  CHECK(std::get<CommandReply>(MustPoll(client)).text == "no such worker");
  CHECK(client.open_count() == 0);
}

TEST_CASE("a scheduler started again at the endpoint gets what the first one left unanswered") {
  const ScratchFolder folder;
  ZmqContext context;
  SchedulerClient client(context, {});
  REQUIRE(client.Dial(folder.Ipc("scheduler")).ok());  // before the scheduler exists
  REQUIRE(client.Ask(MakeNote(7)));
  {
    FakeScheduler first(context, folder.Ipc("scheduler"));
    MustReceive(first.transport);
  }
  FakeScheduler second(context, folder.Ipc("scheduler"));
  Envelope heard;
  while (!second.transport.Receive(&heard)) {
    client.Wait(client.NextDeadline());
    CHECK(!client.Poll());
    second.transport.Wait(SteadyNow());
  }
  CHECK(std::get<FaultNote>(heard.message).number == 7);
  second.Answer(heard.sender, FaultNoteAck{7});
  CHECK(std::get<FaultNoteAck>(MustPoll(client)).number == 7);
}

TEST_CASE("open requests are bounded") {
  ZmqContext context;
  SchedulerClient client(context, {});
  for (uint64_t i = 0; i < SchedulerClient::kOpenRequestsMax; ++i) REQUIRE(client.Ask(MakeNote(i)));
  CHECK(!client.Ask(MakeNote(SchedulerClient::kOpenRequestsMax)));
  CHECK(client.Ask(MakeNote(0)));
}

}  // namespace
}  // namespace pando
