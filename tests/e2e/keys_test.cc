// Runs with keys: those that pando train makes by itself, and those of `pando keys new` that a user
// gives to processes started by hand. A process without them learns and changes nothing.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>

#include "common/clock.h"
#include "common/exit_codes.h"
#include "common/system.h"
#include "net/scheduler_client.h"
#include "net/zmq/keys.h"
#include "tests/e2e/key_folders.h"
#include "tests/e2e/run_files.h"
#include "tests/net/raw_peers.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kKeyedSteps = 40;

Args MlpJob(uint64_t steps) { return LongJob(steps, {"--model", "mlp"}); }

// Over TCP, with a lease that outlasts a process that the test stops.
Args KeyedJob(uint64_t steps, const Args& more = {}) {
  return MlpJob(steps) + Args{"--servers",   "2",   "--workers", "2",
                              "--transport", "tcp", "--set",     "run.lease_ms=120000"} +
         more;
}

const std::string& MlpHash() {
  static const std::string kHash = [] {
    TempFolder temp;
    const std::string run_dir = temp.path() + "/run";
    Process serial(temp.path(), "serial",
                   Args{"train", "--serial", "--run-dir", run_dir} + MlpJob(kKeyedSteps));
    serial.Await();
    REQUIRE_MESSAGE(serial.exit_code() == kExitCompleted, serial.err());
    return SummaryIn(run_dir).weights_hash;
  }();
  return kHash;
}

// ---- pando train --------------------------------------------------------------------------------

Keys MustRead(const std::string& folder, KeyRole purpose) {
  const Result<Keys> keys = ReadKeys(folder, purpose);
  REQUIRE_MESSAGE(keys.ok(), keys.status().message());
  return *keys;
}

// A client of the scheduler that asks all that there is, over and over.
struct Asker {
  Asker(std::string asker, Keys keys, const std::string& endpoint)
      : name(std::move(asker)),
        context(std::move(keys)),
        client(context, {.repeat_interval = std::chrono::milliseconds(20)}) {
    REQUIRE(client.Dial(endpoint).ok());
  }
  void AskAll(uint32_t worker_pid) {
    REQUIRE(client.Ask(StatusRequest{}));
    REQUIRE(client.Ask(Command{.kind = CommandKind::kStop}));
    REQUIRE(client.Ask(FaultNote{.number = 1,
                                 .action = "exit",
                                 .role = Role::kWorker,
                                 .host = HostName(),
                                 .process_id = worker_pid,
                                 .target = "worker 0",
                                 .exited_us = 1,
                                 .text = "signal 9 (SIGKILL)"}));
  }
  const std::string name;
  ZmqContext context;
  SchedulerClient client;
};

// Its next answer is a status.
void AwaitStatus(SchedulerClient& client) {
  REQUIRE(client.Ask(StatusRequest{}));
  const Micros deadline = SteadyNow() + kEventDeadline;
  std::optional<Message> answer;
  while (!(answer = client.Poll())) {
    REQUIRE(SteadyNow() < deadline);
    client.Wait(deadline);
  }
  REQUIRE(std::holds_alternative<StatusReport>(*answer));
}

// The first endpoint after the word, in a log of the run.
std::string EndpointIn(const std::string& log, const std::string& word) {
  const size_t at = log.find("tcp://", log.find(word));
  REQUIRE(at != std::string::npos);
  return log.substr(at, log.find_first_of(",; \n", at) - at);
}

// A push under the routing id of a process without keys.
void PushTo(const std::string& endpoint, const RawDealer& dealer, const PeerId& stranger) {
  CAPTURE(endpoint);
  Push push;
  push.items.push_back({ShardId(0), Step(1), TreeNode(0), Blob()});
  CHECK(dealer.Send(ToRaw({.sender = stranger, .receiver = {NodeId(1), {}, 0}, .message = push})));
}

// `pando train` with a worker that is stopped, so that the run waits for as long as the test needs.
struct HeldRun {
  HeldRun()
      : run_dir(temp.path() + "/run"),
        train(temp.path(), "train", Args{"train", "--run-dir", run_dir} + KeyedJob(kKeyedSteps)) {
    const auto workers = [&] { return ChildrenByRole(train.pid())["worker"]; };
    REQUIRE(Becomes([&] { return workers().size() == 2 || !train.is_running(); }));
    REQUIRE_MESSAGE(workers().size() == 2, train.err());
    stopped = workers()[0];
    kill(stopped, SIGSTOP);
    const std::string log = run_dir + "/logs/server-0.log";
    REQUIRE(Becomes([&] { return Contains(ReadBytes(log), "serving on "); }));
    lane = EndpointIn(ReadBytes(log), "serving on ");
    scheduler = EndpointIn(train.err(), "scheduler at ");
  }
  ~HeldRun() { GoOn(); }
  void GoOn() const { kill(stopped, SIGCONT); }

  TempFolder temp;
  const std::string run_dir;
  Process train;
  pid_t stopped = -1;
  std::string lane;
  std::string scheduler;
};

TEST_CASE("pando train makes keys by itself, and strangers learn nothing and change nothing") {
  const std::string& expected = MlpHash();
  HeldRun run;
  const std::string keys = run.run_dir + "/keys";
  struct stat info {};
  REQUIRE(stat(keys.c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0700);

  const Said status = RunPando(run.temp.path(), "status", {"status", run.run_dir});
  CHECK_MESSAGE(status.exit_code == kExitCompleted, status.err);
  CHECK(Contains(status.out, "server 0"));
  const Said keyless = RunPando(run.temp.path(), "keyless",
                                {"status", "--join", run.scheduler, "--start-timeout", "0.5"});
  CHECK(keyless.exit_code == kExitUnreached);
  CHECK_MESSAGE(Contains(keyless.err, "the scheduler there has keys: give --keys"), keyless.err);

  const KeyFolders others(run.temp.path());
  Keys intruder = MustRead(others.member, KeyRole::kMember);  // that knows the scheduler's key
  intruder.Of(KeyRole::kAdmin) = MustRead(keys, KeyRole::kReader).Of(KeyRole::kAdmin);
  intruder.Of(KeyRole::kAdmin).secret_key.clear();
  Asker without("without keys", Keys(), run.scheduler);
  Asker foreign("with another run's", MustRead(others.whole, KeyRole::kAdmin), run.scheduler);
  Asker informed("with a foreign key, to the right scheduler", intruder, run.scheduler);
  Asker proper("with the run's", MustRead(keys, KeyRole::kAdmin), run.scheduler);
  for (Asker* asker : {&without, &foreign, &informed})
    asker->AskAll(static_cast<uint32_t>(run.stopped));
  const PeerId stranger{NodeId(2), NewIncarnation(), 0};
  const std::string routing_id =
      RoutingId({.incarnation = stranger.incarnation}, {NodeId(1), Incarnation(), 0});
  const RawDealer pusher(without.context, run.lane, {.routing_id = routing_id});
  PushTo(run.lane, pusher, stranger);
  AwaitStatus(proper.client);
  const Micros until = SteadyNow() + std::chrono::seconds(1);
  while (SteadyNow() < until) {
    for (Asker* asker : {&without, &foreign, &informed}) {
      CAPTURE(asker->name);
      CHECK(!asker->client.Poll());
    }
    AwaitStatus(proper.client);
    proper.client.Wait(std::min(until, SteadyNow() + std::chrono::milliseconds(20)));
  }

  run.GoOn();
  run.train.Await();
  CHECK_MESSAGE(run.train.exit_code() == kExitCompleted, run.train.err());
  CHECK(SummaryIn(run.run_dir).weights_hash == expected);
  CHECK(!Contains(ReadBytes(run.run_dir + "/events.jsonl"), R"("event":"dead")"));
}

TEST_CASE("the member's key of a run does not stop it, its folder does, and it keeps its keys") {
  TempFolder temp;
  const std::string run_dir = temp.path() + "/run";
  Process train(temp.path(), "train",
                Args{"train", "--run-dir", run_dir} + KeyedJob(kEndlessSteps));
  REQUIRE(Becomes([&] { return RowCountIn(run_dir) >= 3 || !train.is_running(); }));
  REQUIRE_MESSAGE(train.is_running(), train.err());
  const std::string key = ReadBytes(run_dir + "/keys/admin.key");
  Keys member = MustRead(run_dir + "/keys", KeyRole::kMember);
  member.Of(KeyRole::kAdmin).secret_key.clear();
  Asker asker("with the member's key", member, EndpointIn(train.err(), "scheduler at "));
  AwaitStatus(asker.client);
  REQUIRE(asker.client.Ask(Command{.kind = CommandKind::kStop}));
  for (int i = 0; i < 10; ++i) AwaitStatus(asker.client);  // sent later, and the only answers

  const Said stop = RunPando(temp.path(), "stop", {"stop", run_dir});
  CHECK_MESSAGE(stop.exit_code == kExitCompleted, stop.err);
  train.Await();
  CHECK_MESSAGE(train.exit_code() == kExitInterrupted, train.err());
  Process resume(temp.path(), "resume", {"resume", run_dir});
  const Args ask{"status", run_dir, "--start-timeout", "1"};
  REQUIRE(Becomes([&] {
    return RunPando(temp.path(), "status", ask).exit_code == kExitCompleted || !resume.is_running();
  }));
  CHECK_MESSAGE(resume.is_running(), resume.err());
  CHECK(key.size() == 41);
  CHECK(ReadBytes(run_dir + "/keys/admin.key") == key);
  resume.Signal(SIGINT);
  resume.Await();
  CHECK_MESSAGE(resume.exit_code() == kExitInterrupted, resume.err());
}

TEST_CASE("a run that encrypts nothing, or has Unix sockets alone, makes no keys") {
  TempFolder temp;
  for (const Args& without : {Args{"--encrypt", "none"}, Args{"--transport", "ipc"}}) {
    CAPTURE(without[1]);
    const std::string run_dir = temp.path() + "/" + without[1];
    const Said run =
        RunPando(temp.path(), "train", Args{"train", "--run-dir", run_dir} + KeyedJob(2, without));
    CHECK_MESSAGE(run.exit_code == kExitCompleted, run.err);
    CHECK(!fs::exists(run_dir + "/keys"));
  }
}

// ---- by hand ------------------------------------------------------------------------------------

// A job whose processes have the keys that each needs. It waits for its second worker.
struct KeyedJobByHand {
  explicit KeyedJobByHand(const Args& job) : run_dir(temp.path() + "/run"), keys(temp.path()) {
    const std::string file = temp.path() + "/endpoint";
    scheduler = std::make_unique<Process>(
        temp.path(), "scheduler",
        Args{"scheduler", "--keys", keys.scheduler, "--bind", "tcp://127.0.0.1:0",
             "--endpoint-file", file, "--run-dir", run_dir} +
            job);
    REQUIRE(Becomes([&] { return ReadBytes(file).ends_with('\n') || !scheduler->is_running(); }));
    REQUIRE_MESSAGE(scheduler->is_running(), scheduler->err());
    endpoint = ReadBytes(file);
    endpoint.pop_back();
    for (const char* name : {"server-0", "server-1"}) {
      nodes.push_back(std::make_unique<Process>(
          temp.path(), name, Args{"server", "--join", endpoint, "--keys", keys.member}));
    }
    AddWorker();
  }
  void AddWorker() {
    nodes.push_back(std::make_unique<Process>(temp.path(), "worker-" + std::to_string(nodes.size()),
                                              Args{"worker", "--join", endpoint},
                                              Args{"env", "PANDO_KEYS=" + keys.member}));
  }
  Said Client(const std::string& command, const std::string& folder, const Args& more = {}) {
    return RunPando(temp.path(), command,
                    Args{command, "--join", endpoint, "--keys", folder} + more);
  }
  // The scheduler's exit code; the others end in order.
  void AwaitEnd(int exit_code) {
    scheduler->Await();
    CHECK_MESSAGE(scheduler->exit_code() == exit_code, scheduler->err());
    for (const auto& node : nodes) {
      node->Await();
      CHECK_MESSAGE(node->exit_code() == kExitCompleted, node->err());
    }
  }

  TempFolder temp;
  const std::string run_dir;
  const KeyFolders keys;
  std::string endpoint;
  std::unique_ptr<Process> scheduler;
  std::vector<std::unique_ptr<Process>> nodes;
};

TEST_CASE("processes that have the keys of their roles train, and an error names a missing key") {
  KeyedJobByHand job(KeyedJob(kKeyedSteps));
  const Said status = job.Client("status", job.keys.reader);
  CHECK_MESSAGE(status.exit_code == kExitCompleted, status.err);
  const Said found = RunPando(job.temp.path(), "found", {"status", job.run_dir});
  CHECK_MESSAGE(found.exit_code == kExitCompleted, found.err);  // the folder has a link to the keys
  const Said stop = job.Client("stop", job.keys.member);
  CHECK(stop.exit_code == kExitUsage);
  CHECK_MESSAGE(Contains(stop.err, job.keys.member + " has no admin.key"), stop.err);
  const Said reading = RunPando(job.temp.path(), "reading",
                                {"worker", "--join", job.endpoint, "--keys", job.keys.reader});
  CHECK(reading.exit_code == kExitUsage);
  CHECK_MESSAGE(Contains(reading.err, "has no member.key"), reading.err);
  const Said keyless = RunPando(job.temp.path(), "keyless",
                                {"worker", "--join", job.endpoint, "--start-timeout", "0.5"});
  CHECK(keyless.exit_code == kExitUnreached);
  CHECK_MESSAGE(Contains(keyless.err, "the scheduler there has keys"), keyless.err);
  CHECK(RowCountIn(job.run_dir) == 0);  // none of them was the second worker
  job.AddWorker();
  job.AwaitEnd(kExitCompleted);
  CHECK(SummaryIn(job.run_dir).weights_hash == MlpHash());
}

TEST_CASE("a start with keys that times out says what has not joined, and does not ask for keys") {
  TempFolder temp;
  const KeyFolders keys(temp.path());
  const Said said =
      RunPando(temp.path(), "scheduler",
               Args{"scheduler", "--bind", "tcp://127.0.0.1:0", "--keys", keys.scheduler,
                    "--run-dir", temp.path() + "/run", "--set", "run.start_timeout_ms=1000"} +
                   KeyedJob(kKeyedSteps));
  CHECK(said.exit_code == kExitUnreached);
  CHECK(Contains(said.err, "0 of 2 servers, 0 of 2 workers"));
  CHECK(Contains(said.err, "their folders of keys belong to this run"));
  CHECK_FALSE(Contains(said.err, "give --keys"));
}

TEST_CASE("with gradients in clear text the run is the same") {
  KeyedJobByHand job(KeyedJob(kKeyedSteps, {"--encrypt", "control"}));
  job.AddWorker();
  job.AwaitEnd(kExitCompleted);
  CHECK(SummaryIn(job.run_dir).weights_hash == MlpHash());
}

TEST_CASE("the admin's key stops a run") {
  KeyedJobByHand job(KeyedJob(kEndlessSteps));
  job.AddWorker();
  REQUIRE(Becomes([&] { return RowCountIn(job.run_dir) >= 3 || !job.scheduler->is_running(); }));
  const Said stop = job.Client("stop", job.keys.admin);
  CHECK_MESSAGE(stop.exit_code == kExitCompleted, stop.err);
  job.AwaitEnd(kExitInterrupted);
}

// A scheduler that began later does not have the server's key. It can answer its heartbeats alone.
TEST_CASE("a server that an earlier life of the scheduler gave up joins the run again") {
  const Args flags = KeyedJob(kEndlessSteps, {"--set", "run.lease_ms=1000"});
  KeyedJobByHand job(flags);
  job.AddWorker();
  REQUIRE(Becomes([&] { return RowCountIn(job.run_dir) >= 3 || !job.scheduler->is_running(); }));
  const auto has_event = [&](const std::string& name) {
    return Becomes(
        [&] { return Contains(ReadBytes(job.run_dir + "/events.jsonl"), "\"" + name + "\""); });
  };
  Process& server = *job.nodes[1];
  server.Signal(SIGSTOP);
  CHECK(has_event("dead"));
  job.scheduler->Signal(SIGKILL);
  job.scheduler->Await();
  job.scheduler = std::make_unique<Process>(job.temp.path(), "scheduler-again",
                                            Args{"scheduler", "--keys", job.keys.scheduler,
                                                 "--bind", job.endpoint, "--run-dir", job.run_dir} +
                                                flags);
  CHECK(has_event("scheduler-restarted"));
  server.Signal(SIGCONT);
  CHECK(Becomes([&] { return Contains(server.err(), "joining again"); }));
  const Said stop = job.Client("stop", job.keys.admin);
  CHECK_MESSAGE(stop.exit_code == kExitCompleted, stop.err);
  job.AwaitEnd(kExitInterrupted);
}

// ---- binding beyond this machine, and allreduce -------------------------------------------------

// A scheduler that listens everywhere, once it does; then it is interrupted.
Said ListenEverywhere(const std::string& folder, const Args& more) {
  const std::string file = folder + "/endpoint";
  fs::remove(file);
  Process scheduler(folder, "scheduler",
                    Args{"scheduler", "--bind", "tcp://0.0.0.0:0", "--endpoint-file", file,
                         "--run-dir", folder + "/run", "--force"} +
                        KeyedJob(kKeyedSteps) + more);
  REQUIRE(Becomes([&] { return ReadBytes(file).ends_with('\n') || !scheduler.is_running(); }));
  scheduler.Signal(SIGINT);
  scheduler.Await();
  return {scheduler.exit_code(), scheduler.out(), scheduler.err()};
}

TEST_CASE("listening beyond this machine takes keys, or a flag that warns") {
  TempFolder temp;
  const KeyFolders keys(temp.path());
  const Said refused = ListenEverywhere(temp.path(), {});
  CHECK(refused.exit_code == kExitUsage);
  CHECK_MESSAGE(Contains(refused.err, "--keys"), refused.err);
  const Said accepted = ListenEverywhere(temp.path(), {"--keys", keys.scheduler});
  CHECK_MESSAGE(accepted.exit_code == kExitInterrupted, accepted.err);
  CHECK(!Contains(accepted.err, "--insecure"));
  const Said insecure = ListenEverywhere(temp.path(), {"--insecure"});
  CHECK_MESSAGE(insecure.exit_code == kExitInterrupted, insecure.err);
  CHECK_MESSAGE(Contains(insecure.err, "--insecure: "), insecure.err);
}

#ifdef PANDO_HAS_GLOO
TEST_CASE("allreduce refuses keys and names gloo as the reason") {
  TempFolder temp;
  const KeyFolders keys(temp.path());
  const Said train =
      RunPando(temp.path(), "train",
               Args{"train", "--run-dir", temp.path() + "/run", "--strategy", "allreduce", "--keys",
                    keys.whole, "--model", "mlp", "--workers", "2"} +
                   LongJob(kKeyedSteps, {"--model", "mlp"}));
  CHECK(train.exit_code == kExitUsage);
  CHECK_MESSAGE(Contains(train.err, "gloo neither encrypts nor authenticates"), train.err);
}
#endif

}  // namespace
}  // namespace pando
