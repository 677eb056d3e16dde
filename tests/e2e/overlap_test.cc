// Gradients leave while backward still runs, between real processes: the workers count the bytes
// that they push early. How many depends on who gets the cores; what leaves where nobody is late is
// in tests/worker/overlap_test.
#include <doctest/doctest.h>

#include <cstdio>

#include "cli/exit_codes.h"
#include "tests/e2e/job_by_hand.h"

namespace pando {
namespace {

struct PushedBytes {
  uint64_t all = 0;
  uint64_t early = 0;  // while backward was going on
};

// Of both workers over the whole run, as they say at its end.
PushedBytes Train(const Args& args) {
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

TEST_CASE("LeNet-5 pushes its first linear layer before backward ends") {
  const PushedBytes pushed = Train(LongJob(100, {"--model", "lenet5"}));
  CHECK(pushed.early > 0);
}

}  // namespace
}  // namespace pando
