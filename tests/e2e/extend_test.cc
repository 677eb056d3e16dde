// `pando resume --steps` and `--epochs`: a run goes on beyond its end, in another folder.
#include <doctest/doctest.h>

#include <filesystem>

#include "common/exit_codes.h"
#include "tests/e2e/run_files.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

// Adam has a state, and its rate is constant: it does not follow from the run's length.
const Args kJob{"--model",        "mlp",
                "--dataset",      "synthetic-digits",
                "--optimizer",    "adam",
                "--global-batch", "100",
                "--set",          "data.synthetic_train_samples=1000",
                "--set",          "data.synthetic_test_samples=100"};

struct Ended {
  int exit_code = 0;
  std::string err;
};
Ended Ran(const TempFolder& temp, const Args& args) {
  Process process(temp.path(), args[0], args);
  process.Await();
  return {process.exit_code(), process.err()};
}

void Train(const TempFolder& temp, const std::string& name, const Args& more) {
  const Ended ended = Ran(temp, Args{"train", "--run-dir", temp.File(name)} + kJob + more);
  REQUIRE_MESSAGE(ended.exit_code == kExitCompleted, ended.err);
}

TEST_CASE("an extended run has the weights of one that was as long from its start") {
  std::vector<Args> forms{{"--workers", "2", "--servers", "2", "--transport", "ipc"}};
#ifdef PANDO_HAS_GLOO
  forms.push_back({"--workers", "2", "--strategy", "allreduce"});
#endif
  for (const Args& form : forms) {
    TempFolder temp;
    const std::string run = temp.File("run");
    Train(temp, "run", form + Args{"--epochs", "2"});
    Train(temp, "long", form + Args{"--epochs", "3"});
    const std::string before = ReadBytes(run + "/summary.json");
    Ended ended = Ran(temp, {"resume", run, "--epochs", "3"});
    REQUIRE_MESSAGE(ended.exit_code == kExitCompleted, ended.err);
    CHECK(
        Contains(ended.err, "extending the run in " + run + " to 30 steps, in " + run + "-to-30"));
    const Summary longer = SummaryIn(run + "-to-30");
    CHECK(longer.weights_hash == SummaryIn(temp.File("long")).weights_hash);
    CHECK(longer.run_id == SummaryIn(run).run_id);
    CHECK(longer.job_hash == SummaryIn(temp.File("long")).job_hash);
    CHECK(RowsIn(run + "-to-30").size() == 30);
    CHECK(ReadBytes(run + "/summary.json") == before);  // the shorter run stays as it was

    // Also from the end of the longer one, into a folder of another name.
    ended = Ran(temp, {"resume", run + "-to-30", "--steps", "32", "--run-dir", temp.File("named")});
    REQUIRE_MESSAGE(ended.exit_code == kExitCompleted, ended.err);
    CHECK(SummaryIn(temp.File("named")).steps == 32);
  }
}

TEST_CASE("a run that cannot be extended says why, and nothing is made") {
  TempFolder temp;
  const std::string run = temp.File("run");
  Train(temp, "run", {"--epochs", "1", "--workers", "1", "--servers", "1"});
  Train(temp, "serial", {"--epochs", "1", "--serial"});
  Train(temp, "early",
        {"--epochs", "9", "--workers", "1", "--servers", "1", "--eval-every-steps", "1",
         "--early-stop-patience", "1"});
  REQUIRE(SummaryIn(temp.File("early")).stopped_early);
  const auto refuse = [&](const Args& args, const std::string& expected) {
    const Ended ended = Ran(temp, Args{"resume"} + args);
    CHECK(ended.exit_code == kExitUsage);
    CHECK_MESSAGE(Contains(ended.err, expected), ended.err);
    CHECK_FALSE(fs::exists(temp.File("new")));
  };
  const Args into{"--run-dir", temp.File("new")};
  refuse(Args{run, "--steps", "10"} + into, "has made 10 steps, and would end after 10; give more");
  refuse(Args{run} + into, "give --steps or --epochs too");
  refuse(Args{run, "--steps", "20", "--set", "train.seed=2"} + into, "train.seed is part of");
  refuse(Args{run, "--steps", "20", "--run-dir", run}, run + " exists already; --run-dir NEW");
  refuse(Args{temp.File("serial"), "--epochs", "2"} + into, "--serial keeps none");
  refuse(Args{temp.File("early"), "--epochs", "10"} + into, " stopped early, at step ");
  refuse(Args{temp.File("none"), "--epochs", "2"} + into, "holds no run");
}

}  // namespace
}  // namespace pando
