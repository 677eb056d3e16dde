// The program in surroundings that are not a terminal's: logs that cannot be written, readers that
// leave, signals that a parent ignores, few open files, paths in another encoding.
#include <doctest/doctest.h>

#include <csignal>
#include <filesystem>

#include "common/exit_codes.h"
#include "tests/e2e/run_files.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

// Runs what follows in a shell that first does this.
Args Through(const std::string& before, const std::string& redirections = "") {
  return {"sh", "-c", before + "exec \"$@\" " + redirections, "sh"};
}

Args TrainInto(const std::string& run_dir, const Args& more = {}) {
  return Args{"train", "--run-dir", run_dir} + TinyJob(more);
}

TEST_CASE("a log that cannot be written ends no run, and an event names it") {
  std::string redirection;
  SUBCASE("a full disk") { redirection = "2>/dev/full"; }
  SUBCASE("closed") { redirection = "2>&- >&- <&-"; }
  CAPTURE(redirection);
  TempFolder temp;
  const std::string run_dir = temp.File("run");
  Process train(temp.path(), "train", TrainInto(run_dir), Through("", redirection));
  train.Await();
  CHECK(train.exit_code() == kExitCompleted);
  CHECK(SummaryIn(run_dir).status == kStatusCompleted);
  const bool is_lost = redirection == "2>/dev/full";  // a closed one was given up
  CHECK(Contains(ReadBytes(run_dir + "/events.jsonl"), "log-lost") == is_lost);
}

TEST_CASE("a reader that leaves ends no run") {
  TempFolder temp;
  const std::string run_dir = temp.File("run");
  Process train(temp.path(), "train", TrainInto(run_dir, {"--json"}),
                {"bash", "-c", "set -o pipefail; \"$@\" 2>&1 | true", "bash"});
  train.Await();
  CHECK(train.exit_code() == kExitCompleted);
  CHECK(SummaryIn(run_dir).status == kStatusCompleted);
}

TEST_CASE("a result that cannot be written is an error") {
  TempFolder temp;
  Process dry(temp.path(), "dry", TrainInto(temp.File("run"), {"--dry-run"}),
              Through("", ">/dev/full"));
  dry.Await();
  CHECK(dry.exit_code() == kExitFailed);
  REQUIRE(dry.err_lines().size() == 1);
  CHECK(Contains(dry.err_lines()[0], "could not be written: No space left on device"));
  const std::string text = "a,b\n1,x\n2,y\n3,x\n4,y\n5,x\n6,y\n";
  const std::string table = temp.Write("table.csv", {text.begin(), text.end()});
  Process inspect(temp.path(), "inspect", {"data", "inspect", table, "--label", "b"},
                  Through("", ">/dev/full"));
  inspect.Await();
  CHECK(inspect.exit_code() == kExitFailed);
  CHECK(Contains(inspect.err(), "could not be written"));
}

TEST_CASE("signals that the parent ignores stay ignored, SIGTERM never") {
  TempFolder temp;
  const std::string run_dir = temp.File("run");
  Process train(temp.path(), "train", Args{"train", "--run-dir", run_dir} + LongJob(kEndlessSteps),
                Through("trap '' HUP INT; "));
  REQUIRE(Becomes([&] { return RowCountIn(run_dir) >= 5 || !train.is_running(); }));
  for (const int signal : {SIGHUP, SIGINT}) train.Signal(signal);
  const size_t rows = RowCountIn(run_dir);
  REQUIRE(Becomes([&] { return RowCountIn(run_dir) >= rows + 50 || !train.is_running(); }));
  CHECK(train.is_running());
  train.Signal(SIGTERM);
  train.Await();
  CHECK(train.exit_code() == kExitInterrupted);
  CHECK(SummaryIn(run_dir).status == kStatusInterrupted);
}

// The command says one line with these parts, and nothing is left.
void CheckRefused(const Args& command, const Args& through, const std::vector<std::string>& parts) {
  TempFolder temp;
  Process process(temp.path(), "pando", command, through);
  process.Await();
  INFO(process.err());
  CHECK(process.exit_code() == kExitUsage);
  REQUIRE(process.err_lines().size() == 1);
  for (const std::string& part : parts) CHECK_MESSAGE(Contains(process.err_lines()[0], part), part);
}

TEST_CASE("too few open files are an error at the start that says how many are needed") {
  TempFolder temp;
  CheckRefused({"status", "--join", "tcp://127.0.0.1:1"}, Through("ulimit -n 16; "),
               {"pando opens at least 40 files", "allows 16", "ulimit -n"});
  CheckRefused(TrainInto(temp.File("run"), {"--workers", "28", "--micro-batches", "32"}),
               Through("ulimit -n 64; "),
               {"a scheduler of 28 workers opens at least", "allows 64"});
}

TEST_CASE("the soft limit of open files is raised to the hard one") {
  TempFolder temp;
  Process doctor(temp.path(), "doctor", {"doctor"}, Through("ulimit -Sn 50; ulimit -Hn 3000; "));
  doctor.Await();
  CHECK(Contains(doctor.out(), "open files    3000"));
}

TEST_CASE("a path that is not UTF-8 is named before anything is written") {
  TempFolder temp;
  const std::string run_dir = temp.File("caf\xe9");
  CheckRefused(TrainInto(run_dir), {}, {"must be UTF-8 text", "caf\\xe9"});
  CHECK_FALSE(std::filesystem::exists(run_dir));
  std::filesystem::create_directory(run_dir);
  CheckRefused({"run", "t.py"}, Through("cd '" + run_dir + "'; touch t.py; "),
               {"run.command must be UTF-8 text", "caf\\xe9"});
}

TEST_CASE("a temporary folder with a path too long for sockets is named") {
  TempFolder temp;
  const std::string folder = temp.File(std::string(120, 'x'));
  std::filesystem::create_directory(folder);
  Process train(temp.path(), "train", TrainInto(temp.File("run"), {"--transport", "ipc"}),
                Through("export TMPDIR=" + folder + "; "));
  train.Await();
  CHECK(train.exit_code() == kExitUsage);
  CHECK(Contains(train.err(), "set TMPDIR to a shorter one"));
}

TEST_CASE("a flag that a nested command does not know is named with it") {
  CheckRefused({"data", "inspect", "--foo"}, {},
               {"unknown flag '--foo'", "pando data inspect --help"});
}

TEST_CASE("data without one whole batch, where short batches are dropped, is named") {
  TempFolder temp;
  CheckRefused(
      TrainInto(temp.File("run"), {"--global-batch", "4096", "--set", "train.last_batch=drop"}), {},
      {"train.last_batch", "1923", "4096"});
}

}  // namespace
}  // namespace pando
