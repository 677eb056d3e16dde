// Invariant I5 through real processes that are killed, stopped, cut off, added and taken away: the
// weights are those of the run in which nothing happened.
#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>

#include "tests/e2e/fault_run.h"
#include "tests/e2e/job_by_hand.h"

namespace pando {
namespace {

// Steps of the runs with a codec, of which there are many.
constexpr uint64_t kCodecSteps = 300;

// The test accuracy that residuals which died with a worker may cost.
constexpr double kFeedbackAccuracyTol = 0.08;  // of 500 samples; measured 0.04

// Each fault that was brought over the run is in its summary, noticed, and got over.
void CheckFaults(const Summary& summary, size_t injected_count) {
  size_t injected = 0;
  for (const FaultRecord& fault : summary.faults) {
    if (fault.injected_ms < 0) continue;
    CAPTURE(fault.action);
    CAPTURE(fault.target);
    CAPTURE(fault.detected_by);
    ++injected;
    CHECK(fault.detected_ms >= fault.injected_ms);
    CHECK(fault.recovered_ms >= fault.detected_ms);
    CHECK_FALSE(fault.detected_by.empty());
  }
  CHECK(injected == injected_count);
}

// A row's speed is that of the time in which its steps were made, also where they were reported
// together after the scheduler's restart.
void CheckSpeeds(const std::vector<std::string>& rows) {
  constexpr double kRatioMax = 20;  // machines that are busy otherwise vary
  std::vector<double> speeds;
  for (const std::string& row : rows) {
    size_t at = 0;
    for (int column = 0; column < 5; ++column) at = row.find(',', at) + 1;  // images_per_second
    speeds.push_back(std::stod(row.substr(at)));
  }
  std::ranges::sort(speeds);
  CHECK(speeds.front() > 0);
  CHECK(speeds.back() < kRatioMax * speeds[speeds.size() / 2]);
}

// Runs `pando train` under chaos, to its end: each step once.
Summary CompleteUnder(const std::string& chaos, const Args& job, uint64_t steps = kFaultSteps) {
  CAPTURE(chaos);
  Household household;
  Process train(household.path(), "train",
                Args{"train", "--chaos", chaos, "--run-dir", household.run_dir()} + job);
  train.Await(2 * kEventDeadline);
  INFO(train.err());
  REQUIRE(train.exit_code() == kExitCompleted);
  CHECK(household.Living().empty());
  Summary summary = SummaryIn(household.run_dir());
  CHECK(summary.status == kStatusCompleted);
  const std::vector<std::string> rows = RowsIn(household.run_dir());
  REQUIRE(rows.size() == steps);
  for (size_t i = 0; i < rows.size(); ++i) CHECK(std::stoull(rows[i]) == i + 1);
  CheckSpeeds(rows);
  return summary;
}

// The same, and compares the weights with the serial run's.
Summary TrainUnder(const std::string& chaos, const Args& job, uint64_t steps = kFaultSteps,
                   const Args& features = {}) {
  const Summary summary = CompleteUnder(chaos, job + features, steps);
  CHECK_MESSAGE(summary.weights_hash == SerialHash(steps, features), chaos);
  return summary;
}

TEST_CASE("a worker is killed, then all of them") {
  CheckFaults(TrainUnder("kill worker at step 50; kill workers at step 250", FaultJob(3, 2)), 4);
}

TEST_CASE("a server is killed, and another once its shards have moved") {
  CheckFaults(TrainUnder("kill server 0 at step 50; kill server 1 at step 300", FaultJob(2, 3)), 2);
}

TEST_CASE("the relay of a host is killed and stopped, and so are its givers (P6a)" *
          doctest::test_suite("thorough 1")) {
  const Args on_host{"--host-sum", "always"};
  CheckFaults(
      TrainUnder("kill worker 0 at step 50; kill server 0 at step 150; kill worker 1 at step 250",
                 FaultJob(3, 3, on_host)),
      3);
  CheckFaults(TrainUnder("stop worker 0 3s at step 50", FaultJob(kSilenceSteps, 3, 2, on_host),
                         kSilenceSteps),
              1);
}

TEST_CASE("workers and servers are killed, and another is stopped, while layers are pulled" *
          doctest::test_suite("thorough 2")) {
  const Args layers{"--set", "worker.parameter_residency=layer"};
  CheckFaults(
      TrainUnder("kill worker at step 50; kill server 0 at step 150; kill worker at step 250",
                 FaultJob(3, 3, layers)),
      3);
  const Summary summary =
      TrainUnder("kill server at step 130", FaultJob(2, 2, layers + Args{"--replicas", "1"}));
  CHECK(summary.rollbacks == 1);
  CheckFaults(TrainUnder("stop worker 0 3s at step 50", FaultJob(kSilenceSteps, 3, 2, layers),
                         kSilenceSteps),
              1);
}

TEST_CASE("servers are killed whose values others wait for (P16)" *
          doctest::test_suite("thorough 1")) {
  const std::string chaos = "kill server 0 at step 50; kill server 1 at step 300";
  CheckFaults(TrainUnder(chaos, FaultJob(2, 3), kFaultSteps, {"--clip-norm", "0.5"}), 2);
  const Args lamb{"--optimizer", "lamb", "--weight-decay", "0.01"};
  CheckFaults(TrainUnder(chaos, FaultJob(2, 3), kFaultSteps, lamb), 2);
  const Summary summary = TrainUnder("kill server at step 130", FaultJob(2, 2, {"--replicas", "1"}),
                                     kFaultSteps, {"--clip-norm", "0.5"});
  CHECK(summary.rollbacks == 1);
}

TEST_CASE("a worker and a server are killed under each codec of gradients and parameters (P34)" *
          doctest::test_suite("thorough 3")) {
  const std::vector<Args> codecs{{"--codec", "fp16"},
                                 {"--codec", "bf16", "--pull-codec", "bf16"},
                                 {"--codec", "int8", "--pull-codec", "fp16"},
                                 {"--pull-codec", "int8"}};
  for (const Args& codec : codecs) {
    const std::string chaos = "kill worker at step 40; kill server at step 120";
    CheckFaults(TrainUnder(chaos, FaultJob(kCodecSteps, 2, 2), kCodecSteps, codec), 2);
  }
  const Args rolled_back{"--codec", "int8", "--pull-codec", "bf16"};
  const Summary summary =
      TrainUnder("kill server at step 130", FaultJob(kCodecSteps, 2, 2, {"--replicas", "1"}),
                 kCodecSteps, rolled_back);
  CHECK(summary.rollbacks == 1);
}

TEST_CASE("under 1-bit and top-k a server's death changes nothing, a worker's little (P34)" *
          doctest::test_suite("thorough 3")) {
  for (const std::string codec : {"1-bit", "top-k"}) {
    CAPTURE(codec);
    const Args feature{"--codec", codec};
    // No micro-batch changes its worker where there is but one.
    const Summary calm =
        TrainUnder("kill server at step 120", FaultJob(kCodecSteps, 1, 2), kCodecSteps, feature);
    CheckFaults(calm, 1);
    CHECK_FALSE(calm.is_reproducible);
    const Summary summary = CompleteUnder("kill worker at step 40; kill server at step 120",
                                          FaultJob(kCodecSteps, 2, 2, feature), kCodecSteps);
    CheckFaults(summary, 2);
    MESSAGE("test accuracy " << calm.test_accuracy.value() << ", with a dead worker "
                             << summary.test_accuracy.value());
    CHECK(summary.test_accuracy.value() > calm.test_accuracy.value() - kFeedbackAccuracyTol);
  }
}

TEST_CASE("the average of the weights outlives its servers, replicated or rolled back" *
          doctest::test_suite("thorough 3")) {
  const auto average_of = [](const Args& more) {
    Household household;
    Process train(household.path(), "train",
                  Args{"train", "--run-dir", household.run_dir(), "--ema-decay", "0.5"} + more);
    train.Await(2 * kEventDeadline);
    INFO(train.err());
    REQUIRE(train.exit_code() == kExitCompleted);
    return AverageIn(household.path(), household.run_dir());
  };
  const std::string undisturbed = average_of(FaultJob(1, 1));
  const Args chaos{"--chaos", "kill server 0 at step 50; kill server 1 at step 300"};
  CHECK(average_of(FaultJob(2, 3) + chaos) == undisturbed);
  const Args late{"--chaos", "kill server at step 130", "--replicas", "1"};
  CHECK(average_of(FaultJob(2, 2) + late) == undisturbed);
}

TEST_CASE("the scheduler is killed, twice") {
  CheckFaults(TrainUnder("kill scheduler at step 50; kill scheduler at step 250", FaultJob(2, 2)),
              2);
}

TEST_CASE("a worker and a server are killed at the same instant") {
  CheckFaults(TrainUnder("kill worker at step 100; kill server at step 100", FaultJob(3, 3)), 2);
}

TEST_CASE("with one replica, a killed server costs a rollback and not the weights") {
  const Summary summary =
      TrainUnder("kill server at step 130", FaultJob(2, 2, {"--replicas", "1"}));
  CheckFaults(summary, 1);
  CHECK(summary.rollbacks == 1);
}

TEST_CASE("everything is killed at once, and starts again by itself") {
  CheckFaults(TrainUnder("kill all at step 130", FaultJob(2, 2)), 5);
}

TEST_CASE("a worker is stopped for three leases, another is cut off for as long") {
  const Summary summary =
      TrainUnder("stop worker 0 3s at step 50; partition worker 1 3s at step 700",
                 FaultJob(kSilenceSteps, 3, 2), kSilenceSteps);
  CheckFaults(summary, 2);
  for (const FaultRecord& fault : summary.faults) CHECK(fault.detected_by == "lease");
}

TEST_CASE("after a power cut the run is resumed, elsewhere and with fewer processes") {
  Household household;
  {
    Process train(household.path(), "train",
                  Args{"train", "--run-dir", household.run_dir()} + FaultJob(3, 3));
    REQUIRE(Becomes([&] { return RowCountIn(household.run_dir()) > 120 || !train.is_running(); }));
    train.Signal(SIGKILL);
    train.Await();
    REQUIRE(Becomes([&] { return household.Living().empty(); }));
  }
  Process resume(household.path(), "resume",
                 {"resume", household.run_dir(), "--workers", "1", "--servers", "1", "--json"});
  resume.Await();
  INFO(resume.err());
  REQUIRE(resume.exit_code() == kExitCompleted);
  CHECK(household.Living().empty());
  const Summary summary = SummaryIn(household.run_dir());
  CHECK(summary.weights_hash == SerialHash());
  CHECK(summary.workers == 1);
  CHECK(Contains(resume.out(), summary.weights_hash));
  CHECK(RowCountIn(household.run_dir()) == kFaultSteps);
  Process again(household.path(), "again", {"resume", household.run_dir()});
  again.Await();
  CHECK(again.exit_code() == kExitCompleted);
  CHECK(Contains(again.err(), "is finished; there is nothing to resume"));
}

TEST_CASE("after a power cut a run by hand goes on under a scheduler with --resume") {
  TempFolder temp;
  const std::string run_dir = temp.path() + "/run";
  double seconds_before = 0;
  {
    Process train(temp.path(), "train", Args{"train", "--run-dir", run_dir} + FaultJob(2, 2));
    REQUIRE(Becomes([&] { return RowCountIn(run_dir) > 120 || !train.is_running(); }));
    const auto children = ChildrenByRole(train.pid());
    train.Signal(SIGKILL);
    train.Await();
    for (const auto& [role, pids] : children) {
      for (const pid_t pid : pids) REQUIRE(Becomes([pid = pid] { return IsGone(pid); }));
    }
    seconds_before = train.lifetime().count();
  }
  const std::string endpoint_file = temp.path() + "/endpoint";
  const auto bind = [&](const std::string& name) {
    return ChooseBind(TransportOfFaults(), temp.path(), name);
  };
  Process scheduler(temp.path(), "scheduler",
                    {"scheduler", run_dir + "/job.toml", "--resume", "--workers", "1", "--servers",
                     "1", "--bind", bind("scheduler"), "--endpoint-file", endpoint_file});
  REQUIRE(
      Becomes([&] { return ReadBytes(endpoint_file).ends_with('\n') || !scheduler.is_running(); }));
  INFO(scheduler.err());
  std::string endpoint = ReadBytes(endpoint_file);
  REQUIRE(endpoint.ends_with('\n'));
  endpoint.pop_back();
  Process server(temp.path(), "server", {"server", "--join", endpoint, "--bind", bind("server")});
  Process worker(temp.path(), "worker", {"worker", "--join", endpoint});
  scheduler.Await(2 * kEventDeadline);
  REQUIRE(scheduler.exit_code() == kExitCompleted);
  const Summary summary = SummaryIn(run_dir);
  CHECK(summary.weights_hash == SerialHash());
  CHECK(summary.wall_seconds < seconds_before + scheduler.lifetime().count());
}

TEST_CASE("a worker and a server join a run, and those that were there are drained") {
  JobByHand job(2, 2, LongJob(kFaultSteps, Args{"--snapshot-every", "50"} + TransportOfFaults()));
  job.AwaitSteps(20);
  Process worker(job.temp.path(), "late-worker", {"worker", "--join", job.endpoint});
  Process server(job.temp.path(), "late-server",
                 {"server", "--join", job.endpoint, "--bind", job.Bind("late-server")});
  REQUIRE(Becomes([&] { return Contains(server.err(), "serving on "); }));
  job.workers[1]->Signal(SIGTERM);
  job.workers[1]->Await();
  CHECK(job.workers[1]->exit_code() == kExitCompleted);
  CHECK(Contains(job.workers[1]->err(), "left: "));
  Process drain(job.temp.path(), "drain", {"drain", "server-0", "--join", job.endpoint});
  drain.Await();
  CHECK_MESSAGE(drain.exit_code() == kExitCompleted, drain.err());
  CHECK_MESSAGE(job.scheduler->is_running(), "the run ended before the drain was through");
  job.scheduler->Await();
  INFO(job.scheduler->err());
  REQUIRE(job.scheduler->exit_code() == kExitCompleted);
  for (Process* process : {&worker, &server, job.workers[0].get(), job.servers[0].get()}) {
    process->Await();
    CHECK_MESSAGE(process->exit_code() == kExitCompleted, process->err());
  }
  CHECK(SummaryIn(job.run_dir).weights_hash == SerialHash());
}

// Two workers, neither of them the old one.
bool HasReplaced(pid_t old, const std::vector<pid_t>& workers) {
  return workers.size() == 2 && std::ranges::find(workers, old) == workers.end();
}

TEST_CASE("a machine's node leaves no orphans when it is killed, and drains when it is asked to") {
  Household household;
  JobByHand job(1, 1, LongJob(kFaultSteps, Args{"--snapshot-every", "50"} + TransportOfFaults()));
  const Args node_args{"node",      "--join", job.endpoint, "--bind", job.Bind("node"),
                       "--servers", "1",      "--workers",  "2"};
  Process killed(household.path(), "killed", node_args);
  job.AwaitSteps(20);
  REQUIRE(Becomes([&] { return ChildrenByRole(killed.pid())["worker"].size() == 2; }));
  const std::vector<pid_t> first = ChildrenByRole(killed.pid())["worker"];
  kill(first[0], SIGKILL);
  REQUIRE(Becomes([&] { return HasReplaced(first[0], ChildrenByRole(killed.pid())["worker"]); }));
  const auto children = ChildrenByRole(killed.pid());
  killed.Signal(SIGKILL);
  killed.Await();
  for (const auto& [role, pids] : children) {
    for (const pid_t pid : pids) CHECK(Becomes([&] { return IsGone(pid); }));
  }
  Process drained(household.path(), "drained", node_args);
  REQUIRE(Becomes([&] { return Contains(drained.err(), "serving on "); }));
  drained.Signal(SIGTERM);
  drained.Await();
  CHECK_MESSAGE(drained.exit_code() == kExitCompleted, drained.err());
  job.scheduler->Await();
  CHECK_MESSAGE(job.scheduler->exit_code() == kExitCompleted, job.scheduler->err());
  CHECK(SummaryIn(job.run_dir).weights_hash == SerialHash());
}

TEST_CASE("kills about an early stop's decision leave it as it was (P32)" *
          doctest::test_suite("thorough 3")) {
  // A primary lost before it stored abandons that snapshot (P29): no server is killed where the
  // best version is made.
  const Args decides = FaultJob(kFaultSteps, 2, 2,
                                {"--eval-every-steps", "40", "--early-stop-patience", "2",
                                 "--early-stop-min-delta", "0.02", "--snapshot-best", "true"});
  TempFolder temp;
  const std::string serial_dir = temp.path() + "/serial";
  Process serial(temp.path(), "serial",
                 Args{"train", "--serial", "--run-dir", serial_dir} + decides);
  serial.Await();
  REQUIRE_MESSAGE(serial.exit_code() == kExitCompleted, serial.err());
  const Summary expected = SummaryIn(serial_dir);
  REQUIRE(expected.stopped_early);
  REQUIRE(expected.best_weights_step.value_or(0) + 60 > expected.steps);
  const auto before = [&](uint64_t steps) { return std::to_string(expected.steps - steps); };
  struct Case {
    std::string chaos;
    const char* replicas;
  };
  for (const Case& c :
       {Case{"kill scheduler at step " + before(41) + "; kill scheduler at step " + before(1), "2"},
        Case{"kill server at step " + before(60) + "; kill worker at step " + before(1), "2"},
        Case{"kill server at step " + before(1), "1"}}) {
    CAPTURE(c.chaos);
    Household household;
    Process train(household.path(), "train",
                  Args{"train", "--chaos", c.chaos, "--run-dir", household.run_dir(), "--replicas",
                       c.replicas} +
                      decides);
    train.Await(2 * kEventDeadline);
    INFO(train.err());
    REQUIRE(train.exit_code() == kExitCompleted);
    const Summary summary = SummaryIn(household.run_dir());
    CHECK(summary.weights_hash == expected.weights_hash);
    CHECK(summary.steps == expected.steps);
    CHECK(summary.stopped_early);
    CHECK(summary.best_weights_step == expected.best_weights_step);
    CHECK(ReadBytes(household.run_dir() + "/best.safetensors") ==
          ReadBytes(serial_dir + "/best.safetensors"));
    CHECK(RowCountIn(household.run_dir()) == expected.steps);
  }
}

}  // namespace
}  // namespace pando
