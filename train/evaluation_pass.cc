#include "train/evaluation_pass.h"

#include <algorithm>
#include <map>
#include <utility>

namespace pando {

Result<ChunkScore> EvaluateChunk(Network& network, const Batch& batch, const float* parameters,
                                 const std::function<Status(uint32_t layer)>& await) {
  network.SetBatch(batch, {}, Mode::kEvaluate);
  for (uint32_t layer = 0; layer < network.layer_count(); ++layer) {
    const Status arrived = await ? await(layer) : Status();
    if (!arrived.ok()) return arrived;
    network.Forward(layer, parameters);
  }
  ChunkScore score{.sums = network.Score(), .confusion = {}};
  const std::vector<uint32_t> predictions = network.Predictions();
  for (size_t s = 0; s < predictions.size(); ++s) {
    score.confusion.push_back({static_cast<uint32_t>(batch.labels[s]), predictions[s], 1});
  }
  return score;
}

EvaluationResult CombineScores(const Evaluate& request, const std::vector<ChunkScore>& chunks) {
  EvaluationResult result{.version = request.version, .slice = request.slice};
  result.sample_count = request.last_sample - request.first_sample;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> confusion;  // by label and prediction
  constexpr size_t kChunksPerSlice = kEvaluationSliceSamples / kEvaluationChunkSamples;
  for (size_t first = 0; first < chunks.size(); first += kChunksPerSlice) {
    double slice_loss = 0;
    const size_t last = std::min(first + kChunksPerSlice, chunks.size());
    for (size_t i = first; i < last; ++i) {
      const ChunkScore& chunk = chunks[i];
      result.correct_count += chunk.sums.correct_count;
      result.top5_count += chunk.sums.top5_count;
      slice_loss += chunk.sums.loss_sum;
      for (const ConfusionCount& c : chunk.confusion) confusion[{c.label, c.predicted}] += c.count;
    }
    result.loss_sum += slice_loss;
  }
  for (const auto& [classes, count] : confusion)
    result.confusion.push_back({classes.first, classes.second, count});
  return result;
}

EvaluationPass::EvaluationPass(const JobPlan& plan, Network& network, Device device)
    : plan_(plan),
      network_(network),
      reads_(PlanEvaluationReads(plan, network)),
      gpu_(device.kind == DeviceKind::kCpu ? nullptr
                                           : std::make_unique<GpuCopy>(device, plan.shards)) {}

Result<ChunkScore> EvaluationPass::Run(const Batch& batch, const Parameters& parameters) {
  if (gpu_ != nullptr) return RunOnGpu(batch, parameters);
  return EvaluateChunk(network_, batch, parameters.host, [&](uint32_t layer) {
    return parameters.await ? parameters.await(reads_[layer]) : Status();
  });
}

Result<ChunkScore> EvaluationPass::RunOnGpu(const Batch& batch, const Parameters& parameters) {
  ParameterCopy& copy = gpu_->parameters;
  copy.Follow(parameters.serial,
              [&](ShardId shard) { return parameters.host + plan_.shards.range(shard).first; });
  const auto await = [&](uint32_t layer) -> Status {
    const LayerReads& reads = reads_[layer];
    if (copy.Has(reads.now)) return {};
    const Status arrived = parameters.await ? parameters.await(reads) : Status();
    if (arrived.ok()) copy.Bring(reads.now);
    return arrived;
  };
  Result<ChunkScore> score = EvaluateChunk(network_, batch, copy.values(), await);
  gpu_->uploads.Await(gpu_->uploads.Mark());  // the host's vector may go
  return score;
}

}  // namespace pando
