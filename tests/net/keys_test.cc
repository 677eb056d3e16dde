#include "net/zmq/keys.h"

#include <atomic>
#include <filesystem>
#include <map>
#include <set>

#include "common/float_buffer.h"
#include "tests/contains.h"
#include "tests/net/net_fixture.h"
#include "tests/net/raw_peers.h"
#include "tests/net/run_keys.h"

namespace pando {
namespace {

// ---- tokens -------------------------------------------------------------------------------------

TEST_CASE("both ends of a connection compute one token, and no other connection has it") {
  const KeyPair a = DrawKeyPair();
  const KeyPair b = DrawKeyPair();
  const KeyPair c = DrawKeyPair();
  const std::string token = LineToken(a, b.public_key, "text");
  CHECK(token.size() == 16);
  CHECK(LineToken(b, a.public_key, "text") == token);
  CHECK(AreEqualSecrets(token, LineToken(a, b.public_key, "text")));
  for (const std::string& other :
       {LineToken(a, b.public_key, "texts"), LineToken(a, c.public_key, "text"),
        LineToken(c, b.public_key, "text"),
        LineToken({b.public_key, c.secret_key}, a.public_key, "text")}) {
    CHECK(other.size() == 16);
    CHECK(!AreEqualSecrets(token, other));
  }
}

TEST_CASE("the pair that signs views follows from the admin's secret, and from no other key") {
  RunKeys keys, others;
  const KeyPair pair = ViewKeyPair(keys.Scheduler());
  CHECK(IsPublicKey(pair.public_key));
  CHECK(ViewKeyPair(keys.Admin()).public_key == pair.public_key);
  CHECK(ViewKeyPair(keys.Scheduler()).secret_key == pair.secret_key);
  CHECK(ViewKeyPair(others.Scheduler()).public_key != pair.public_key);
  for (const Keys& weak : {keys.Member(), keys.Reader(), Keys()})
    CHECK(ViewKeyPair(weak).public_key.empty());
}

TEST_CASE("a signature is of one text and one pair") {
  RunKeys keys, others;
  const KeyPair pair = ViewKeyPair(keys.Scheduler());
  const KeyPair other = ViewKeyPair(others.Scheduler());
  const std::string text = std::string("view\0", 5) + std::string(100000, 'v');
  const std::string signature = SignText(pair, text);
  CHECK(signature.size() == 80);
  CHECK(SignText(pair, text) == signature);
  CHECK(IsSignature(pair.public_key, text, signature));
  CHECK_FALSE(IsSignature(pair.public_key, text + "v", signature));
  CHECK_FALSE(IsSignature(pair.public_key, "", signature));
  CHECK_FALSE(IsSignature(pair.public_key, text, SignText(other, text)));
  CHECK_FALSE(IsSignature(other.public_key, text, signature));
  for (const std::string& none : {std::string(), std::string("x"), std::string(80, '\0'),
                                  std::string(80, '0'), std::string(80, '~'), signature + "0"}) {
    CHECK_FALSE(IsSignature(pair.public_key, text, none));
    CHECK_FALSE(IsSignature(none.substr(0, 40), text, signature));
  }
  for (size_t i = 0; i < signature.size(); ++i) {
    std::string changed = signature;
    changed[i] = changed[i] == '0' ? '1' : '0';
    CHECK_FALSE(IsSignature(pair.public_key, text, changed));
  }
}

TEST_CASE("there is no token for what is no key") {
  const KeyPair own = DrawKeyPair();
  const std::string low_order(40, '0');  // the point 0: the shared secret would be known to all
  for (const std::string& none : {std::string(), own.public_key.substr(1), own.public_key + "0",
                                  std::string(40, '"'), std::string(40, '#'), low_order}) {
    CAPTURE(none);
    CHECK(LineToken(own, none, "text").empty());
  }
  CHECK(LineToken({own.public_key, ""}, DrawKeyPair().public_key, "text").empty());
  CHECK(!AreEqualSecrets("", LineToken(own, DrawKeyPair().public_key, "text")));
  CHECK(IsPublicKey(own.public_key));
  CHECK(!IsPublicKey(std::string(40, '"')));
  CHECK(!IsPublicKey(own.public_key.substr(0, 35) + std::string(5, '\0')));
}

TEST_CASE("the members' password is each lane's own, and takes the members' secret") {
  RunKeys run;
  const std::string lane = DrawKeyPair().public_key;
  const std::string password = MemberPassword(run.Member(), lane);
  CHECK(password == MemberPassword(run.Member(), lane));
  CHECK(password.size() == 32);
  CHECK(password != MemberPassword(run.Member(), DrawKeyPair().public_key));
  CHECK(password != MemberPassword(run.Intruder(), lane));
  CHECK(MemberPassword(run.Reader(), lane).empty());
}

// ---- the scheduler ------------------------------------------------------------------------------

const PeerId kItsScheduler{kSchedulerNode, Incarnation(), 0};

// A process with these keys, and its transport.
struct KeyParty {
  KeyParty(Keys keys, const PeerId& peer, Transport::Options options = {.linger_ms = 0})
      : context(std::move(keys), [this](const std::string&) { ++refused_count; }),
        self(peer),
        transport(context, peer, std::move(options)) {}
  std::string Bind(const std::string& endpoint = kAnyTcpPort) {
    const Result<std::string> bound = transport.Bind(endpoint);
    REQUIRE_MESSAGE(bound.ok(), bound.status().message());
    return *bound;
  }
  void Join(const std::string& endpoint) {
    const Status dialed = transport.Dial(kItsScheduler, endpoint);
    REQUIRE_MESSAGE(dialed.ok(), dialed.message());
  }
  std::string public_key() { return transport.guard().public_key(); }
  void Send(const PeerId& receiver, Message message) {
    transport.Send({.sender = self, .receiver = receiver, .message = std::move(message)});
  }
  void Register(const std::string& shown_key) {
    Send(kItsScheduler, pando::Register{.host = "here", .public_key = shown_key});
  }

  std::atomic<int> refused_count = 0;  // connections; ZAP's thread counts at most one per minute
  ZmqContext context;
  const PeerId self;
  Transport transport;
};

// A scheduler that listens. It is its messages' reader that tests.
struct KeyScheduler : KeyParty {
  explicit KeyScheduler(Keys keys, const std::string& endpoint = kAnyTcpPort)
      : KeyParty(std::move(keys), {kSchedulerNode, NewIncarnation(), 0}), bound(Bind(endpoint)) {}

  // The next message is of this party and type; it is answered, and the party gets the answer.
  template <class M>
  void MustHear(KeyParty& party) {
    const Envelope heard = MustReceive(transport);
    CHECK(heard.sender == party.self);
    CHECK(std::holds_alternative<M>(heard.message));
    const std::string text = std::to_string(transport.counters().received);
    Send(heard.sender, Refused{.reason = text});
    CHECK(std::get<Refused>(MustReceive(party.transport).message).reason == text);
  }
  // One more message than before is dropped as not permitted, and none is received.
  void MustDrop() {
    const auto received = transport.counters().received;
    const auto wanted = ++dropped_count;
    MustBecome(transport, [&] { return transport.counters().misattributed >= wanted; });
    CHECK(transport.counters().misattributed == wanted);
    CHECK(transport.counters().received == received);
  }

  const std::string bound;
  uint64_t dropped_count = 0;
};

PeerId NewStranger() { return {kUnknownNode, NewIncarnation(), 0}; }

TEST_CASE("a member registers with the key of its process life, and with no other") {
  RunKeys run;
  KeyScheduler scheduler(run.Scheduler());
  KeyParty member(run.Member(), NewStranger());
  KeyParty other(run.Member(), NewStranger());
  CHECK(member.public_key() != other.public_key());
  member.Join(scheduler.bound);
  for (const std::string& key : {other.public_key(), std::string(), std::string(40, '0'),
                                 run.Member().Of(KeyRole::kMember).public_key}) {
    member.Register(key);
    scheduler.MustDrop();
  }
  member.Register(member.public_key());
  scheduler.MustHear<Register>(member);
  other.Join(scheduler.bound);
  other.Register(other.public_key());
  scheduler.MustHear<Register>(other);
}

TEST_CASE("the scheduler believes of each key what its role may say") {
  RunKeys run;
  KeyScheduler scheduler(run.Scheduler());
  KeyParty reader(run.Reader(), NewStranger());
  KeyParty member(run.Member(), NewStranger());
  KeyParty admin(run.Admin(), NewStranger());
  for (KeyParty* party : {&reader, &member, &admin}) {
    party->Join(scheduler.bound);
    party->Send(kItsScheduler, StatusRequest{});
    scheduler.MustHear<StatusRequest>(*party);
  }
  for (KeyParty* party : {&member, &admin}) {
    party->Send(kItsScheduler, FaultNote{.number = 1, .action = "exit"});
    scheduler.MustHear<FaultNote>(*party);
    party->Register(party->public_key());
    scheduler.MustHear<Register>(*party);
  }
  reader.Send(kItsScheduler, FaultNote{.number = 1, .action = "exit"});
  scheduler.MustDrop();
  reader.Register(reader.public_key());
  scheduler.MustDrop();
  for (KeyParty* party : {&reader, &member}) {
    party->Send(kItsScheduler, Command{.kind = CommandKind::kStop});
    scheduler.MustDrop();
  }
  admin.Send(kItsScheduler, Command{.kind = CommandKind::kStop});
  scheduler.MustHear<Command>(admin);
}

TEST_CASE("a trusted process is believed on its own connection, and not on another member's") {
  RunKeys run;
  KeyScheduler scheduler(run.Scheduler());
  KeyParty member(run.Member(), NewPeer(1));
  KeyParty impostor(run.Member(), member.self);
  member.Join(scheduler.bound);
  member.Register(member.public_key());
  scheduler.MustHear<Register>(member);
  scheduler.transport.guard().Trust(member.self.incarnation, member.public_key());
  scheduler.transport.guard().Trust(member.self.incarnation, impostor.public_key());  // too late

  impostor.Join(scheduler.bound);
  impostor.Send(kItsScheduler, Bye{});
  scheduler.MustDrop();
  for (const std::string& key : {impostor.public_key(), member.public_key()}) {
    impostor.Register(key);
    scheduler.MustDrop();
  }
  member.Send(kItsScheduler, Bye{});
  scheduler.MustHear<Bye>(member);  // and the answer comes to it
}

// A message that does not decode, sent as this party would send one.
void SendNonsense(KeyParty& party, const std::string& endpoint) {
  const Result<Endpoint> parsed = ParseEndpoint(endpoint);
  REQUIRE(parsed.ok());
  const LineGuard& guard = party.transport.guard();
  const Result<LineSecurity> security = guard.SecurityToDial(*parsed, kItsScheduler, "");
  REQUIRE(security.ok());
  const std::string routing_id = RoutingId({.incarnation = party.self.incarnation}, kItsScheduler);
  Result<ZmqSocket> socket = ZmqSocket::Create(
      party.context,
      {.routing_id = guard.Sign(routing_id, *security), .linger_ms = 2000, .security = *security});
  REQUIRE(socket.ok());
  REQUIRE(socket->Connect(endpoint).ok());
  socket->Send("", {ToBlob(std::make_shared<FloatBuffer>(16))});
}

TEST_CASE("nonsense is reported of the process that certainly sent it") {
  RunKeys run;
  std::vector<Incarnation> reported;
  KeyParty scheduler(run.Scheduler(), {kSchedulerNode, NewIncarnation(), 0},
                     {.on_nonsense = [&](Incarnation peer, const std::string& what) {
                       CHECK(!what.empty());
                       reported.push_back(peer);
                     }});
  const std::string bound = scheduler.Bind();
  KeyParty member(run.Member(), NewPeer(1));
  KeyParty impostor(run.Member(), member.self);
  const Transport::Counters& counters = scheduler.transport.counters();
  SendNonsense(member, bound);
  MustBecome(scheduler.transport, [&] { return counters.undecodable == 1; });
  CHECK(reported.empty());  // nothing is known of it yet
  scheduler.transport.guard().Trust(member.self.incarnation, member.public_key());
  SendNonsense(impostor, bound);
  MustBecome(scheduler.transport, [&] { return counters.undecodable == 2; });
  CHECK(reported.empty());
  SendNonsense(member, bound);
  MustBecome(scheduler.transport, [&] { return counters.undecodable == 3; });
  CHECK(reported == std::vector{member.self.incarnation});
}

TEST_CASE("without one of the run's keys nothing gets through to its scheduler") {
  RunKeys run;
  RunKeys other_run;
  KeyScheduler scheduler(run.Scheduler());
  KeyParty keyless(Keys(), NewStranger());
  KeyParty foreign(other_run.Admin(), NewStranger());
  KeyParty intruder(run.Intruder(), NewStranger());
  for (KeyParty* stranger : {&keyless, &foreign, &intruder}) {
    stranger->Join(scheduler.bound);
    stranger->Send(kItsScheduler, StatusRequest{});
    stranger->Send(kItsScheduler, Command{.kind = CommandKind::kStop});
    stranger->Register(stranger->public_key());
  }
  MustBecome(scheduler.transport, [&] { return scheduler.refused_count == 1; });
  // One that speaks no CURVE is cut off.
  const RawTcp raw(scheduler.bound);
  RawFrame greeting(64, 0);
  greeting[0] = '\xff';
  greeting[9] = '\x7f';
  greeting[10] = 3;
  std::memcpy(&greeting[12], "NULL", 4);
  raw.Send(greeting);
  CHECK(raw.IsCutOff());
  for (int i = 0; i < 3; ++i) {
    KeyParty member(run.Member(), NewStranger());
    member.Join(scheduler.bound);
    member.Register(member.public_key());
    scheduler.MustHear<Register>(member);
  }
  CHECK(scheduler.transport.counters().received == 3);
  CHECK(scheduler.transport.counters().misattributed == 0);
  CHECK(scheduler.transport.counters().undecodable == 0);
  for (KeyParty* stranger : {&keyless, &foreign, &intruder})
    CHECK(stranger->transport.counters().received == 0);
}

TEST_CASE("the reason of silence says whether keys are missing, wrong or too many") {
  RunKeys run;
  const KeyScheduler with_keys(run.Scheduler());
  const KeyScheduler without((Keys()));
  CHECK(Contains(ReasonOfSilence(with_keys.bound),
                 "the scheduler there has keys: give --keys FOLDER"));
  CHECK(ReasonOfSilence(with_keys.bound, run.Member()).empty());  // something else keeps it silent
  CHECK(
      Contains(ReasonOfSilence(with_keys.bound, RunKeys().Member()), "does not accept these keys"));
  CHECK(Contains(ReasonOfSilence(without.bound, run.Member()), "the scheduler there has no keys"));
  CHECK(ReasonOfSilence(without.bound).empty());
}

TEST_CASE("with keys a scheduler may listen beyond this machine") {
  RunKeys run;
  const KeyScheduler scheduler(run.Scheduler(), "tcp://0.0.0.0:0");
  CHECK(scheduler.bound.starts_with("tcp://0.0.0.0:"));
}

TEST_CASE("Unix sockets take this user's processes, with and without keys") {
  RunKeys run;
  const ScratchFolder folder;
  KeyScheduler with_keys(run.Scheduler(), folder.Ipc("with"));
  KeyScheduler without(Keys(), folder.Ipc("without"));
  for (KeyScheduler* scheduler : {&with_keys, &without}) {
    KeyParty member(run.Member(), NewStranger());
    KeyParty keyless(Keys(), NewStranger());
    for (KeyParty* party : {&member, &keyless}) {
      party->Join(scheduler->bound);
      party->Register(party->public_key());
      scheduler->MustHear<Register>(*party);
    }
  }
}

// ---- lanes --------------------------------------------------------------------------------------

Message SmallPush() { return MakePush({}, {}, ToBlob(std::make_shared<FloatBuffer>(16))).message; }

// The worker's push arrives, and an answer comes back.
void CheckLine(KeyParty& lane, KeyParty& worker) {
  worker.Send(lane.self, SmallPush());
  const Envelope heard = MustReceive(lane.transport);
  CHECK(heard.sender == worker.self);
  CHECK(std::holds_alternative<Push>(heard.message));
  lane.Send(worker.self, PushReply{});
  CHECK(std::holds_alternative<PushReply>(MustReceive(worker.transport).message));
}

void MustDial(KeyParty& worker, const KeyParty& lane, const std::string& bound,
              const std::string& public_key) {
  const Status dialed = worker.transport.Dial(lane.self, bound, public_key);
  REQUIRE_MESSAGE(dialed.ok(), dialed.message());
}

TEST_CASE("a lane takes the members that know its key") {
  RunKeys run;
  KeyParty lane(run.Member(), NewPeer(1));
  const std::string bound = lane.Bind();
  KeyParty worker(run.Member(), NewPeer(2));
  const Status keyless_lane = worker.transport.Dial(lane.self, bound);
  CHECK(keyless_lane.code() == StatusCode::kInvalidArgument);
  CHECK(Contains(keyless_lane.message(), "has no key"));

  KeyParty astray(run.Member(), NewPeer(3));
  KeyParty lost(run.Member(), NewPeer(4));
  KeyParty reader(run.Reader(), NewPeer(5));
  MustDial(astray, lane, bound, DrawKeyPair().public_key);
  MustDial(lost, lane, bound, std::string(40, '0'));
  MustDial(reader, lane, bound, lane.public_key());
  for (KeyParty* party : {&astray, &lost, &reader}) party->Send(lane.self, SmallPush());
  MustBecome(lane.transport, [&] { return lane.refused_count == 1; });
  MustDial(worker, lane, bound, lane.public_key());
  CheckLine(lane, worker);
  CHECK(lane.transport.counters().received == 1);
  CHECK(lane.transport.counters().misattributed == 0);
}

TEST_CASE("a lane may speak first to a process whose key a view has") {
  RunKeys run;
  KeyParty lane(run.Member(), NewPeer(1));
  const std::string bound = lane.Bind();
  KeyParty worker(run.Member(), NewPeer(2));
  MustDial(worker, lane, bound, lane.public_key());
  lane.transport.guard().Trust(worker.self.incarnation, worker.public_key());
  MustBecome(worker.transport, [&] {
    if (worker.transport.counters().received == 0) lane.Send(worker.self, PushReply{});
    return worker.transport.counters().received > 0;
  });
}

TEST_CASE("in clear text a lane takes members alone, and the scheduler's lines stay encrypted") {
  RunKeys run;
  RunKeys other_run;
  KeyScheduler scheduler(run.Scheduler());
  KeyParty lane(run.Member(), NewPeer(1));
  const std::string bound = lane.Bind();
  REQUIRE(lane.transport.SpeakInClear().ok());
  REQUIRE(lane.transport.SpeakInClear().ok());
  KeyParty keyless(Keys(), NewPeer(3));
  KeyParty encrypting(run.Member(), NewPeer(4));
  KeyParty foreign(other_run.Member(), NewPeer(5));
  REQUIRE(foreign.transport.SpeakInClear().ok());
  for (KeyParty* party : {&keyless, &encrypting, &foreign}) {
    MustDial(*party, lane, bound, lane.public_key());
    party->Send(lane.self, SmallPush());
  }
  MustBecome(lane.transport, [&] { return lane.refused_count == 1; });

  KeyParty worker(run.Member(), NewPeer(2));
  REQUIRE(worker.transport.SpeakInClear().ok());
  MustDial(worker, lane, bound, lane.public_key());
  CheckLine(lane, worker);
  lane.transport.guard().Trust(worker.self.incarnation, worker.public_key());
  CheckLine(lane, worker);
  worker.Join(scheduler.bound);
  worker.Register(worker.public_key());
  scheduler.MustHear<Register>(worker);

  // Its token proves the process here too.
  KeyParty impostor(run.Member(), worker.self);
  REQUIRE(impostor.transport.SpeakInClear().ok());
  MustDial(impostor, lane, bound, lane.public_key());
  impostor.Send(lane.self, SmallPush());
  MustBecome(lane.transport, [&] { return lane.transport.counters().misattributed == 1; });
  CHECK(lane.transport.counters().received == 2);
}

}  // namespace
}  // namespace pando
