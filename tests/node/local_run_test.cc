#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>

#include "common/exit_codes.h"
#include "job/job_file.h"
#include "node/processes.h"
#include "run/run_folder.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

struct Outcome {
  int exit_code;
  Summary summary;
  std::string worker_log;
};

// Runs two servers and two workers that behave as fake_pando does for `fake`.
Outcome Run(const char* fake, const std::string& transport = "tcp") {
  const char* program = std::getenv("PANDO_FAKE_PROGRAM");
  REQUIRE(program != nullptr);
  TempFolder temp;
  Job job;
  job.run_dir = temp.path() + "/run";
  job.transport = transport;
  if (std::string(fake) == "scheduler is silent") job.start_timeout_ms = 200;
  Result<RunFolder> folder = RunFolder::Create(job, false);
  REQUIRE(folder.ok());
  setenv("PANDO_FAKE", fake, 1);
  sigset_t before;
  sigprocmask(SIG_SETMASK, nullptr, &before);
  LocalRunArgs args;
  args.job = job;
  args.restarts_max = 1;
  args.program = program;
  const int exit_code = RunLocal(args);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  Result<Summary> summary = folder->ReadSummary();
  REQUIRE(summary.ok() == (exit_code != kExitFenced));
  Result<std::string> log = ReadTextFile(folder->LogPath("worker-0"));
  return {exit_code, summary.ok() ? *summary : Summary(), log.ok() ? *log : ""};
}

TEST_CASE("a run whose scheduler completes is completed, over tcp and ipc") {
  for (const char* transport : {"tcp", "ipc"}) {
    const Outcome outcome = Run("all is well", transport);
    CHECK(outcome.exit_code == kExitCompleted);
    CHECK(outcome.summary.status == kStatusCompleted);
  }
}

TEST_CASE("a worker that keeps dying ends the run and is its root cause") {
  const Outcome outcome = Run("worker dies");
  CHECK(outcome.exit_code == kExitFailed);
  CHECK(outcome.summary.status == kStatusFailed);
  CHECK(outcome.summary.failure.starts_with("worker "));
  CHECK(outcome.summary.failure.find(": signal 9 (SIGKILL), after 1 restart within ") !=
        std::string::npos);
  CHECK(outcome.summary.failure.ends_with("shows, or raise --max-restarts"));
}

TEST_CASE("a scheduler that fails passes its exit code on") {
  const Outcome outcome = Run("scheduler fails");
  CHECK(outcome.exit_code == kExitUnreached);
  CHECK(outcome.summary.status == kStatusFailed);
  CHECK(outcome.summary.failure == "scheduler: exit code 3");
}

TEST_CASE("a folder where another scheduler leads gets no summary of ours") {
  CHECK(Run("another scheduler leads").exit_code == kExitFenced);
}

TEST_CASE("a scheduler that never listens is given up after start_timeout_ms") {
  const Outcome outcome = Run("scheduler is silent");
  CHECK(outcome.exit_code == kExitUnreached);
  CHECK(outcome.summary.status == kStatusFailed);
  CHECK(outcome.summary.failure.find("did not listen within 200 ms") != std::string::npos);
}

TEST_CASE("Ctrl-C ends every process, one that hangs too, and the summary says interrupted") {
  for (const char* fake : {"interrupted", "interrupted, scheduler hangs"}) {
    const Outcome outcome = Run(fake);
    CHECK(outcome.exit_code == kExitInterrupted);
    CHECK(outcome.summary.status == kStatusInterrupted);
    CHECK(outcome.summary.workers == 2);
  }
}

}  // namespace
}  // namespace pando
