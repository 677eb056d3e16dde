// Section 12 (I6) through real processes: a server's peak stays within the formula, a worker does
// not grow with the steps. PANDO_MEMORY_STEPS lengthens the latter (the bar: 2,000).
#include <doctest/doctest.h>

#include <cstdlib>

#include "common/exit_codes.h"
#include "tests/e2e/job_by_hand.h"

namespace pando {
namespace {

constexpr uint64_t kMegabyte = 1 << 20;
constexpr uint64_t kServerMargin = 50 * kMegabyte;  // program, libraries, sockets, allocator
constexpr uint64_t kWorkerGrowthMax = 4 * kMegabyte;

// An MLP of 784 x 5120 x 4096 x 512 x 10, with biases: 27.1 million parameters.
constexpr uint64_t kMlpParameters =
    784 * 5120 + 5120 + 5120 * 4096 + 4096 + 4096 * 512 + 512 + 512 * 10 + 10;
static_assert(kMlpParameters >= 25'000'000);

// Section 12, over all shards: two records, a pin, a pending node and an unsent reply per worker,
// all of the parameters' size; the optimizer's state in the newest record, and once more in the
// making.
uint64_t ServerBytesMax(uint64_t parameter_bytes, uint64_t workers, uint64_t states) {
  const uint64_t records = 2 + 1;
  return parameter_bytes * (records + workers + workers + 2 * states);
}

void CheckServer(const std::string& optimizer, uint64_t states, uint32_t workers) {
  CAPTURE(optimizer);
  JobByHand job(1, workers,
                {"--model",
                 "mlp",
                 "--set",
                 "model.hidden=[5120,4096,512]",
                 "--dataset",
                 "synthetic-digits",
                 "--set",
                 "data.synthetic_train_samples=320",
                 "--set",
                 "data.synthetic_test_samples=100",
                 "--global-batch",
                 "32",
                 "--micro-batches",
                 "4",
                 "--optimizer",
                 optimizer,
                 "--lr",
                 "0.001",
                 "--set",
                 "optimizer.momentum=0.9",
                 "--epochs",
                 "2",
                 "--set",
                 "run.lease_ms=20000"});
  job.scheduler->Await(std::chrono::minutes(5));
  CHECK_MESSAGE(job.scheduler->exit_code() == kExitCompleted, job.scheduler->err());
  CHECK(SummaryIn(job.run_dir).parameter_count == kMlpParameters);
  for (Process* node : job.Nodes()) node->Await();
  const uint64_t allowed = ServerBytesMax(kMlpParameters * sizeof(float), workers, states);
  const uint64_t peak = job.servers[0]->peak_memory_bytes();
  MESSAGE(optimizer << ", " << workers << " workers: the server's peak is " << peak / kMegabyte
                    << " MB, the formula gives " << allowed / kMegabyte
                    << " MB, the parameters take " << kMlpParameters * sizeof(float) / kMegabyte
                    << " MB");
  CHECK(peak <= allowed + kServerMargin);
  for (const auto& worker : job.workers) {
    MESSAGE("a worker's peak is " << worker->peak_memory_bytes() / kMegabyte << " MB");
  }
}

TEST_CASE("a server of 27 million parameters stays within the bound of section 12" *
          doctest::test_suite("thorough 1")) {
  CheckServer("sgd", 1, 2);
  CheckServer("adam", 2, 1);
}

TEST_CASE("a worker does not grow with the steps") {
  const char* wanted = std::getenv("PANDO_MEMORY_STEPS");
  const uint64_t steps = wanted == nullptr ? 600 : std::strtoull(wanted, nullptr, 10);
  constexpr uint64_t kWarmUpSteps = 200;
  JobByHand job(1, 1, LongJob(1'000'000, {"--set", "run.lease_ms=10000"}));
  job.AwaitSteps(kWarmUpSteps);
  const uint64_t worker_before = ResidentBytes(job.workers[0]->pid());
  const uint64_t server_before = ResidentBytes(job.servers[0]->pid());
  job.AwaitSteps(steps);
  const uint64_t worker_after = ResidentBytes(job.workers[0]->pid());
  const uint64_t server_after = ResidentBytes(job.servers[0]->pid());
  MESSAGE("after " << kWarmUpSteps << " and " << steps << " steps: worker " << worker_before / 1024
                   << " and " << worker_after / 1024 << " kB, server " << server_before / 1024
                   << " and " << server_after / 1024 << " kB");
  CHECK(worker_after <= worker_before + kWorkerGrowthMax);
  CHECK(server_after <= server_before + kWorkerGrowthMax);
}

}  // namespace
}  // namespace pando
