// Which group sums, and what it sums: ranks are threads, and NCCL is the host's (libraries.cc in
// tests/cuda_on_host).
#include "worker/allreduce/allreduce_group.h"

#include <doctest/doctest.h>

#include <array>
#include <barrier>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/opened_gpu.h"
#include "kernels/ops.h"
#include "tests/worker/allreduce/exchange_fixture.h"

namespace pando {
namespace {

constexpr uint32_t kRanks = 3;
const std::atomic<bool> kNotCancelled = false;

// Shared by the ranks of the group below.
struct Table {
  std::barrier<> all{kRanks};
  std::mutex mutex;
  std::vector<float> sums;
  std::vector<std::byte> word;
  int sum_count = 0;  // calls of rank 0
};

class TableGroup : public AllreduceGroup {
 public:
  TableGroup(Table& table, uint32_t rank) : table_(table), rank_(rank) {}

  Status Sum(std::span<float> values) override {
    {
      const std::lock_guard lock(table_.mutex);
      table_.sums.resize(values.size());
      for (size_t i = 0; i < values.size(); ++i) table_.sums[i] += values[i];
      table_.sum_count += rank_ == 0 ? 1 : 0;
    }
    table_.all.arrive_and_wait();
    std::ranges::copy(table_.sums, values.begin());
    table_.all.arrive_and_wait();
    if (rank_ == 0) table_.sums.clear();
    table_.all.arrive_and_wait();
    return Status();
  }
  Status Broadcast(std::span<std::byte> bytes) override {
    if (rank_ == 0) table_.word.assign(bytes.begin(), bytes.end());
    table_.all.arrive_and_wait();
    std::ranges::copy(table_.word, bytes.begin());
    table_.all.arrive_and_wait();
    return Status();
  }
  void Close() override {}

 private:
  Table& table_;
  const uint32_t rank_;
};

void WithRanks(const std::function<void(uint32_t rank)>& of_rank) {
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kRanks; ++rank) threads.emplace_back(of_rank, rank);
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("where every rank has a GPU, GPUs sum and the rest goes by the group below") {
  Table table;
  std::vector<std::vector<float>> values(kRanks);
  std::vector<int> words(kRanks);
  std::vector<Status> statuses(kRanks);
  int below_count = 0;
  WithRanks([&](uint32_t rank) {
    Result<OpenedGpu> gpu = OpenCuda({});
    Result<JoinedGpus> joined = JoinGpus({.device = gpu->device(), .rank = rank, .size = kRanks},
                                         std::make_unique<TableGroup>(table, rank), kNotCancelled);
    statuses[rank] = joined.status();
    if (!joined.ok()) return;
    if (rank == 0) below_count = table.sum_count;
    for (int call = 0; call < 3; ++call) {  // 0 and 1 and 2, ten times as many, and so on
      values[rank] = {float(rank), 10.0f * float(rank), float(call)};
      std::ignore = joined->group->Sum(values[rank]);
    }
    words[rank] = static_cast<int>(rank) + 7;
    statuses[rank] = joined->group->Broadcast(std::as_writable_bytes(std::span(&words[rank], 1)));
    CHECK(joined->refusal == "");
  });
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    CHECK_MESSAGE(statuses[rank].ok(), statuses[rank].message());
    CHECK(values[rank] == std::vector<float>{3, 30, 6});
    CHECK(words[rank] == 7);
  }
  CHECK(table.sum_count == below_count);
}

TEST_CASE("GPUs sum what lies in their memory, and one may bring its values from the host") {
  Table table;
  std::vector<std::vector<float>> sums(kRanks, std::vector<float>(5));
  WithRanks([&](uint32_t rank) {
    Result<OpenedGpu> gpu = OpenCuda({});
    Result<JoinedGpus> joined = JoinGpus({.device = gpu->device(), .rank = rank, .size = kRanks},
                                         std::make_unique<TableGroup>(table, rank), kNotCancelled);
    REQUIRE(joined.ok());
    REQUIRE(joined->group->sums_on_gpus());
    const std::vector<float> ours{1, 2, 3, 4, 5};
    Status summed;
    if (rank == 1) {
      sums[rank] = ours;
      summed = joined->group->Sum(sums[rank]);
    } else {
      FloatBuffer first = DeviceFloats(gpu->device(), 2), second = DeviceFloats(gpu->device(), 3);
      Upload(gpu->device(), std::as_bytes(std::span(ours).first(2)), first.data());
      Upload(gpu->device(), std::as_bytes(std::span(ours).last(3)), second.data());
      Synchronize(gpu->device());
      const std::vector<std::span<const float>> pieces{first.span(), second.span()};
      summed = joined->group->SumOnGpus(pieces, sums[rank]);
    }
    CHECK(summed.ok());
  });
  for (const std::vector<float>& of_rank : sums)
    CHECK(of_rank == std::vector<float>{3, 6, 9, 12, 15});
}

// Two ranks of two contributions each, or of one: NCCL takes those from the GPU's memory.
TEST_CASE("an exchange sums what its GPU holds, by GPUs and by the host, to the same bits") {
  const JobPlan plan = SmallPlan();
  for (const bool by_gpus : {true, false}) {
    CAPTURE(by_gpus);
    Hub hub(2);
    std::vector<OpenedGpu> gpus;
    for (int i = 0; i < 2; ++i) gpus.push_back(*OpenCuda({}));
    const auto group = [&](uint32_t rank) -> std::unique_ptr<AllreduceGroup> {
      auto below = std::make_unique<HubGroup>(hub, rank);
      if (!by_gpus) return below;
      JoinedGpus joined = *JoinGpus({.device = gpus[rank].device(), .rank = rank, .size = 2},
                                    std::move(below), kNotCancelled);
      CHECK(joined.group->sums_on_gpus());
      return std::move(joined.group);
    };
    Rank first(
        plan, 0, [&] { return group(0); }, gpus[0].device());
    Rank second(
        plan, 1, [&] { return group(1); }, gpus[1].device());
    first.exchange.Begin(Step(0), [](Step step) { return step == Step(0) ? 1 : 2; });
    second.exchange.Begin(Step(0), [](Step step) { return step == Step(2) ? 0 : 1; });
    for (uint64_t t = 0; t < 3; ++t) {
      const Step step(t);
      first.AddAll(plan, step, 5, 10);
      if (t > 0) first.AddAll(plan, step, 4, 1);
      if (t < 2) second.AddAll(plan, step, 3, 100);
      const float sum = std::array<float, 3>{110, 111, 11}[t];
      first.CheckStep(step, sum);
      second.CheckStep(step, sum);
      for (Rank* rank : {&first, &second}) {
        rank->exchange.SetHash(Version(t + 1), 7);
        rank->exchange.SetWhole(Version(t + 1));
      }
    }
    for (Rank* rank : {&first, &second}) {  // an exchange that ends early leaves the other waiting
      CHECK(Rank::Next(rank->agreed) == Version(2));
      CHECK(Rank::Next(rank->agreed) == Version(3));
    }
  }
}

TEST_CASE("one rank without a GPU, and all stay with the group below") {
  Table table;
  std::vector<std::vector<float>> values(kRanks);
  std::vector<std::string> refusals(kRanks);
  WithRanks([&](uint32_t rank) {
    Result<OpenedGpu> gpu = OpenCuda({});
    const Device device = rank == 1 ? Device{} : gpu->device();
    Result<JoinedGpus> joined = JoinGpus({.device = device, .rank = rank, .size = kRanks},
                                         std::make_unique<TableGroup>(table, rank), kNotCancelled);
    if (!joined.ok()) return;
    refusals[rank] = joined->refusal;
    values[rank] = {1};
    std::ignore = joined->group->Sum(values[rank]);
  });
  for (uint32_t rank = 0; rank < kRanks; ++rank) CHECK(values[rank] == std::vector<float>{3});
  CHECK(refusals == std::vector<std::string>{"another worker cannot", "a CPU computes",
                                             "another worker cannot"});
}

TEST_CASE("a group that is closed sums no more") {
  Table table;
  std::vector<Status> statuses(kRanks);
  WithRanks([&](uint32_t rank) {
    Result<OpenedGpu> gpu = OpenCuda({});
    Result<JoinedGpus> joined = JoinGpus({.device = gpu->device(), .rank = rank, .size = kRanks},
                                         std::make_unique<TableGroup>(table, rank), kNotCancelled);
    if (!joined.ok() || rank == 2) return;  // a rank that never comes
    std::thread closes([&] { joined->group->Close(); });
    std::vector<float> values{1};
    statuses[rank] = joined->group->Sum(values);
    closes.join();
  });
  CHECK(statuses[0].code() == StatusCode::kUnavailable);
  CHECK(statuses[1].code() == StatusCode::kUnavailable);
}

}  // namespace
}  // namespace pando
