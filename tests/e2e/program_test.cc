// Runs whose model a program declares (P43): examples/least_squares.c as each worker of `pando
// run`.
#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>
#include <set>

#include "common/exit_codes.h"
#include "tests/e2e/run_files.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

std::string LeastSquares() {
  const char* path = std::getenv("PANDO_LEAST_SQUARES");
  REQUIRE(path != nullptr);
  return path;
}

Args RunArgs(const std::string& run_dir, const Args& flags, const std::string& steps) {
  return Args{"run", "--run-dir", run_dir} + flags + Args{LeastSquares(), steps};
}

// The hash of the weights; empty if the run did not complete.
std::string TrainedHash(const TempFolder& temp, const std::string& name, const Args& flags,
                        const std::string& steps) {
  Process run(temp.path(), name, RunArgs(temp.File(name), flags, steps));
  run.Await();
  CAPTURE(run.err());
  CHECK(run.exit_code() == kExitCompleted);
  const Summary summary = SummaryIn(temp.File(name));
  CHECK(summary.test_loss < 1e-4);
  return summary.weights_hash;
}

TEST_CASE("a program's weights are the same for any number of processes and any transport") {
  TempFolder temp;
  std::set<std::string> hashes;
  hashes.insert(TrainedHash(temp, "one", {"--workers", "1", "--servers", "1"}, "300"));
  for (const char* transport : {"tcp", "ipc", "shm"}) {
    CAPTURE(transport);
    hashes.insert(TrainedHash(
        temp, transport,
        {"--workers", "3", "--servers", "2", "--transport", transport, "--set", "verify.every=3"},
        "300"));
  }
  CHECK(hashes.size() == 1);
  CHECK(!hashes.contains(""));
}

TEST_CASE("killed processes of a program's run leave no trace in its weights") {
  TempFolder temp;
  const std::string undisturbed =
      TrainedHash(temp, "one", {"--workers", "1", "--servers", "1"}, "20000");
  const std::string kills =
      "kill worker at step 500; kill server at step 2000; kill scheduler at step 4000; kill worker "
      "at step 8000";
  const std::string disturbed = TrainedHash(
      temp, "killed",
      {"--workers", "3", "--servers", "2", "--set", "snapshot.every=1000", "--chaos", kills},
      "20000");
  CHECK(disturbed == undisturbed);
  CHECK(SummaryIn(temp.File("killed")).faults.size() == 4);
}

TEST_CASE("a program's run that was stopped is resumed with other numbers of processes") {
  TempFolder temp;
  const std::string undisturbed =
      TrainedHash(temp, "one", {"--workers", "1", "--servers", "1"}, "20000");
  const std::string run_dir = temp.File("run");
  Process run(
      temp.path(), "run",
      RunArgs(run_dir, {"--workers", "2", "--servers", "2", "--snapshot-every", "500"}, "20000"));
  REQUIRE(Becomes([&] { return RowCountIn(run_dir) >= 600 || !run.is_running(); }));
  const auto children = ChildrenByRole(run.pid());
  run.Signal(SIGKILL);
  run.Await();
  for (const auto& [role, pids] : children) {
    for (const pid_t pid : pids) REQUIRE(Becomes([pid = pid] { return IsGone(pid); }));
  }
  Process resumed(temp.path(), "resume", {"resume", run_dir, "--workers", "3", "--servers", "1"});
  resumed.Await();
  CAPTURE(resumed.err());
  CHECK(resumed.exit_code() == kExitCompleted);
  CHECK(SummaryIn(run_dir).weights_hash == undisturbed);
}

TEST_CASE("a program that cannot train ends the run with its cause") {
  TempFolder temp;
  const auto run = [&](const std::string& name, const Args& command) {
    auto process = std::make_unique<Process>(
        temp.path(), name,
        Args{"run", "--workers", "1", "--servers", "1", "--run-dir", temp.File(name)} + command);
    process->Await();
    return process;
  };
  SUBCASE("it exits before it declares anything") {
    const auto failed = run("failed", {"sh", "-c", "echo no such data >&2; exit 7"});
    CHECK(failed->exit_code() == kExitFailed);
    CHECK(Contains(failed->err(), "worker 0"));
    CHECK(Contains(failed->err(), "no such data"));
  }
  SUBCASE("it leaves without an error before it declares anything") {
    const auto failed = run("left", {"true"});
    CHECK(failed->exit_code() == kExitFailed);
    CHECK(Contains(failed->err(), "all 1 programs have ended with exit code 0"));
  }
  SUBCASE("it never declares anything") {
    const auto failed = run("silent", {"--set", "run.start_timeout_ms=300", "sleep", "60"});
    CHECK(failed->exit_code() == kExitUnreached);
    CHECK(Contains(failed->err(), "no program has declared the model within"));
  }
}

TEST_CASE("flags that are none of pando run, and programs that are none, are one error") {
  TempFolder temp;
  const auto error = [&](const Args& args) {
    Process run(temp.path(), "run", Args{"run"} + args);
    run.Await();
    CHECK(run.exit_code() == kExitUsage);
    REQUIRE(run.err_lines().size() == 1);
    return run.err_lines()[0];
  };
  CHECK(Contains(error({}), "no program to run"));
  CHECK(Contains(error({"--epochs", "3", "train.py"}), "unknown flag '--epochs'"));
  CHECK(Contains(error({"--attach"}), "--endpoint-file"));
  CHECK(Contains(error({"true", "--", "false"}), "'true' and 'false' are both a program"));
  CHECK(Contains(error({"--", "no-such-program", "--epochs"}), "no program 'no-such-program'"));
  CHECK(Contains(error({"--set", "train.steps=3", "true"}), "train.steps is the program's to say"));
  Process scheduler(temp.path(), "scheduler",
                    {"scheduler", "--bind", "tcp://127.0.0.1:0", "--model", "external", "--dataset",
                     "external", "--staleness", "1"});
  scheduler.Await();
  CHECK(scheduler.exit_code() == kExitUsage);
  CHECK(Contains(scheduler.err(), "train.staleness is the program's to say"));
  Process node(temp.path(), "node", {"node", "--join", "tcp://127.0.0.1:1", "--wrokers", "4"});
  node.Await();
  CHECK(node.exit_code() == kExitUsage);
  CHECK(Contains(node.err(), "unknown flag '--wrokers'"));
}

TEST_CASE("only the program can compute with its model, and any command exports it") {
  TempFolder temp;
  const Args flags{"--workers",        "1",   "--servers",       "1",
                   "--snapshot-every", "100", "--snapshot-best", "true"};
  const std::string hash = TrainedHash(temp, "run", flags, "300");
  const auto exported = [&](const Args& choice) {
    Process command(temp.path(), "export",
                    Args{"export", temp.File("run"), temp.File("out.safetensors")} + choice);
    command.Await();
    return command.out() + command.err();
  };
  CHECK(Contains(exported({}), "final weights after 300 steps, weights_hash " + hash));
  CHECK(Contains(exported({"--step", "300"}), hash));
  CHECK(Contains(exported({"--best"}), "best weights after "));
  CHECK(Contains(exported({"--ema"}), "has no averaged weights"));
  const Summary summary = SummaryIn(temp.File("run"));
  CHECK_FALSE(summary.test_accuracy);  // it gives its loss alone
  CHECK_FALSE(summary.best_step);
  CHECK(summary.best_weights_step);
  CHECK(Contains(ReadBytes(temp.File("run/metrics.csv")), "\n300,"));
  Process evaluate(temp.path(), "evaluate", {"evaluate", temp.File("run")});
  evaluate.Await();
  CHECK(evaluate.exit_code() == kExitUsage);
  CHECK(Contains(evaluate.err(), "the model and the data are a program's"));
}

}  // namespace
}  // namespace pando
