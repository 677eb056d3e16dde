// Unplanned ends: Ctrl-C, and processes that are killed or stop answering.
#include <doctest/doctest.h>

#include <csignal>
#include <filesystem>

#include "common/exit_codes.h"
#include "tests/e2e/fault_run.h"
#include "tests/e2e/job_by_hand.h"

namespace pando {
namespace {

using Seconds = std::chrono::duration<double>;

// `pando train` in the middle of a run.
struct TrainingRun {
  explicit TrainingRun(const Args& more = {})
      : run_dir(temp.path() + "/run"),
        train(temp.path(), "train",
              Args{"train", "--run-dir", run_dir} + LongJob(kEndlessSteps, more)) {
    REQUIRE(Becomes([&] { return RowCountIn(run_dir) >= 5 || !train.is_running(); }));
    REQUIRE_MESSAGE(train.is_running(), train.err());
    children = ChildrenByRole(train.pid());
    REQUIRE(children["scheduler"].size() == 1);
    REQUIRE(children["server"].size() == 2);
    REQUIRE(children["worker"].size() == 2);
  }
  bool AllAreGone() const {
    for (const auto& [role, pids] : children) {
      for (const pid_t pid : pids) {
        if (!IsGone(pid)) return false;
      }
    }
    return true;
  }
  TempFolder temp;
  std::string run_dir;
  Process train;
  std::map<std::string, std::vector<pid_t>> children;
};

TEST_CASE("Ctrl-C and SIGTERM end every process, and the summary says interrupted") {
  for (const int signal : {SIGINT, SIGTERM}) {
    CAPTURE(signal);
    TrainingRun run;
    const auto start = TestClock::now();
    if (signal == SIGINT) run.train.SignalGroup(signal);
    if (signal == SIGTERM) run.train.Signal(signal);
    run.train.Await();
    const Seconds took = run.train.ended_at() - start;
    MESSAGE("ended " << took.count() << " s after signal " << signal);
    CHECK(run.AllAreGone());
    CHECK(run.train.exit_code() == kExitInterrupted);
    const Summary summary = SummaryIn(run.run_dir);
    CHECK(summary.status == kStatusInterrupted);
    CHECK(summary.steps >= 5);
    CHECK_FALSE(Contains(run.train.err(), "Root Cause"));
  }
}

TEST_CASE("a run that is led is not resumed, and its folder stays as it is") {
  TrainingRun run;
  const std::string job = ReadBytes(run.run_dir + "/job.toml");
  Process resume(run.temp.path(), "resume", {"resume", run.run_dir, "--workers", "1"});
  resume.Await();
  CHECK(resume.exit_code() == kExitUsage);
  CHECK(Contains(resume.err(), "is led by process "));
  CHECK(ReadBytes(run.run_dir + "/job.toml") == job);
  CHECK(ReadBytes(run.run_dir + "/summary.json").empty());
  REQUIRE(Becomes([&, rows = RowCountIn(run.run_dir)] { return RowCountIn(run.run_dir) > rows; }));
}

TEST_CASE("killing pando train leaves no orphans") {
  TrainingRun run;
  run.train.Signal(SIGKILL);
  run.train.Await();
  CHECK(Becomes([&] { return run.AllAreGone(); }));
}

TEST_CASE("a process that may not start again ends the run at once and is its root cause") {
  for (const std::string role : {"worker", "server", "scheduler"}) {
    CAPTURE(role);
    TrainingRun run({"--max-restarts", "0"});
    const auto start = TestClock::now();
    kill(run.children[role].back(), SIGKILL);
    run.train.Await();
    const Seconds took = run.train.ended_at() - start;
    MESSAGE("ended " << took.count() << " s after the " << role << "'s death");
    INFO(run.train.err());
    CHECK(run.AllAreGone());
    CHECK(run.train.exit_code() == kExitFailed);
    CHECK(Contains(run.train.err(), "Root Cause"));
    CHECK(Contains(run.train.err(), "  process : " + role));
    CHECK(Contains(run.train.err(), "signal 9 (SIGKILL)"));
    const Summary summary = SummaryIn(run.run_dir);
    CHECK(summary.status == kStatusFailed);
    CHECK(Contains(summary.failure, role));
    CHECK(Contains(summary.failure, "SIGKILL"));
  }
}

TEST_CASE("servers and workers that are asked to leave do not wait for a scheduler that is gone" *
          doctest::test_suite("thorough 1")) {
  JobByHand job(2, 2, LongJob(kEndlessSteps));
  job.AwaitSteps(5);
  job.scheduler->Signal(SIGKILL);
  job.scheduler->Await();
  const auto start = TestClock::now();
  for (Process* node : job.Nodes()) node->Signal(SIGTERM);
  for (Process* node : job.Nodes()) {
    node->Await();
    const Seconds took = node->ended_at() - start;
    MESSAGE("left after " << took.count() << " s");
    CHECK_MESSAGE(node->exit_code() == kExitInterrupted, node->err());
  }
}

// A process of a job by hand is killed or stopped; only the scheduler can notice. The others
// go on, and so does the one that was stopped.
void CheckNoticed(const std::string& name, int signal) {
  CAPTURE(name);
  CAPTURE(signal);
  JobByHand job(2, 2, LongJob(kEndlessSteps));
  job.AwaitSteps(5);
  Process& victim = name == "server" ? *job.servers[1] : *job.workers[1];
  const std::string process = "(process " + std::to_string(victim.pid()) + " on ";
  const auto is_gone = [&] {
    for (const std::string& line : job.scheduler->err_lines()) {
      if (line.starts_with(name) && Contains(line, process) && Contains(line, "is gone"))
        return true;
    }
    return false;
  };
  const auto start = TestClock::now();
  victim.Signal(signal);
  REQUIRE_MESSAGE(Becomes(is_gone), job.scheduler->err());
  const Seconds noticed = TestClock::now() - start;
  MESSAGE("the " << name << " was missed " << noticed.count() << " s after signal " << signal);
  job.AwaitSteps(RowCountIn(job.run_dir) + 5);
  if (signal == SIGSTOP) {
    victim.Signal(SIGCONT);
    REQUIRE(Becomes([&] {
      const std::string text = victim.err();
      const size_t again = text.find("joining again");
      return again != std::string::npos && text.find("serving on ", again) != std::string::npos;
    }));
  }
  job.scheduler->Signal(SIGINT);
  job.scheduler->Await();
  CHECK(job.scheduler->exit_code() == kExitInterrupted);
  for (Process* node : job.Nodes()) {
    node->Await();
    if (node == &victim && signal == SIGKILL) continue;
    CHECK_MESSAGE(node->exit_code() == kExitCompleted, node->err());
  }
}

TEST_CASE("by hand, the scheduler names a killed or stopped process, and all go on") {
  CheckNoticed("worker", SIGKILL);
  CheckNoticed("server", SIGKILL);
  CheckNoticed("server", SIGSTOP);
}

TEST_CASE("by hand, nodes leave with a clear line when the scheduler is gone") {
  JobByHand job(1, 2, LongJob(kEndlessSteps, {"--set", "run.scheduler_timeout_ms=5000"}));
  job.AwaitSteps(5);
  const auto start = TestClock::now();
  job.scheduler->Signal(SIGKILL);
  for (Process* node : job.Nodes()) {
    node->Await();
    INFO(node->err());
    CHECK(node->exit_code() == kExitUnreached);
    CHECK(Contains(node->err(), "the scheduler has not answered for 5 s"));
    MESSAGE("left " << Seconds(node->ended_at() - start).count()
                    << " s after the scheduler's death");
  }
}

TEST_CASE("by hand, Ctrl-C on the scheduler ends all") {
  JobByHand interrupted(1, 1, LongJob(kEndlessSteps));
  interrupted.AwaitSteps(5);
  interrupted.scheduler->SignalGroup(SIGINT);
  interrupted.scheduler->Await();
  CHECK(interrupted.scheduler->exit_code() == kExitInterrupted);
  CHECK(SummaryIn(interrupted.run_dir).status == kStatusInterrupted);
  for (Process* node : interrupted.Nodes()) {
    node->Await();
    CHECK(node->exit_code() == kExitCompleted);
  }
}

TEST_CASE("by hand, Ctrl-C or SIGHUP has a worker or server leave, a second one ends it alone") {
  JobByHand job(2, 2, LongJob(kEndlessSteps));
  job.AwaitSteps(5);
  job.workers[0]->SignalGroup(SIGINT);
  job.workers[0]->Await();
  CHECK_MESSAGE(job.workers[0]->exit_code() == kExitCompleted, job.workers[0]->err());
  job.servers[0]->Signal(SIGHUP);
  job.servers[0]->Await();
  CHECK_MESSAGE(job.servers[0]->exit_code() == kExitCompleted, job.servers[0]->err());
  job.AwaitSteps(RowCountIn(job.run_dir) + 5);
  // The last server may not leave. A second signal ends it, and the run waits for another.
  job.servers[1]->Signal(SIGINT);
  REQUIRE(Becomes([&] { return Contains(job.servers[1]->err(), "leaving"); }));
  job.servers[1]->Signal(SIGTERM);
  job.servers[1]->Await();
  CHECK(job.servers[1]->exit_code() == kExitInterrupted);
  CHECK(job.scheduler->is_running());
  CHECK(job.workers[1]->is_running());
}

TEST_CASE("a resumed scheduler leaves a run alone whose processes still answer") {
  JobByHand job(2, 1, LongJob(kFaultSteps, Args{"--snapshot-every", "50"} + TransportOfFaults()));
  job.AwaitSteps(20);
  job.scheduler->Signal(SIGKILL);
  job.scheduler->Await();
  const Args again{"scheduler", job.run_dir + "/job.toml", "--bind", job.endpoint};
  Process resumed(job.temp.path(), "resumed", again + Args{"--resume"});
  resumed.Await();
  CHECK(resumed.exit_code() == kExitUsage);
  CHECK_MESSAGE(Contains(resumed.err(), "still trains: start the scheduler without --resume"),
                resumed.err());
  Process restarted(job.temp.path(), "restarted", again);
  restarted.Await();
  REQUIRE_MESSAGE(restarted.exit_code() == kExitCompleted, restarted.err());
  for (Process* node : job.Nodes()) {
    node->Await();
    CHECK_MESSAGE(node->exit_code() == kExitCompleted, node->err());
  }
  CHECK(SummaryIn(job.run_dir).weights_hash == SerialHash());
}

TEST_CASE("every process of a run that fails exits with 1 and says why") {
  TempFolder temp;
  const std::string run_dir = temp.File("run"), file = temp.File("endpoint");
  Process scheduler(temp.path(), "scheduler",
                    Args{"scheduler", "--bind", "tcp://127.0.0.1:0", "--endpoint-file", file,
                         "--run-dir", run_dir, "--servers", "2", "--workers", "2"} +
                        LongJob(kEndlessSteps, {"--lr", "1e30"}));
  REQUIRE(Becomes([&] { return ReadBytes(file).ends_with('\n'); }));
  const std::string endpoint = ReadBytes(file).substr(0, ReadBytes(file).size() - 1);
  Process server(temp.path(), "server", {"server", "--join", endpoint});
  Process worker(temp.path(), "worker", {"worker", "--join", endpoint});
  Process node(temp.path(), "node",
               {"node", "--join", endpoint, "--servers", "1", "--workers", "1"});
  scheduler.Await();
  CHECK(scheduler.exit_code() == kExitFailed);
  const std::string cause = SummaryIn(run_dir).failure;
  CHECK_FALSE(cause.empty());
  for (Process* process : {&server, &worker, &node}) {
    process->Await();
    CHECK_MESSAGE(process->exit_code() == kExitFailed, process->err());
    // The first worker that fails is given up, with its failure; then the other has it too.
    const bool has_failed =
        process == &worker && Contains(process->err(), "is not a finite number");
    CHECK_MESSAGE(
        (has_failed || Contains(process->err(), "the run has failed: " + cause.substr(0, 20))),
        process->err());
    CHECK_FALSE(Contains(process->err(), "Root Cause"));
  }
}

TEST_CASE("an interrupted run keeps what it has made: it is resumed with few steps repeated" *
          doctest::test_suite("thorough 1")) {
  constexpr uint64_t kSteps = 1500;
  const Args no_snapshots_due{"--snapshot-every", "100000"};
  for (const bool is_serial : {false, true}) {
    CAPTURE(is_serial);
    TempFolder temp;
    const std::string run_dir = temp.path() + "/run";
    const Args mode = is_serial ? Args{"--serial"} : Args{};
    Process train(
        temp.path(), "train",
        Args{"train", "--run-dir", run_dir} + mode + FaultJob(kSteps, 2, 2, no_snapshots_due));
    REQUIRE(Becomes([&] { return RowCountIn(run_dir) >= 50; }));
    train.Signal(SIGTERM);
    train.Signal(SIGTERM);  // as `timeout` does
    train.Await();
    INFO(train.err());
    REQUIRE(train.exit_code() == kExitInterrupted);
    const Summary summary = SummaryIn(run_dir);
    REQUIRE(summary.snapshots.size() == 1);
    const uint64_t kept = summary.snapshots[0].version.value();
    CHECK(kept >= 50);
    CHECK(summary.steps <= kept + 50);
    CHECK(Contains(train.err(), "continue with: pando resume " + run_dir));
    CHECK_FALSE(std::filesystem::exists(run_dir + "/final.safetensors"));
    Process exported(temp.path(), "export", {"export", run_dir, temp.path() + "/out.safetensors"});
    exported.Await();
    CHECK(Contains(exported.out(), "snapshot g000-v"));
    Process resume(temp.path(), "resume", {"resume", run_dir});
    resume.Await();
    INFO(resume.err());
    REQUIRE(resume.exit_code() == kExitCompleted);
    CHECK(SummaryIn(run_dir).weights_hash == SerialHash(kSteps));
  }
}

TEST_CASE("a run whose scheduler is killed while it ends says what the files say") {
  TrainingRun run({"--snapshot-every", "20"});
  REQUIRE(Becomes([&] { return RowCountIn(run.run_dir) >= 60; }));
  REQUIRE(Becomes([&] {  // a snapshot is complete
    Process exported(run.temp.path(), "export",
                     {"export", run.run_dir, run.temp.path() + "/newest.safetensors"});
    exported.Await();
    return exported.exit_code() == kExitCompleted;
  }));
  const pid_t scheduler = run.children["scheduler"][0];
  kill(scheduler, SIGSTOP);
  run.train.Signal(SIGTERM);
  REQUIRE(Becomes([&] {
    run.train.Signal(SIGINT);  // does not wait for the scheduler
    return !run.train.is_running();
  }));
  CHECK(run.train.exit_code() == kExitInterrupted);
  const Summary summary = SummaryIn(run.run_dir);
  CHECK(summary.status == kStatusInterrupted);
  CHECK(summary.steps >= 60);
  CHECK_FALSE(summary.snapshots.empty());
}

}  // namespace
}  // namespace pando
