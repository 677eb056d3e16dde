#include "run/update_threads.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>

namespace pando {
namespace {

TEST_CASE("updates of a shard run in their order, each on its shard's thread") {
  constexpr uint32_t kShards = 5;
  constexpr uint64_t kSteps = 200;
  struct Done {
    std::vector<Step> steps;
    std::set<std::thread::id> threads;
  };
  for (const uint32_t thread_count : {1u, 3u, 8u}) {
    std::array<Done, kShards> done;
    {
      UpdateThreads threads(thread_count, [&](const GradientReady& gradient) {
        Done& shard = done.at(gradient.shard.value());
        shard.steps.push_back(gradient.step);
        shard.threads.insert(std::this_thread::get_id());
      });
      for (uint64_t step = 0; step < kSteps; ++step) {
        for (uint32_t s = 0; s < kShards; ++s)
          threads.Push({.step = Step(step), .shard = ShardId(s)});
      }
    }
    std::set<std::thread::id> all;
    for (const Done& shard : done) {
      REQUIRE(shard.steps.size() == kSteps);
      for (uint64_t step = 0; step < kSteps; ++step) CHECK(shard.steps[step] == Step(step));
      CHECK(shard.threads.size() == 1);
      all.insert(*shard.threads.begin());
    }
    CHECK(all.size() == std::min(thread_count, kShards));
    CHECK_FALSE(all.contains(std::this_thread::get_id()));
  }
}

// As on every thread that computes (P35).
TEST_CASE("updates flush subnormal numbers to zero") {
  volatile float half = 0.5f;
  float product = 1;
  {
    UpdateThreads threads(
        1, [&](const GradientReady&) { product = std::numeric_limits<float>::min() * half; });
    threads.Push({});
  }
  CHECK(product == 0);
}

}  // namespace
}  // namespace pando
