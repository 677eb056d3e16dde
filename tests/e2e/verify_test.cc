// P41 through real processes: a worker that computes one gradient wrongly is found, named, drained,
// and the weights are right all the same. PANDO_PROGRAM is pando_bitflip here (bit_flip.cc).
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <cstdlib>

#include "plan/job_plan.h"
#include "tests/e2e/fault_run.h"

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

}  // namespace
}  // namespace pando
