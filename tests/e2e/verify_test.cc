// P41 through real processes: a worker that computes one gradient wrongly is found, named, drained,
// and the weights are right all the same. PANDO_PROGRAM is pando_bitflip here (bit_flip.cc).
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <csignal>
#include <cstdlib>

#include "plan/job_plan.h"
#include "tests/e2e/fault_run.h"
#include "tests/e2e/job_by_hand.h"

namespace pando {
namespace {

constexpr uint32_t kVerifyEvery = 4;
constexpr MicroBatch kFlipped{3};

// The first step from here on in which the micro-batch is computed twice.
Step VerifiedStepFrom(uint64_t first) {
  Job job;
  job.verify_every = kVerifyEvery;
  const JobPlan plan(job, {.train_samples = kTinyTrainSamples}, TensorLayout({MetricTensorSpec()}));
  while (!plan.IsVerified(Step(first), kFlipped)) ++first;
  return Step(first);
}

// Whether the run found that this worker computes wrongly; its weights are right in any case.
bool FindsWorker(uint32_t rank, Step step) {
  CAPTURE(rank);
  Household household;
  const std::string flip = fmt::format("{},{},{}", step.value(), kFlipped.value(), rank);
  setenv("PANDO_BIT_FLIP", flip.c_str(), 1);
  Process train(household.path(), "train",
                Args{"train", "--device", "cpu", "--verify-every", std::to_string(kVerifyEvery),
                     "--run-dir", household.run_dir()} +
                    FaultJob(3, 2));
  train.Await(2 * kEventDeadline);
  unsetenv("PANDO_BIT_FLIP");
  INFO(train.err());
  REQUIRE(train.exit_code() == kExitCompleted);
  const Summary summary = SummaryIn(household.run_dir());
  CHECK(summary.weights_hash == SerialHash());
  MESSAGE(summary.verified_micro_batches << " micro-batches verified, "
                                         << summary.unverified_micro_batches << " not");
  CHECK(summary.verified_micro_batches > 0);
  if (summary.rollbacks == 0) return false;
  const std::string events = ReadBytes(household.run_dir() + "/events.jsonl");
  CHECK(Contains(events, fmt::format("have computed different gradients of micro-batch {} of step "
                                     "{}",
                                     kFlipped.value(), step.value())));
  const size_t wrong =
      events.find(fmt::format("had computed micro-batch {} of step {} wrong: it is drained",
                              kFlipped.value(), step.value()));
  REQUIRE(wrong != std::string::npos);
  const size_t line = events.rfind('\n', wrong);
  CHECK(Contains(events.substr(line, wrong - line), fmt::format("worker {} ", rank)));
  return true;
}

TEST_CASE("a worker that flips a bit in one gradient is found, named and drained") {
  const Step step = VerifiedStepFrom(60);
  int found = 0;
  for (uint32_t rank = 0; rank < 3; ++rank) found += FindsWorker(rank, step) ? 1 : 0;
  // Two of the three compute it: its owner and its verifier.
  CHECK(found >= 2);
}

// Three servers with three replicas of each shard, and two workers.
struct Triple {
  explicit Triple(uint64_t steps) : job(0, 2, FaultJob(steps, 2, 3, kMore)) {}
  Process& StartServer(const std::string& flip = "") {
    if (!flip.empty()) setenv("PANDO_RECORD_FLIP", flip.c_str(), 1);
    const std::string name = "server-" + std::to_string(job.servers.size());
    job.servers.push_back(std::make_unique<Process>(
        job.temp.path(), name, Args{"server", "--join", job.endpoint, "--bind", job.Bind(name)}));
    unsetenv("PANDO_RECORD_FLIP");
    return *job.servers.back();
  }
  std::string Events() const { return ReadBytes(job.run_dir + "/events.jsonl"); }
  // All shards have three replicas again.
  void AwaitReplicas() {
    REQUIRE(Becomes([&] {
      const std::string events = Events();
      const size_t view = events.rfind("servers, ");
      const size_t end = events.find('\n', view);
      return view != std::string::npos && events[view - 2] == '3' &&
             Contains(events.substr(view, end - view), " 0 replicas syncing");
    }));
  }
  void CheckEnd(uint64_t steps, uint64_t rollbacks_max = 0) {
    job.scheduler->Await(2 * kEventDeadline);
    REQUIRE_MESSAGE(job.scheduler->exit_code() == kExitCompleted, job.scheduler->err());
    const Summary summary = SummaryIn(job.run_dir);
    CHECK(summary.weights_hash == SerialHash(steps, kMore));
    CHECK(summary.rollbacks <= rollbacks_max);
  }
  static inline const Args kMore{"--replicas", "3", "--optimizer", "sgd", "--momentum", "0.9"};
  JobByHand job;
};

TEST_CASE("a server with one wrong bit in a version is outvoted, named and replaced") {
  constexpr uint64_t kSteps = 200;
  for (const std::string what : {"parameters", "state"}) {
    for (size_t wrong = 0; wrong < 3; ++wrong) {
      CAPTURE(what);
      CAPTURE(wrong);
      Triple run(kSteps);
      for (size_t i = 0; i < 3; ++i) run.StartServer(i == wrong ? "60,0," + what : "");
      run.CheckEnd(kSteps, /*rollbacks_max=*/1);  // it may lead the shard
      CHECK(Contains(run.Events(), "\"outvoted\""));
      CHECK(Contains(run.Events(), "have made different versions 60 of shard 0"));
      CHECK(Contains(run.job.servers[wrong]->err(), "outvoted"));
    }
  }
}

TEST_CASE("two of three servers die at one instant, and nothing goes back") {
  constexpr uint64_t kSteps = 600;
  Triple run(kSteps);
  for (size_t i = 0; i < 3; ++i) run.StartServer();
  std::vector<Process*> living;
  for (const auto& server : run.job.servers) living.push_back(server.get());
  for (size_t round = 0; round < 3; ++round) {
    run.job.AwaitSteps(50 * (round + 1));
    run.AwaitReplicas();
    living[0]->Signal(SIGKILL);
    living[1]->Signal(SIGKILL);
    living = {&run.StartServer(), living[2], &run.StartServer()};
  }
  run.CheckEnd(kSteps);
}

}  // namespace
}  // namespace pando
