// Gradients leave while backward still runs, between real processes: the workers count the bytes
// that they push early. How many depends on the use of the cores; what leaves without delays is
// in tests/worker/overlap_test.
#include <doctest/doctest.h>

#include <csignal>
#include <cstdio>

#include "common/exit_codes.h"
#include "tests/e2e/job_by_hand.h"

namespace pando {
namespace {

struct PushedBytes {
  uint64_t all = 0;
  uint64_t early = 0;  // while backward was going on
};

// Returns the bytes of both workers over the whole run, as they print them at its end.
PushedBytes TrainCounted(const Args& args) {
  JobByHand job(1, 2, args + Args{"--set", "run.lease_ms=10000"});
  job.scheduler->Await(std::chrono::minutes(3));
  REQUIRE_MESSAGE(job.scheduler->exit_code() == kExitCompleted, job.scheduler->err());
  PushedBytes sum;
  for (const auto& worker : job.workers) {
    worker->Await();
    const std::string text = worker->err();
    const size_t at = text.find("pushed ");
    REQUIRE(at != std::string::npos);
    unsigned long long all = 0, early = 0;
    REQUIRE(std::sscanf(text.c_str() + at, "pushed %llu bytes, %llu of them", &all, &early) == 2);
    sum.all += all;
    sum.early += early;
  }
  MESSAGE("pushed " << sum.all << " bytes, " << 100 * sum.early / sum.all << " % early");
  return sum;
}

// The layers that LeNet-5 computes in backward before its convolutions: 400 to 120, and first 84 to
// 10 and 120 to 84.
constexpr uint64_t kFirstLinearBytes = (400 * 120 + 120) * sizeof(float);
constexpr uint64_t kOtherLinearBytes = (120 * 84 + 84 + 84 * 10 + 10) * sizeof(float);

TEST_CASE("LeNet-5 pushes its first linear layer before backward ends") {
  constexpr uint64_t kSteps = 100;
  const PushedBytes pushed = TrainCounted(LongJob(kSteps, {"--model", "lenet5"}));
  // Each worker pushes one sum a step. The other linear layers alone would be 18 % of the bytes;
  // 51 % were early on a machine that three builds loaded.
  const uint64_t others = 2 * kSteps * kOtherLinearBytes;
  REQUIRE(pushed.all >= others + 2 * kSteps * kFirstLinearBytes);
  CHECK(pushed.early >= others + kFirstLinearBytes);
}

TEST_CASE("one of a host's two workers pushes for both (P6a)") {
  constexpr uint64_t kSteps = 100;
  JobByHand job(1, 2, LongJob(kSteps, {"--model", "lenet5", "--host-sum", "always"}));
  job.scheduler->Await(std::chrono::minutes(3));
  REQUIRE_MESSAGE(job.scheduler->exit_code() == kExitCompleted, job.scheduler->err());
  uint64_t pushed = 0, given = 0;
  for (const auto& worker : job.workers) {
    worker->Await();
    const std::string text = worker->err();
    REQUIRE(Contains(text, "pushed "));
    pushed += BytesAfter(text, "pushed ");
    given += BytesAfter(text, "gave ");
  }
  MESSAGE("pushed " << pushed << " bytes, gave " << given);
  constexpr uint64_t kBytes = 61706 * sizeof(float);  // LeNet-5's, without metrics
  CHECK(given >= kSteps * kBytes);
  // The first step's sums do not wait; on a loaded machine others may be pushed separately.
  CHECK(pushed >= kSteps * kBytes);
  CHECK(pushed < kSteps * kBytes * 3 / 2);
}

TEST_CASE("the workers of a rack take turns as relays, and one of them is killed (P6a)") {
  constexpr uint64_t kSteps = 200;
  const Args flags = LongJob(kSteps, {"--model", "lenet5", "--rack-sum", "always"});
  JobByHand job(2, 3, flags, {"--label", "rack=b"}, {"--label", "rack=a"});
  job.AwaitSteps(20);
  job.workers.front()->Signal(SIGKILL);
  job.scheduler->Await(std::chrono::minutes(3));
  REQUIRE_MESSAGE(job.scheduler->exit_code() == kExitCompleted, job.scheduler->err());
  for (size_t i = 1; i < job.workers.size(); ++i) {
    job.workers[i]->Await();
    const std::string text = job.workers[i]->err();
    CHECK(Contains(text, "before they leave this rack"));
    CHECK(BytesAfter(text, "pushed ") > 0);
    CHECK(BytesAfter(text, "gave ") > 0);
  }
  TempFolder temp;
  Process serial(temp.path(), "serial",
                 Args{"train", "--serial", "--run-dir", temp.path() + "/serial"} + flags);
  serial.Await(std::chrono::minutes(3));
  REQUIRE_MESSAGE(serial.exit_code() == kExitCompleted, serial.err());
  CHECK(SummaryIn(job.run_dir).weights_hash == SummaryIn(temp.path() + "/serial").weights_hash);
}

}  // namespace
}  // namespace pando
