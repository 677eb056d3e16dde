// `pando resume --steps` and `--epochs`: a run goes on beyond its end, in another folder.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/exit_codes.h"
#include "job/job_file.h"
#include "run/run_folder.h"
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

const Args kSmall{"--workers", "1", "--servers", "1"};

TEST_CASE("an extended run has the evaluations of one that was as long from its start") {
  TempFolder temp;
  const std::string run = temp.File("run");
  const Args evaluated = kSmall + Args{"--eval-every-steps", "4"};
  Train(temp, "run", evaluated + Args{"--steps", "10"});
  Train(temp, "long", evaluated + Args{"--steps", "18"});
  const Ended ended = Ran(temp, {"resume", run, "--steps", "18"});
  REQUIRE_MESSAGE(ended.exit_code == kExitCompleted, ended.err);
  const auto steps = [](const std::string& path) {
    std::vector<std::pair<uint64_t, uint64_t>> found;
    for (const EvaluationSummary& evaluation : SummaryIn(path).evaluations)
      found.emplace_back(evaluation.version.value(), evaluation.correct_count);
    return found;
  };
  CHECK(steps(run + "-to-18") == steps(temp.File("long")));
  CHECK(steps(run + "-to-18").size() == 5);  // 4, 8, 12, 16, 18: not 10
}

TEST_CASE("a run's own length resumes it, and folders are named without dots and slashes") {
  TempFolder temp;
  const std::string run = temp.File("run");
  Train(temp, "run", kSmall + Args{"--epochs", "1"});
  for (const Args& same : {Args{"--epochs", "1"}, Args{"--steps", "10"}}) {
    const Ended ended = Ran(temp, Args{"resume", run} + same);
    CHECK(ended.exit_code == kExitCompleted);
    CHECK_MESSAGE(Contains(ended.err, "is finished; there is nothing to resume"), ended.err);
  }
  fs::create_directory(temp.File("other.part"));
  std::ofstream(temp.File("other.part/rest")) << "of a copy that was cut short";
  const std::string dotted = run + "/../run/.";
  for (const auto& [args, folder] :
       {std::pair(Args{"resume", dotted, "--steps", "11"}, run + "-to-11"),
        {Args{"resume", run, "--steps", "11", "--run-dir", temp.path() + "/./other/"},
         temp.File("other")}}) {
    const Ended ended = Ran(temp, args);
    REQUIRE_MESSAGE(ended.exit_code == kExitCompleted, ended.err);
    CHECK(SummaryIn(folder).steps == 11);
    const Result<Job> job = ReadJobFile(folder + "/job.toml");
    REQUIRE(job.ok());
    CHECK(job->run_dir == folder);
    CHECK(job->name == fs::path(folder).filename());
    CHECK_FALSE(fs::exists(folder + ".part"));
    CHECK_FALSE(fs::exists(folder + "/rest"));
  }
}

TEST_CASE("a copy that fails leaves no folder") {
  TempFolder temp;
  const std::string run = temp.File("run");
  Train(temp, "run", kSmall + Args{"--epochs", "1"});
  fs::create_symlink(temp.File("none"), run + "/snapshots/stray");
  const Ended ended = Ran(temp, {"resume", run, "--steps", "20", "--run-dir", temp.File("new")});
  CHECK(ended.exit_code == kExitUsage);
  CHECK_MESSAGE(Contains(ended.err, "cannot copy " + run + "/snapshots"), ended.err);
  for (const char* name : {"new", "new.part"}) CHECK_FALSE(fs::exists(temp.File(name)));
}

TEST_CASE("a rest of an earlier copy that cannot be removed is an error that names it") {
  TempFolder temp;
  const std::string run = temp.File("run"), part = temp.File("new.part");
  Train(temp, "run", kSmall + Args{"--epochs", "1"});
  fs::create_directories(part + "/closed");
  std::ofstream(part + "/closed/rest") << "of a copy that was cut short";
  fs::permissions(part + "/closed", fs::perms::owner_read | fs::perms::owner_exec);
  Args without_rights;  // permissions do not hold for root
  if (geteuid() == 0) without_rights = {"setpriv", "--bounding-set=-dac_override"};
  Process process(temp.path(), "resume",
                  {"resume", run, "--steps", "20", "--run-dir", temp.File("new")}, without_rights);
  process.Await();
  CHECK(process.exit_code() == kExitUsage);
  CHECK_MESSAGE(Contains(process.err(), "cannot remove " + part + ": Permission denied"),
                process.err());
  CHECK_FALSE(fs::exists(temp.File("new")));
  fs::permissions(part + "/closed", fs::perms::owner_all);
}

TEST_CASE("a run that has not ended with its newest snapshot is resumed first") {
  TempFolder temp;
  const std::string run = temp.File("run");
  Train(temp, "run", kSmall + Args{"--epochs", "1"});
  const RunFolder folder = RunFolder::Open(run);
  const Summary ended = SummaryIn(run);
  const auto refuse = [&](const std::string& expected) {
    const Ended tried = Ran(temp, {"resume", run, "--epochs", "2"});
    CHECK(tried.exit_code != kExitCompleted);
    CHECK_MESSAGE(Contains(tried.err, expected), tried.err);
    CHECK_FALSE(fs::exists(run + "-to-20"));
  };
  Summary other = ended;
  other.steps = 11;
  REQUIRE(folder.WriteSummary(other).ok());
  refuse("has no snapshot of its last step (--serial");
  other.status = kStatusInterrupted;
  REQUIRE(folder.WriteSummary(other).ok());
  refuse("resume it first (pando resume " + run + ")");
  std::ofstream(folder.SummaryPath()) << "{";
  refuse(folder.SummaryPath());
  fs::remove(folder.SummaryPath());
  refuse("resume it first (pando resume " + run + ")");
  const Ended resumed = Ran(temp, {"resume", run, "--epochs", "1"});  // as the error says
  CHECK_MESSAGE(resumed.exit_code == kExitCompleted, resumed.err);
  CHECK(SummaryIn(run).weights_hash == ended.weights_hash);
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
    for (const char* name : {"new", "new.part"}) CHECK_FALSE(fs::exists(temp.File(name)));
  };
  const Args into{"--run-dir", temp.File("new")};
  refuse(Args{run, "--steps", "10"} + into, "give --steps or --epochs too");
  refuse(Args{run, "--steps", "9"} + into, "is of 10 steps, and would be of 9; give more");
  refuse(Args{run} + into, "give --steps or --epochs too");
  refuse(Args{run, "--steps", "20", "--set", "train.seed=2"} + into, "train.seed is part of");
  refuse(Args{run, "--steps", "20", "--run-dir", run}, run + " exists already; --run-dir NEW");
  refuse({run, "--steps", "20", "--run-dir", temp.File("\xff")}, "argument 6 must be UTF-8 text");
  refuse(Args{temp.File("serial"), "--epochs", "2"} + into, "--serial keeps none");
  const RunFolder early = RunFolder::Open(temp.File("early"));
  const Args longer = Args{early.path(), "--epochs", "10"} + into;
  refuse(longer, " stopped early, at step ");
  refuse(longer, "pando train --init " + early.WeightsPath());
  fs::remove(early.WeightsPath());
  refuse(longer, "`pando export " + early.path() + " FILE`");
  // A run whose patience ended with its last step did not stop early, and the longer one would.
  Train(temp, "patient",
        kSmall + Args{"--steps", "10", "--eval-every-steps", "5", "--early-stop-patience", "1"});
  Summary patient = SummaryIn(temp.File("patient"));
  patient.evaluations.back().correct_count = 0;
  REQUIRE(RunFolder::Open(temp.File("patient")).WriteSummary(patient).ok());
  refuse(Args{temp.File("patient"), "--steps", "15"} + into, " stopped early, at step 10,");
  refuse(Args{temp.File("none"), "--epochs", "2"} + into, "holds no run");
}

}  // namespace
}  // namespace pando
