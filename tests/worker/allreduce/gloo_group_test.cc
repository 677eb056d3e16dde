// Sums over gloo between threads, and between processes of which one dies.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <bit>
#include <functional>
#include <thread>
#include <vector>

#include "files/folder_files.h"
#include "tests/temp_folder.h"
#include "worker/allreduce/allreduce_group.h"

namespace pando {
namespace {

using enum AllreduceAlgorithm;
using OfRank = std::function<void(uint32_t rank, AllreduceGroup& group)>;

const std::atomic<bool> kNotCancelled = false;

GlooOptions MakeOptions(RunFiles& files, uint32_t rank, uint32_t size,
                        AllreduceAlgorithm algorithm = kAuto) {
  return {.rank = rank,
          .size = size,
          .address = "127.0.0.1",
          .files = &files,
          .prefix = "group",
          .algorithm = algorithm,
          .step_bytes = size_t{2} << 20};  // kAuto: by ring
}

// Each rank has its own thread. A rank that closes first resets connections that others still read,
// so all stay until all are done.
void WithRanks(uint32_t size, AllreduceAlgorithm algorithm, const OfRank& of_rank) {
  TempFolder temp;
  std::vector<std::thread> threads;
  std::vector<Status> connected(size);
  std::barrier all_done(size);
  for (uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      FolderFiles files(temp.path());
      auto group = ConnectGlooGroup(MakeOptions(files, rank, size, algorithm), kNotCancelled);
      connected[rank] = group.status();
      if (group.ok()) of_rank(rank, **group);
      all_done.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : connected) CHECK_MESSAGE(status.ok(), status.message());
}

TEST_CASE("every rank gets the sum over all ranks, for any size and algorithm") {
  for (const AllreduceAlgorithm algorithm : {kAuto, kRing, kHalvingDoubling}) {
    for (const uint32_t size : {1u, 2u, 3u, 5u}) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{3}, size_t{1000}, size_t{300'001}}) {
        CAPTURE(size);
        CAPTURE(count);
        std::vector<std::vector<float>> values(size, std::vector<float>(count));
        std::vector<Status> statuses(size);
        WithRanks(size, algorithm, [&](uint32_t rank, AllreduceGroup& group) {
          for (size_t i = 0; i < count; ++i)
            values[rank][i] = static_cast<float>(i % 1000 + rank * 1000);
          statuses[rank] = group.Sum(values[rank]);
        });
        // Whole numbers below 2^24 add up exactly: size * i + 1000 * (0 + ... + size - 1).
        const uint32_t rank_sum = size * (size - 1) / 2;
        const auto of_ranks = static_cast<float>(1000 * rank_sum);
        for (uint32_t rank = 0; rank < size; ++rank) {
          CHECK_MESSAGE(statuses[rank].ok(), statuses[rank].message());
          size_t wrong = 0;
          for (size_t i = 0; i < count; ++i)
            wrong += values[rank][i] != static_cast<float>(i % 1000 * size) + of_ranks;
          CHECK(wrong == 0);
        }
      }
    }
  }
}

TEST_CASE("the sum of two ranks is a + b, and sums of three are the same bits everywhere") {
  for (const AllreduceAlgorithm algorithm : {kRing, kHalvingDoubling}) {
    constexpr size_t kCount = 70'000;
    for (const uint32_t size : {2u, 3u}) {
      std::vector<std::vector<float>> values(size, std::vector<float>(kCount));
      for (uint32_t rank = 0; rank < size; ++rank) {
        for (size_t i = 0; i < kCount; ++i)
          values[rank][i] = 1.0f / static_cast<float>(i + 3 * rank + 1);
      }
      const std::vector<std::vector<float>> given = values;
      WithRanks(size, algorithm, [&](uint32_t rank, AllreduceGroup& group) {
        CHECK(group.Sum(values[rank]).ok());
        CHECK(group.Sum(values[rank]).ok());  // again, of the same memory
      });
      for (uint32_t rank = 1; rank < size; ++rank)
        CHECK(std::ranges::equal(values[rank], values[0], {}, std::bit_cast<uint32_t, float>,
                                 std::bit_cast<uint32_t, float>));
      if (size > 2) continue;
      size_t wrong = 0;
      for (size_t i = 0; i < kCount; ++i)
        wrong += values[0][i] != 2 * (given[0][i] + given[1][i]);  // exact doubling
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("rank 0's bytes reach all ranks") {
  std::array<uint64_t, 3> words{11, 22, 33};
  WithRanks(3, kAuto, [&](uint32_t rank, AllreduceGroup& group) {
    CHECK(group.Broadcast(std::as_writable_bytes(std::span(&words[rank], 1))).ok());
  });
  CHECK(words == std::array<uint64_t, 3>{11, 11, 11});
}

TEST_CASE("a rank that is killed is an error of the ranks that wait for it") {
  for (const AllreduceAlgorithm algorithm : {kRing, kHalvingDoubling}) {
    TempFolder temp;
    const pid_t victim = fork();
    REQUIRE(victim >= 0);
    if (victim == 0) {  // once it has summed twice, the others have done so once
      FolderFiles files(temp.path());
      auto group = ConnectGlooGroup(MakeOptions(files, 1, 3, algorithm), kNotCancelled);
      std::vector<float> values(100'000, 1);
      for (int i = 0; i < 2 && group.ok(); ++i) std::ignore = (*group)->Sum(values);
      kill(getpid(), SIGKILL);
    }
    std::array<Status, 3> statuses;
    const auto survive = [&](uint32_t rank) {
      FolderFiles files(temp.path());
      auto group = ConnectGlooGroup(MakeOptions(files, rank, 3, algorithm), kNotCancelled);
      REQUIRE_MESSAGE(group.ok(), group.status().message());
      std::vector<float> values(100'000, 1);
      CHECK((*group)->Sum(values).ok());
      CHECK(values[0] == 3);
      for (int i = 0; i < 2 && statuses[rank].ok(); ++i) statuses[rank] = (*group)->Sum(values);
    };
    std::thread other([&] { survive(2); });
    survive(0);
    other.join();
    waitpid(victim, nullptr, 0);
    for (const uint32_t rank : {0u, 2u}) {
      CHECK(statuses[rank].code() == StatusCode::kUnavailable);
      INFO(statuses[rank].message());
      CHECK(statuses[rank].message().find("[127.0.0.1]:") != std::string::npos);
      CHECK(statuses[rank].message().find(".cc") == std::string::npos);
    }
  }
}

TEST_CASE("a rank that waits is freed when its group is closed") {
  for (const AllreduceAlgorithm algorithm : {kRing, kHalvingDoubling}) {
    Status status;
    AllreduceGroup* waiting = nullptr;
    std::atomic<bool> is_about_to_wait = false;
    std::atomic<bool> is_freed = false;
    WithRanks(2, algorithm, [&](uint32_t rank, AllreduceGroup& group) {
      std::vector<float> values(100'000, 1);
      CHECK(group.Sum(values).ok());
      if (rank == 0) {
        waiting = &group;
        is_about_to_wait = true;
        is_about_to_wait.notify_all();
        status = group.Sum(values);
        is_freed = true;
        is_freed.notify_all();
      } else {  // never comes
        is_about_to_wait.wait(false);
        waiting->Close();
        is_freed.wait(false);
      }
    });
    CHECK(status.code() == StatusCode::kUnavailable);
  }
}

TEST_CASE(
    "ranks that do not come are waited for until the timeout, or until the wait is cancelled") {
  TempFolder temp;
  FolderFiles files(temp.path());
  GlooOptions options = MakeOptions(files, 0, 2);
  options.connect_timeout = std::chrono::milliseconds(20);
  auto group = ConnectGlooGroup(options, kNotCancelled);
  REQUIRE(!group.ok());
  CHECK(group.status().code() == StatusCode::kUnavailable);
  CHECK(group.status().message().find("in time") != std::string::npos);
  const std::atomic<bool> cancelled = true;
  options.prefix = "another";
  options.connect_timeout = std::chrono::hours(1);
  group = ConnectGlooGroup(options, cancelled);
  REQUIRE(!group.ok());
  CHECK(group.status().message().find("called off") != std::string::npos);
}

TEST_CASE("a folder that cannot be written to is named") {
  FolderFiles files("/dev/null");
  auto group = ConnectGlooGroup(MakeOptions(files, 0, 2), kNotCancelled);
  REQUIRE(!group.ok());
  CHECK(group.status().message().find("/dev/null/group") != std::string::npos);
}

}  // namespace
}  // namespace pando
