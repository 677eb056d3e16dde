#include "worker/gpu_traffic.h"

#include <span>
#include <utility>

#include "kernels/ops.h"

namespace pando {
namespace {

constexpr size_t kScoreFloats = sizeof(CrossEntropyScore) / sizeof(float);

}  // namespace

GpuTraffic::GpuTraffic(Device device, const ShardPlan& shards, BufferPool& host_gradients)
    : shards_(shards),
      host_gradients_(host_gradients),
      batches_(device),
      uploads_(device),
      downloads_(device),
      training_(device, shards, uploads_),
      evaluation_(device, shards, uploads_),
      score_(PinnedFloats(device, kScoreFloats)) {}

void GpuTraffic::Expect(std::function<Status()> then) {
  awaited_.push_back({downloads_.Mark(), std::move(then)});
}

void GpuTraffic::SendScore(const Network& network, OnScore on_score) {
  downloads_.AwaitLaunched();
  downloads_.ToHost(network.device_score(), std::as_writable_bytes(score_.span()));
  Expect([this, on_score = std::move(on_score)] {
    const auto& score = *reinterpret_cast<const CrossEntropyScore*>(score_.data());
    return on_score({.loss_sum = score.loss_sum,
                     .correct_count = score.correct_count,
                     .top5_count = score.top5_count});
  });
}

// The GPU's vectors stay taken until they have been read.
void GpuTraffic::SendSums(std::vector<Sum> sums, OnSum on_sum) {
  if (sums.empty()) return;
  if (host_ == nullptr) host_ = host_gradients_.Take();
  downloads_.AwaitLaunched();
  for (const Sum& sum : sums) {
    const ShardRange& range = shards_.range(sum.shard);
    downloads_.ToHost(sum.gradients->data() + range.first,
                      std::as_writable_bytes(host_->span().subspan(range.first, range.size())));
  }
  Expect([this, sums = std::move(sums), host = host_, on_sum = std::move(on_sum)] {
    for (const Sum& sum : sums) {
      const ShardRange& range = shards_.range(sum.shard);
      on_sum(sum.node, sum.shard, ToBlob(host, range.first, range.size()));
    }
    return Status();
  });
}

Status GpuTraffic::TakeFirst() {
  const Arrival first = std::move(awaited_.front());
  awaited_.pop_front();
  return first.then();
}

Status GpuTraffic::Poll() {
  while (!awaited_.empty() && downloads_.IsDone(awaited_.front().ticket)) {
    if (Status s = TakeFirst(); !s.ok()) return s;
  }
  return {};
}

Status GpuTraffic::Finish(const std::function<bool()>& is_dropped) {
  while (!awaited_.empty()) {
    if (is_dropped()) return Interrupted("the work was abandoned");
    downloads_.Await(awaited_.front().ticket);
    if (Status s = TakeFirst(); !s.ok()) return s;
  }
  return {};
}

void GpuTraffic::End() {
  uploads_.Await(uploads_.Mark());
  downloads_.Await(downloads_.Mark());
  awaited_.clear();
  host_ = nullptr;
}

}  // namespace pando
