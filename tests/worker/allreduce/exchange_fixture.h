// Shared by tests of the exchange: a small plan, ranks that sum in memory, and a rank whose
// exchange tells a mailbox.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "common/mailbox.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "tests/deadline.h"
#include "worker/allreduce/gradient_exchange.h"

namespace pando {

inline constexpr std::chrono::milliseconds kPatience = kEventDeadline;

inline JobPlan SmallPlan() {
  Job job;
  job.steps = 3;
  job.global_batch = 8;
  job.micro_batches = 4;
  job.eval_every_epochs = 0;
  job.eval_every_steps = 2;
  TensorLayout layout({{.name = "a", .shape = {3000}},
                       {.name = "b", .shape = {300'000}},
                       {.name = "c", .shape = {300'000}},
                       MetricTensorSpec()});
  return JobPlan(job, {.train_samples = 800, .test_samples = 10}, std::move(layout));
}

// Ranks in one process: each adds its values to what all have brought.
class Hub {
 public:
  explicit Hub(size_t size) : barrier_(static_cast<ptrdiff_t>(size)), values_(size) {}
  void Sum(uint32_t rank, std::span<float> values) {
    values_[rank] = values;
    barrier_.arrive_and_wait();
    std::vector<float> sum(values.size(), 0.0f);
    for (const std::span<float> of_rank : values_) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += of_rank[i];
    }
    barrier_.arrive_and_wait();
    std::ranges::copy(sum, values.begin());
    barrier_.arrive_and_wait();
  }
  void Broadcast(uint32_t rank, std::span<std::byte> bytes) {
    if (rank == 0) word_ = bytes;
    barrier_.arrive_and_wait();
    if (rank != 0) std::ranges::copy(word_, bytes.begin());
    barrier_.arrive_and_wait();
  }

 private:
  std::barrier<> barrier_;
  std::vector<std::span<float>> values_;
  std::span<std::byte> word_;
};

class HubGroup : public AllreduceGroup {
 public:
  HubGroup(Hub& hub, uint32_t rank) : hub_(hub), rank_(rank) {}
  Status Sum(std::span<float> values) override {
    hub_.Sum(rank_, values);
    return Status();
  }
  Status Broadcast(std::span<std::byte> bytes) override {
    hub_.Broadcast(rank_, bytes);
    return Status();
  }
  void Close() override {}

 private:
  Hub& hub_;
  const uint32_t rank_;
};

// One rank: what its exchange says comes to a mailbox.
struct Rank : private ExchangePort {
  using MakeGroup = std::function<std::unique_ptr<AllreduceGroup>()>;
  Rank(const JobPlan& plan, uint32_t rank, MakeGroup make_group_in, Device device_in = {})
      : device(device_in),
        make_group(std::move(make_group_in)),
        exchange(plan, rank, *this, device_in) {}

  // A contribution whose floats are all `value`.
  void Add(const JobPlan& plan, Step step, uint32_t node, ShardId shard, float value) {
    const std::vector<float> host(plan.shards.range(shard).size(), value);
    auto floats = std::make_shared<FloatBuffer>(DeviceFloats(device, host.size()));
    Upload(device, std::as_bytes(std::span(host)), floats->data());
    Synchronize(device);
    exchange.Add(step, TreeNode(node), shard, ToBlob(SharedBuffer(floats)));
  }
  void AddAll(const JobPlan& plan, Step step, uint32_t node, float value) {
    for (uint32_t s = plan.shards.shard_count(); s-- > 0;) Add(plan, step, node, ShardId(s), value);
  }
  template <class T>
  static std::optional<T> Next(Mailbox<T>& box) {
    return box.Pop(std::chrono::steady_clock::now() + kPatience);
  }
  // The step's sums, which are this value everywhere.
  void CheckStep(Step step, float value) {
    for (const Bucket& bucket : exchange.buckets()) {
      const auto s = Next(sums);
      REQUIRE(s.has_value());
      CHECK(s->step == step);
      CHECK(s->shards.first == bucket.shards.first);
      const auto floats =
          std::as_const(*s->flat).span().subspan(bucket.floats.first, bucket.floats.size());
      CHECK(std::ranges::all_of(floats, [&](float x) { return x == value; }));
    }
  }

  Mailbox<GradientSums> sums;
  Mailbox<Version> agreed;
  Mailbox<Status> failed;
  const Device device;
  const MakeGroup make_group;
  GradientExchange exchange;  // last: its thread fills the others

 private:
  Result<std::unique_ptr<AllreduceGroup>> Connect() override { return make_group(); }
  Status Prepare(AllreduceGroup&) override { return Status(); }
  void OnSums(GradientSums s) override { std::ignore = sums.Push(std::move(s)); }
  void OnAgreed(Version v) override { std::ignore = agreed.Push(v); }
  void OnFailed(Status s) override { std::ignore = failed.Push(std::move(s)); }
};

}  // namespace pando
