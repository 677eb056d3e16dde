// Strangers at every port of a running job: random bytes, greetings that stop halfway, random
// frames, mutated messages, forgeries, replays and floods. Nothing crashes, training goes on, the
// weights are the serial run's, and memory stays bounded.
#include <doctest/doctest.h>

#include <cstdlib>
#include <optional>
#include <random>

#include "common/clock.h"
#include "common/exit_codes.h"
#include "common/system.h"
#include "net/transport.h"
#include "net/zmq/keys.h"
#include "tests/e2e/job_by_hand.h"
#include "tests/net/raw_peers.h"
#include "tests/proto/message_samples.h"

namespace pando {
namespace {

// The size of an attack, and the steps of the attacked run.
struct Attack {
  uint64_t steps;
  int garbage_connections;
  int random_messages;
  int mutations_of_each;
  int unread_requests;
  int registrations;
  size_t long_frames;             // at once, before a handshake
  int idle_connections;           // where the run has keys
  std::chrono::seconds lasts{0};  // the attack begins again until then
};
constexpr Attack kSmallAttack{.steps = 1200,
                              .garbage_connections = 8,
                              .random_messages = 100,
                              .mutations_of_each = 6,
                              .unread_requests = 20'000,
                              .registrations = 60,
                              .long_frames = 24,
                              .idle_connections = 100};
constexpr Attack kFullAttack{.steps = 2400,
                             .garbage_connections = 30,
                             .random_messages = 500,
                             .mutations_of_each = 40,
                             .unread_requests = 100'000,
                             .registrations = 300,
                             .long_frames = 200,
                             .idle_connections = 1000};
// The memory that the attack may cost a process: as much as one endpoint's queues can hold (a frame
// of 8 MiB, 150 registrations of 256 KiB), and the allocator's slack.
constexpr uint64_t kMemoryGrowthMax = 64 << 20;
// An attack that begins again meets what the scheduler still holds of the one before: strangers
// that have registered (32 a second, 256 KiB each) are given up after a lease of 5 s. Resident
// memory stayed at 73 MB for minutes, with peaks of 117 MB.
constexpr uint64_t kMemoryGrowthOverMinutesMax = 128 << 20;
// Without keys a stranger may finish its handshake, and then send frames of up to 62 MiB.
constexpr uint64_t kMemoryGrowthWithoutKeysMax = 256 << 20;
// Lanes read between pushes all that has come; this many steps are time for one attack, with a
// margin: peaks of 51 MB were seen beside three processes that spin.
constexpr size_t kStepsToDrain = 20;
// A run makes at most this number of steps beside an attack.
constexpr uint64_t kStepsPerAttackedSecond = 60;

// The key that the attacker has.
enum class Key : uint8_t {
  kNeedsNone,  // the run has no keys
  kNone,       // the run has
  kMember,     // a stolen one
};

// Under this routing id; what was sent before the end arrives.
RawDealer::Options As(const ZmqContext& context, std::string routing_id) {
  const std::string& server_key = context.keys().Of(KeyRole::kAdmin).public_key;
  return {.routing_id = std::move(routing_id), .linger_ms = 2000, .server_key = server_key};
}

// The id of a peer that dials the scheduler.
std::string RoutingIdFor(char channel, const PeerId& peer) {
  return RoutingId({static_cast<Channel>(channel), peer.incarnation, peer.lane},
                   {kSchedulerNode, Incarnation(), 0});
}

// A status request tells any client the run's id and the scheduler's incarnation.
Envelope AskStatus(ZmqContext& context, const std::string& endpoint) {
  const PeerId self{kUnknownNode, NewIncarnation(), 0};
  Transport transport(context, self, {.linger_ms = 0});
  REQUIRE(transport.Dial({kSchedulerNode, {}, 0}, endpoint).ok());
  transport.Send({.sender = self, .receiver = {kSchedulerNode, {}, 0}, .message = StatusRequest{}});
  const Micros deadline = SteadyNow() + kEventDeadline;
  Envelope report;
  while (!transport.Receive(&report)) {
    REQUIRE(SteadyNow() < deadline);
    transport.Wait(deadline);
  }
  return report;
}

void SendGarbage(const Attack& attack, const std::string& endpoint, std::mt19937_64& random) {
  for (int i = 0; i < attack.garbage_connections; ++i)
    RawTcp(endpoint).Send(RandomBytes(random, 1 + random() % 8192));
}

// The first bytes of a ZMTP 3.0 greeting; the connections are kept open.
std::vector<std::unique_ptr<RawTcp>> GreetHalfway(const std::string& endpoint) {
  RawFrame greeting(64, 0);
  greeting[0] = '\xff';
  greeting[8] = 1;
  greeting[9] = '\x7f';
  greeting[10] = 3;
  std::vector<std::unique_ptr<RawTcp>> open;
  for (const size_t size : {0, 1, 10, 11, 32, 63, 64}) {
    open.push_back(std::make_unique<RawTcp>(endpoint));
    open.back()->Send(RawFrame(greeting.begin(), greeting.begin() + static_cast<long>(size)));
  }
  return open;
}

void SendRandomFrames(const Attack& attack, const RawDealer& dealer, std::mt19937_64& random) {
  for (int i = 0; i < attack.random_messages; ++i) {
    RawMessage message(1 + random() % 5);
    for (RawFrame& frame : message) frame = RandomBytes(random, random() % 600);
    dealer.Send(message);
  }
  dealer.Send({RandomBytes(random, 8 << 20)});
}

// The message as it is, with the protocol's version raised, and with bits flipped.
void SendMutations(const Attack& attack, const RawDealer& dealer, const RawMessage& valid,
                   std::mt19937_64& random) {
  dealer.Send(valid);
  for (int i = 0; i < attack.mutations_of_each; ++i) {
    RawMessage mutated = valid;
    RawFrame& frame = mutated[random() % mutated.size()];
    if (frame.empty()) continue;
    for (int flips = 0; flips < 1 + i % 3; ++flips) {
      frame[random() % frame.size()] ^= static_cast<char>(1 << random() % 8);
    }
    dealer.Send(mutated);
  }
}

// Every kind of message under the run's id, from a stranger's own incarnation and from forged ones,
// on both channels.
void SendForgeries(const Attack& attack, ZmqContext& context, const std::string& endpoint,
                   const Envelope& report, std::mt19937_64& random) {
  const PeerId stranger{NodeId(1), NewIncarnation(), 0};
  for (const char channel : {'d', 'h'}) {
    const RawDealer dealer(context, endpoint, As(context, RoutingIdFor(channel, stranger)));
    const RawDealer as_scheduler(context, endpoint,
                                 As(context, RoutingIdFor(channel, report.sender)));
    for (Envelope forged : SampleEnvelopes()) {
      forged.job = report.job;
      forged.generation = report.generation;
      forged.view = report.view;
      forged.receiver = report.sender;
      forged.sender = stranger;
      SendMutations(attack, dealer, ToRaw(forged), random);
      forged.sender = report.sender;
      as_scheduler.Send(ToRaw(forged));
      forged.receiver = {NodeId(1), Incarnation(random()), 0};
      as_scheduler.Send(ToRaw(forged));
      forged.sender.incarnation = Incarnation(random());
      dealer.Send(ToRaw(forged));
    }
  }
}

// A peer that asks over and over, stays and never reads the answers, and one that registers under
// many names.
std::unique_ptr<RawDealer> Flood(const Attack& attack, ZmqContext& context,
                                 const std::string& endpoint, const Envelope& report) {
  const PeerId asker{kUnknownNode, NewIncarnation(), 0};
  auto dealer =
      std::make_unique<RawDealer>(context, endpoint, As(context, RoutingIdFor('d', asker)));
  const RawMessage question =
      ToRaw({.sender = asker, .receiver = report.sender, .message = StatusRequest{}});
  for (int i = 0; i < attack.unread_requests && dealer->Send(question); ++i) {
  }
  for (int i = 0; i < attack.registrations; ++i) {
    const PeerId many{kUnknownNode, NewIncarnation(), 0};
    const RawDealer newcomer(context, endpoint, As(context, RoutingIdFor('d', many)));
    const std::string name(1000, 'x');
    const Register server{.role = i % 2 == 0 ? Role::kServer : Role::kWorker,
                          .host = name,
                          .lane_endpoints = std::vector<std::string>(i % 2 == 0 ? 256 : 0, name)};
    newcomer.Send(ToRaw({.sender = many, .receiver = {kSchedulerNode, {}, 0}, .message = server}));
  }
  return dealer;
}

// Connections that send nothing.
std::vector<std::unique_ptr<RawTcp>> StayIdle(const Attack& attack, const std::string& endpoint) {
  std::vector<std::unique_ptr<RawTcp>> idle;
  for (int i = 0; i < attack.idle_connections; ++i)
    idle.push_back(std::make_unique<RawTcp>(endpoint));
  return idle;
}

// A keys folder for the processes that are started meanwhile.
class KeysInEnvironment {
 public:
  explicit KeysInEnvironment(const std::string& folder) : folder_(folder) {
    REQUIRE(MakeKeys(folder).ok());
    REQUIRE(setenv(kKeysVariable, folder.c_str(), 1) == 0);
  }
  ~KeysInEnvironment() { unsetenv(kKeysVariable); }
  KeysInEnvironment(const KeysInEnvironment&) = delete;
  // The keys that a thief of a member's machine has.
  Keys Stolen() const {
    Result<Keys> keys = ReadKeys(folder_, KeyRole::kMember);
    REQUIRE(keys.ok());
    keys->Of(KeyRole::kAdmin).secret_key.clear();
    return *std::move(keys);
  }

 private:
  std::string folder_;
};

// Living processes are asked: wait4's maximum counts this process's memory at their start, too.
void RaisePeaks(const std::vector<Process*>& bound, std::vector<uint64_t>* peaks) {
  peaks->resize(bound.size());
  for (size_t i = 0; i < bound.size(); ++i)
    (*peaks)[i] = std::max((*peaks)[i], PeakMemoryBytes(bound[i]->pid()));
}

void CheckMemory(const std::vector<uint64_t>& before, const std::vector<uint64_t>& peaks,
                 const Attack& attack, Key key) {
  uint64_t growth_max = attack.lasts.count() > 0 ? kMemoryGrowthOverMinutesMax : kMemoryGrowthMax;
  if (key == Key::kNeedsNone) growth_max = kMemoryGrowthWithoutKeysMax;
  for (size_t i = 0; i < before.size(); ++i) {
    MESSAGE("peak memory " << (before[i] >> 20) << " MB before, " << (peaks[i] >> 20)
                           << " MB after");
    CHECK(peaks[i] > 0);
    CHECK(peaks[i] <= before[i] + growth_max);
  }
}

// The attacked run ends as the undisturbed one. False if it ended before the attack did.
bool CheckUnderAttack(const Attack& attack, Key key) {
  // With this glibc touches all of a frame that is only announced.
  unsetenv("MALLOC_PERTURB_");
  TempFolder temp;
  Process serial(
      temp.path(), "serial",
      Args{"train", "--serial", "--run-dir", temp.path() + "/serial"} + LongJob(attack.steps));
  serial.Await(std::chrono::minutes(4) + attack.lasts);
  REQUIRE(serial.exit_code() == kExitCompleted);

  std::optional<KeysInEnvironment> keys;
  if (key != Key::kNeedsNone) keys.emplace(temp.path() + "/keys");
  JobByHand job(2, 2, LongJob(attack.steps, {"--set", "run.lease_ms=5000"}), {"--lanes", "2"});
  job.AwaitSteps(10);
  std::vector<std::string> endpoints = job.LaneEndpoints();
  REQUIRE(endpoints.size() == 4);
  endpoints.push_back(job.endpoint);
  std::vector<Process*> bound{job.scheduler.get(), job.servers[0].get(), job.servers[1].get()};
  std::vector<uint64_t> memory_before, memory_peaks;
  RaisePeaks(bound, &memory_before);

  ZmqContext context(key == Key::kMember ? keys->Stolen() : Keys());
  std::mt19937_64 random(1);
  const Envelope report = key == Key::kNone ? Envelope() : AskStatus(context, job.endpoint);
  std::vector<std::unique_ptr<RawTcp>> half_open;
  std::vector<std::unique_ptr<RawDealer>> unread;
  const auto start = TestClock::now();
  do {
    half_open.clear();
    unread.clear();
    for (const std::string& endpoint : endpoints) {
      if (!job.scheduler->is_running()) break;
      SendGarbage(attack, endpoint, random);
      SendLongFrames(endpoint, key == Key::kNeedsNone ? "NULL" : "CURVE", attack.long_frames);
      for (auto& connection : GreetHalfway(endpoint)) half_open.push_back(std::move(connection));
      if (key != Key::kNeedsNone)
        for (auto& connection : StayIdle(attack, endpoint))
          half_open.push_back(std::move(connection));
      // A lane lets in those that know its key, which views have.
      if (key == Key::kNeedsNone || (key == Key::kMember && endpoint == job.endpoint)) {
        SendRandomFrames(attack, RawDealer(context, endpoint, As(context, "")), random);
        SendForgeries(attack, context, endpoint, report, random);
        unread.push_back(Flood(attack, context, endpoint, report));
      }
      for (Process* process : bound)
        REQUIRE_MESSAGE((process->is_running() || !job.scheduler->is_running()), process->err());
      const size_t drained = RowCountIn(job.run_dir) + kStepsToDrain;
      REQUIRE(Becomes(
          [&] { return RowCountIn(job.run_dir) >= drained || !job.scheduler->is_running(); }));
      RaisePeaks(bound, &memory_peaks);
    }
  } while (job.scheduler->is_running() && TestClock::now() < start + attack.lasts);
  const size_t rows_at_end = RowCountIn(job.run_dir);
  MESSAGE("attacked for " << std::chrono::duration<double>(TestClock::now() - start).count()
                          << " s, until step " << rows_at_end);
  job.scheduler->Await(std::chrono::minutes(4) + attack.lasts);
  CHECK_MESSAGE(job.scheduler->exit_code() == kExitCompleted, job.scheduler->err());
  for (Process* node : job.Nodes()) {
    node->Await();
    CHECK(node->exit_code() == kExitCompleted);
  }
  CheckMemory(memory_before, memory_peaks, attack, key);
  CHECK(RowCountIn(job.run_dir) == attack.steps);
  // No process was reported silent: a stranger cannot close a connection.
  CHECK(!Contains(ReadBytes(job.run_dir + "/events.jsonl"), "silent"));
  CHECK(SummaryIn(job.run_dir).weights_hash == SummaryIn(temp.path() + "/serial").weights_hash);
  return rows_at_end < attack.steps;
}

// On a machine that slows the attack more than the run, the run is made longer.
void CheckWithin(Attack attack, Key key) {
  const uint64_t most_steps = 32 * attack.steps;
  while (!CheckUnderAttack(attack, key)) {
    attack.steps *= 2;
    REQUIRE_MESSAGE(attack.steps < most_steps, "the attack is slower than any run");
  }
}

TEST_CASE("strangers at every port change nothing") { CheckWithin(kSmallAttack, Key::kNeedsNone); }

TEST_CASE("without a key strangers change nothing") { CheckWithin(kSmallAttack, Key::kNone); }

TEST_CASE("with a stolen member key a stranger changes nothing of others") {
  CheckWithin(kSmallAttack, Key::kMember);
}

// A process that has registered, and is in no view.
class Outsider {
 public:
  Outsider(ZmqContext& context, const std::string& endpoint, const Envelope& report)
      : transport_(context, self_, {}), report_(report) {
    REQUIRE(transport_.Dial({kSchedulerNode, {}, 0}, endpoint).ok());
    registration_ = {.role = Role::kWorker,
                     .host = HostName(),  // others cannot reach the lanes
                     .process_id = 1,
                     .public_key = context.own_keys().public_key};
    AwaitWelcome();
  }
  // All that was said before has come.
  void AwaitWelcome() {
    Say({}, registration_);
    Await<Welcome>();
  }
  void Say(ViewId view, Message message) {
    transport_.Send({.job = report_.job,
                     .generation = report_.generation,
                     .view = view,
                     .sender = self_,
                     .receiver = {kSchedulerNode, {}, 0},
                     .message = std::move(message)});
  }
  template <class M>
  void Await() {
    const Micros deadline = SteadyNow() + kEventDeadline;
    Envelope envelope;
    while (!transport_.Receive(&envelope) || !std::holds_alternative<M>(envelope.message)) {
      REQUIRE(SteadyNow() < deadline);
      transport_.Wait(deadline);
    }
  }

 private:
  const PeerId self_{kUnknownNode, NewIncarnation(), 0};
  Transport transport_;
  const Envelope report_;
  Register registration_;
};

TEST_CASE("with a stolen member key a newer view is claimed, shown, and not believed") {
  TempFolder temp;
  Process serial(temp.path(), "serial",
                 Args{"train", "--serial", "--run-dir", temp.path() + "/serial"} +
                     LongJob(kSmallAttack.steps));
  const KeysInEnvironment keys(temp.path() + "/keys");
  JobByHand job(2, 2, LongJob(kSmallAttack.steps));
  job.AwaitSteps(10);
  ZmqContext context(keys.Stolen());
  const Envelope report = AskStatus(context, job.endpoint);
  Outsider outsider(context, job.endpoint, report);
  const View newer{.id = {report.view.term, report.view.number + 100},
                   .generation = report.generation};
  outsider.Say(newer.id, ViewAck{newer.id, newer.generation});
  outsider.Await<ViewWanted>();
  for (const std::string& signature : {std::string(), std::string(80, '0')})
    outsider.Say(newer.id, ViewUpdate{newer, signature});
  outsider.AwaitWelcome();
  REQUIRE(RowCountIn(job.run_dir) < kSmallAttack.steps);
  job.scheduler->Await(std::chrono::minutes(4));
  CHECK_MESSAGE(job.scheduler->exit_code() == kExitCompleted, job.scheduler->err());
  CHECK(Contains(job.scheduler->err(), "the signature of its view is not the scheduler's"));
  CHECK(!Contains(ReadBytes(job.run_dir + "/events.jsonl"), "journal-behind"));
  serial.Await(std::chrono::minutes(4));
  CHECK(SummaryIn(job.run_dir).weights_hash == SummaryIn(temp.path() + "/serial").weights_hash);
}

// For how long is up to PANDO_ATTACK_SECONDS, if it is set (docs/testing.md).
Attack FullAttack() {
  Attack attack = kFullAttack;
  if (const char* seconds = std::getenv("PANDO_ATTACK_SECONDS"); seconds != nullptr) {
    attack.lasts = std::chrono::seconds(std::atoi(seconds));
    attack.steps += kStepsPerAttackedSecond * static_cast<uint64_t>(attack.lasts.count());
  }
  return attack;
}

TEST_CASE("many strangers at every port change nothing" * doctest::test_suite("thorough 1")) {
  CheckWithin(FullAttack(), Key::kNeedsNone);
}

TEST_CASE("many strangers without a key change nothing" * doctest::test_suite("thorough 2")) {
  CheckWithin(FullAttack(), Key::kNone);
}

TEST_CASE("many strangers with a member key change nothing" * doctest::test_suite("thorough 2")) {
  CheckWithin(FullAttack(), Key::kMember);
}

}  // namespace
}  // namespace pando
