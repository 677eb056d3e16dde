#include "scheduler/placement/owner_plan.h"

#include <doctest/doctest.h>

#include <numeric>

namespace pando {
namespace {

std::vector<WorkerSpeed> ListWorkers(std::vector<uint64_t> speeds) {
  std::vector<WorkerSpeed> workers;
  for (uint64_t us : speeds)
    workers.push_back({NodeId(static_cast<uint32_t>(workers.size() + 10)), us});
  return workers;
}

TEST_CASE("workers of unknown or equal speed get shares as even as they come") {
  for (uint32_t n : {1u, 2u, 5u, 8u, 64u}) {
    for (uint32_t count = 1; count <= 7; ++count) {
      for (uint64_t us : {0, 700}) {
        const auto shares = ShareMicroBatches(n, ListWorkers(std::vector<uint64_t>(count, us)));
        CHECK(std::accumulate(shares.begin(), shares.end(), 0u) == n);
        for (uint32_t share : shares) {
          CHECK(share >= n / count);
          CHECK(share <= n / count + 1);
        }
      }
    }
  }
}

TEST_CASE("two workers over eight micro-batches hold one subtree each") {
  const auto workers = ListWorkers({0, 0});
  const auto runs = SpreadInRuns(ShareMicroBatches(8, workers), workers, 8);
  CHECK(runs[3] == NodeId(10));
  CHECK(runs[4] == NodeId(11));
}

TEST_CASE("a slow worker gets less, a little slower one as much as before") {
  CHECK(ShareMicroBatches(8, ListWorkers({1000, 3000})) == std::vector<uint32_t>{6, 2});
  CHECK(ShareMicroBatches(8, ListWorkers({1000, 1150})) == std::vector<uint32_t>{4, 4});
  CHECK(ShareMicroBatches(8, ListWorkers({1000, 1'000'000})) == std::vector<uint32_t>{8, 0});
  CHECK(ShareMicroBatches(8, ListWorkers({1000, 0})) == std::vector<uint32_t>{4, 4});
}

TEST_CASE("a worker on trial gets one micro-batch if another worker can spare one") {
  auto workers = ListWorkers({1000, 1'000'000, 1000});
  workers[1].is_on_trial = true;
  CHECK(ShareMicroBatches(8, workers) == std::vector<uint32_t>{3, 1, 4});
  CHECK(ShareMicroBatches(2, workers) == std::vector<uint32_t>{1, 0, 1});
  workers[1].micro_batch_us = 1000;
  CHECK(ShareMicroBatches(9, workers) == std::vector<uint32_t>{3, 3, 3});
  CHECK(ShareMicroBatches(1, {{NodeId(1), 0, true}}) == std::vector<uint32_t>{1});
}

TEST_CASE("without workers no micro-batch has an owner") {
  CHECK(SpreadInRuns({}, {}, 2) == std::vector<NodeId>{kUnknownNode, kUnknownNode});
}

TEST_CASE("a hand-over keeps its first step when another view comes in between") {
  const auto all_live = [](NodeId) { return true; };
  const std::vector<MicroBatchOwner> before{{.worker = NodeId(1)}};
  const auto first = HandOverTo({NodeId(2)}, before,
                                {.is_living = all_live, .lowest = Step(5), .first_step = Step(9)});
  CHECK(first[0].first_step == Step(9));
  CHECK(first[0].previous == NodeId(1));
  const auto second = HandOverTo(
      {NodeId(2)}, first, {.is_living = all_live, .lowest = Step(7), .first_step = Step(11)});
  CHECK(second[0].first_step == Step(9));
  const auto over = HandOverTo({NodeId(2)}, second,
                               {.is_living = all_live, .lowest = Step(9), .first_step = Step(13)});
  CHECK(over[0].first_step == Step(0));
  CHECK(over[0].previous == kUnknownNode);
}

TEST_CASE("a worker that dies before it takes over leaves the work to its owner") {
  const auto first_lives = [](NodeId node) { return node == NodeId(1); };
  const std::vector<MicroBatchOwner> before{
      {.worker = NodeId(2), .first_step = Step(9), .previous = NodeId(1)}};
  const auto owners = HandOverTo(
      {NodeId(1)}, before, {.is_living = first_lives, .lowest = Step(5), .first_step = Step(8)});
  CHECK(owners[0].worker == NodeId(1));
  CHECK(owners[0].previous == kUnknownNode);
}

TEST_CASE("measured speed is evened out over time") {
  SpeedMeter meter;
  CHECK(meter.micro_batch_us() == 0);
  meter.Observe(1000);
  CHECK(meter.micro_batch_us() == 1000);
  meter.Observe(2000);
  CHECK(meter.micro_batch_us() == 1300);
  meter.Observe(0);
  CHECK(meter.micro_batch_us() == 1300);
}

}  // namespace
}  // namespace pando
