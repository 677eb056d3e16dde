// --strategy allreduce through real processes: the weights are the servers', a death is the end,
// and the group goes on from its last snapshot.
#include <doctest/doctest.h>

#include <csignal>

#include "tests/e2e/fault_run.h"
#include "tests/e2e/job_by_hand.h"

namespace pando {
namespace {

const Args kAllreduce{"--strategy", "allreduce"};
const Args kTwoOfTwo{"--workers", "2", "--micro-batches", "2"};

struct GroupResult {
  Summary summary;
  std::vector<std::string> rows;
  std::string weights;
};

GroupResult TrainGroup(const Args& job) {
  Household household;
  Process train(
      household.path(), "train",
      // A busy machine may starve a process for longer than the default lease.
      Args{"train", "--run-dir", household.run_dir(), "--set", "run.lease_ms=20000"} + job);
  train.Await();
  INFO(train.err());
  REQUIRE(train.exit_code() == kExitCompleted);
  CHECK(household.Living().empty());
  CHECK_FALSE(std::filesystem::exists(household.run_dir() + "/group"));
  return {SummaryIn(household.run_dir()), TrainingColumnsIn(household.run_dir()),
          ReadBytes(household.run_dir() + "/final.safetensors")};
}

void CheckSameResult(const GroupResult& run, const GroupResult& other) {
  CHECK(run.summary.weights_hash == other.summary.weights_hash);
  CHECK(run.weights == other.weights);
  CHECK(run.rows == other.rows);
  CHECK(run.summary.test_accuracy == other.summary.test_accuracy);
  CHECK(run.summary.test_loss == other.summary.test_loss);
  CHECK(run.summary.job_hash == other.summary.job_hash);
}

TEST_CASE("two workers with a micro-batch each make the servers' weights, metrics and accuracy") {
  const std::vector<Args> features{{},
                                   {"--clip-norm", "0.5"},
                                   {"--optimizer", "lamb", "--weight-decay", "0.01"},
                                   {"--optimizer", "lars", "--lr", "1", "--momentum", "0.9"}};
  for (const Args& feature : features) {
    CAPTURE(feature);
    const GroupResult servers = TrainGroup(TinyJob(kTwoOfTwo + Args{"--strategy", "ps"} + feature));
    CHECK(servers.rows.size() == kTinySteps);
    CheckSameResult(TrainGroup(TinyJob(kTwoOfTwo + kAllreduce + feature)), servers);
    CheckSameResult(
        TrainGroup(TinyJob(kTwoOfTwo + kAllreduce + feature +
                           Args{"--threads", "2", "--set", "run.allreduce=halving-doubling"})),
        servers);
  }
}

TEST_CASE(
    "ranks with aligned halves of many micro-batches do so too, and one rank is the serial run" *
    doctest::test_suite("thorough 1")) {
  const GroupResult serial = TrainGroup(TinyJob({"--strategy", "single"}));
  CheckSameResult(TrainGroup(TinyJob({"--serial"})), serial);
  CheckSameResult(TrainGroup(TinyJob(kAllreduce + Args{"--workers", "1"})), serial);
  const GroupResult two = TrainGroup(TinyJob(kAllreduce + Args{"--workers", "2"}));
  CHECK(two.summary.job_hash == serial.summary.job_hash);
  // The last step's batch is short, and its tree leans to one side.
  CheckSameResult(two, serial);
}

TEST_CASE("three ranks agree among themselves, more ranks than micro-batches as well" *
          doctest::test_suite("thorough 1")) {
  for (const Args& workers :
       {Args{"--workers", "3"}, Args{"--workers", "5", "--micro-batches", "3"}}) {
    const GroupResult run = TrainGroup(TinyJob(kAllreduce + workers));
    CHECK(run.summary.steps == kTinySteps);
    CHECK(TrainGroup(TinyJob(kAllreduce + workers)).summary.weights_hash ==
          run.summary.weights_hash);
  }
}

TEST_CASE("a killed worker ends the group, and is named") {
  for (const char* rank : {"0", "1"}) {
    Household household;
    Process train(household.path(), "train",
                  Args{"train", "--run-dir", household.run_dir(), "--chaos",
                       std::string("kill worker ") + rank + " at step 50"} +
                      LongJob(kFaultSteps, kTwoOfTwo + kAllreduce));
    train.Await();
    INFO(train.err());
    CHECK(train.exit_code() == kExitFailed);
    CHECK(household.Living().empty());
    const Summary summary = SummaryIn(household.run_dir());
    CHECK(summary.status == kStatusFailed);
    CHECK(Contains(summary.failure, std::string("worker ") + rank));
    CHECK(Contains(summary.failure, "--group-restarts"));
  }
}

TEST_CASE("a group is started again from its last snapshot, to the same weights") {
  const Args job = LongJob(kFaultSteps, kTwoOfTwo + Args{"--snapshot-every", "50"});
  Household household;
  Process train(
      household.path(), "train",
      Args{"train", "--run-dir", household.run_dir(), "--chaos",
           "kill scheduler at step 80; kill worker 0 at step 130", "--group-restarts", "1"} +
          job + kAllreduce);
  train.Await(2 * kEventDeadline);
  INFO(train.err());
  REQUIRE(train.exit_code() == kExitCompleted);
  CHECK(household.Living().empty());
  CHECK(Contains(train.err(), "restarting the group from its last snapshot; 1 of 1"));
  const Summary summary = SummaryIn(household.run_dir());
  CHECK(summary.status == kStatusCompleted);
  CHECK(summary.failure.empty());
  CHECK(summary.weights_hash == TrainGroup(job + Args{"--strategy", "ps"}).summary.weights_hash);
  CHECK(RowCountIn(household.run_dir()) == kFaultSteps);
}

TEST_CASE("chaos goes on in a group's next life" * doctest::test_suite("thorough 1")) {
  Household household;
  Process train(household.path(), "train",
                Args{"train", "--run-dir", household.run_dir(), "--chaos",
                     "kill worker at step 130; kill worker at step 330; kill worker every 60m",
                     "--group-restarts", "2"} +
                    LongJob(kFaultSteps, kTwoOfTwo + kAllreduce + Args{"--snapshot-every", "50"}));
  train.Await(2 * kEventDeadline);
  INFO(train.err());
  CHECK(train.exit_code() == kExitFailed);
  CHECK(SummaryIn(household.run_dir()).status == kStatusCompleted);
  CHECK(RowCountIn(household.run_dir()) == kFaultSteps);
  CHECK(Contains(train.err(), "from its last snapshot; 2 of 2"));
  CHECK(Contains(train.err(), "'kill worker every 60m' never came due"));
  CHECK_FALSE(Contains(train.err(), "at step 330' never came due"));
}

TEST_CASE("a worker that is silent is a dead one, and its group is started again") {
  const Args job = LongJob(kFaultSteps, kTwoOfTwo + kAllreduce +
                                            Args{"--snapshot-every", "50", "--set",
                                                 "run.lease_ms=3000", "--group-restarts", "1"});
  Household household;
  Process train(
      household.path(), "train",
      Args{"train", "--run-dir", household.run_dir(), "--chaos", "stop worker 1 1m at step 130"} +
          job);
  train.Await(2 * kEventDeadline);
  INFO(train.err());
  CHECK(train.exit_code() == kExitCompleted);
  CHECK(household.Living().empty());
  CHECK(Contains(train.err(), "worker 1"));
  CHECK(Contains(train.err(), "restarting the group from its last snapshot; 1 of 1"));
}

TEST_CASE("what would come again ends a group at once, with its own words" *
          doctest::test_suite("thorough 1")) {
  Household household;
  Process train(
      household.path(), "train",
      Args{"train", "--run-dir", household.run_dir(), "--group-restarts", "2"} +
          // It diverges once everybody knows that the run has begun.
          LongJob(kFaultSteps, kTwoOfTwo + kAllreduce +
                                   Args{"--schedule", "step", "--set", "schedule.step_size=100",
                                        "--set", "schedule.gamma=1e30"}));
  train.Await();
  INFO(train.err());
  CHECK(train.exit_code() == kExitFailed);
  CHECK(Contains(SummaryIn(household.run_dir()).failure, "the loss is not a finite number"));
  CHECK_FALSE(Contains(train.err(), "restarting"));
}

TEST_CASE("a completed group is not started again for chaos that never came due" *
          doctest::test_suite("thorough 1")) {
  Household household;
  Process train(household.path(), "train",
                Args{"train", "--run-dir", household.run_dir(), "--group-restarts", "2", "--chaos",
                     "kill worker every 60m"} +
                    TinyJob(kTwoOfTwo + kAllreduce));
  train.Await();
  INFO(train.err());
  CHECK(train.exit_code() == kExitFailed);
  CHECK(SummaryIn(household.run_dir()).status == kStatusCompleted);
  CHECK(Contains(train.err(), "'kill worker every 60m' never came due"));
  CHECK_FALSE(Contains(train.err(), "restarting"));
}

TEST_CASE("a run goes on under another strategy" * doctest::test_suite("thorough 1")) {
  const Args job = LongJob(kFaultSteps, kTwoOfTwo + Args{"--snapshot-every", "50"});
  const std::string hash = TrainGroup(job).summary.weights_hash;
  for (const char* first : {"allreduce", "ps"}) {
    const std::string second = first == std::string("ps") ? "allreduce" : "ps";
    Household household;
    Process train(household.path(), "train",
                  Args{"train", "--run-dir", household.run_dir(), "--strategy", first} + job);
    REQUIRE(Becomes([&] { return RowCountIn(household.run_dir()) >= 120 || !train.is_running(); }));
    train.Signal(SIGINT);
    train.Await();
    REQUIRE_MESSAGE(train.exit_code() == kExitInterrupted, train.err());
    Process resume(household.path(), "resume",
                   {"resume", household.run_dir(), "--strategy", second});
    resume.Await(2 * kEventDeadline);
    REQUIRE_MESSAGE(resume.exit_code() == kExitCompleted, resume.err());
    CHECK(SummaryIn(household.run_dir()).weights_hash == hash);
  }
}

// As its log calls it: ranks follow the order of registration.
std::string LoggedName(const Process& worker) {
  const std::string log = worker.err();
  const size_t at = log.find("[worker ");
  REQUIRE(at != std::string::npos);
  return log.substr(at + 1, log.find(']', at) - at - 1);
}

TEST_CASE("a group by hand: no other worker joins, none is drained, a stopped worker is named" *
          doctest::test_suite("thorough 1")) {
  JobByHand job(0, 2, LongJob(100'000, kAllreduce) + Args{"--set", "run.lease_ms=2000"});
  job.AwaitSteps(20);
  const auto said = [&](const Args& args) {
    Process process(job.temp.path(), args[0] + "-late", args + Args{"--join", job.endpoint});
    process.Await();
    CHECK(process.exit_code() == kExitUsage);
    return process.err();
  };
  CHECK(Contains(said({"worker"}), "no other can join"));
  CHECK(Contains(said({"server"}), "no servers"));
  CHECK(Contains(said({"drain", "worker 1"}), "cannot go on without worker 1"));
  const std::string stopped = LoggedName(*job.workers[1]);
  job.workers[1]->Signal(SIGSTOP);
  job.scheduler->Await();
  CHECK(job.scheduler->exit_code() == kExitMemberLost);
  const std::string process = " (process " + std::to_string(job.workers[1]->pid()) + " on ";
  CHECK(Contains(job.scheduler->err(), stopped + process));
  const std::string failure = SummaryIn(job.run_dir).failure;
  CHECK(failure.starts_with(stopped + process));
  CHECK(Contains(failure, "is gone"));
  job.workers[0]->Await();
  CHECK(job.workers[0]->exit_code() == kExitFailed);  // as the run
}

TEST_CASE("what only servers do is refused with what to do instead") {
  TempFolder temp;
  const auto refusal = [&](const Args& more) {
    Process train(temp.path(), "train",
                  Args{"train", "--run-dir", temp.path() + "/run", "--strategy", "allreduce"} +
                      TinyJob() + more);
    train.Await();
    CHECK(train.exit_code() == kExitUsage);
    CHECK_FALSE(std::filesystem::exists(temp.path() + "/run"));
    return train.err();
  };
  CHECK(Contains(refusal({"--servers", "2"}), "--strategy ps"));
  CHECK(Contains(refusal({"--replicas", "1"}), "run.replicas = 1 (--replicas); leave it out"));
  CHECK(Contains(refusal({"--transport", "shm"}), "their own transports"));
  CHECK(Contains(refusal({"--set", "run.lanes=2"}), "run.lanes = 2"));
  CHECK(Contains(refusal({"--verify-every", "3"}), "verify.every"));
  CHECK(Contains(refusal({"--serial"}), "drop one"));
  CHECK(Contains(refusal({"--chaos", "kill server 0 at step 3"}), "there is no server 0"));
  CHECK(Contains(refusal({"--strategy", "ps", "--group-restarts", "1"}), "--max-restarts"));
}

}  // namespace
}  // namespace pando
