#include "train/probe.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "common/hash.h"
#include "data/permutation.h"
#include "kernels/ops.h"
#include "plan/tensor_init.h"
#include "train/evaluation_pass.h"

namespace pando {
namespace {

constexpr uint64_t kProbeSamplesMax = 4;  // enough for every kernel, cheap for every model

uint64_t ProbeSampleCount(const JobPlan& plan) {
  return std::min(
      {kProbeSamplesMax, plan.steps.micro_batch_samples_max(), plan.data.train_samples});
}

// Passes with the parameters of version 0, over the first samples of epoch 0.
class ProbePasses {
 public:
  ProbePasses(
      const JobPlan& plan, const Model& model, const DataSet& data, Device device,
      std::function<bool()> is_interrupted = [] { return false; })
      : plan_(plan),
        model_(model),
        data_(data),
        device_(device),
        is_interrupted_(std::move(is_interrupted)) {
    InitRange(model.layout(), plan.job.seed, {0, host_.size()}, host_.span());
    Upload(device, std::as_bytes(host_.span()), parameters_.data());
  }

  // Forward and backward.
  Status Train(uint64_t sample_count) {
    const Permutation permutation(plan_.data.train_samples, plan_.job.seed, 0);
    std::vector<uint64_t> indices;
    for (uint64_t i = 0; i < sample_count; ++i)
      indices.push_back(permutation.At(i % plan_.data.train_samples));
    Batch batch;
    PANDO_RETURN_IF_ERROR(data_.Read({Split::kTrain, indices}, &batch));
    Network network(model_, static_cast<uint32_t>(sample_count), device_);
    network.SetBatch(batch, {.seed = plan_.job.seed}, Mode::kTrain);
    for (uint32_t layer = 0; layer < network.layer_count(); ++layer) {
      if (is_interrupted_()) return Interrupted("the probe was called off");
      network.Forward(layer, parameters_.data());
    }
    for (uint32_t layer = network.layer_count(); layer-- > 0;) {
      if (is_interrupted_()) return Interrupted("the probe was called off");
      network.Backward(layer, parameters_.data(), gradients_.data());
    }
    return Status();
  }

  // REQUIRES: the data set has `sample_count` test samples.
  Status Evaluate(uint64_t sample_count) {
    std::vector<uint64_t> indices;
    for (uint64_t i = 0; i < sample_count; ++i) indices.push_back(i);
    Batch batch;
    PANDO_RETURN_IF_ERROR(data_.Read({Split::kTest, indices}, &batch));
    Network network(model_, {.training = 1, .evaluation = static_cast<uint32_t>(sample_count)},
                    device_);
    return EvaluateChunk(network, batch, parameters_.data()).status();
  }

  // Of the last training pass.
  uint64_t HashGradient() {
    Download(device_, gradients_.data(), std::as_writable_bytes(host_.span()));
    return Hash64(std::as_bytes(host_.span()));
  }

 private:
  const JobPlan& plan_;
  const Model& model_;
  const DataSet& data_;
  const Device device_;
  const std::function<bool()> is_interrupted_;
  FloatBuffer host_{model_.layout().float_count()};
  FloatBuffer parameters_ = DeviceFloats(device_, host_.size());
  FloatBuffer gradients_ = DeviceFloats(device_, host_.size());
};

// All that a micro-batch can have: only the last step of an epoch may be shorter.
std::set<uint64_t> MicroBatchSizes(const JobPlan& plan) {
  const uint64_t last = std::min(plan.steps.steps_per_epoch(), plan.steps.step_count()) - 1;
  std::set<uint64_t> sizes;
  for (const Step step : {Step(0), Step(last)}) {
    for (uint32_t m = 0; m < plan.job.micro_batches; ++m)
      sizes.insert(plan.steps.Samples(step, MicroBatch(m)).count());
  }
  sizes.erase(0);
  return sizes;
}

std::set<uint64_t> EvaluationSizes(const JobPlan& plan) {
  const uint64_t samples = plan.data.test_samples;
  std::set<uint64_t> sizes{std::min(samples, kEvaluationChunkSamples),
                           samples % kEvaluationChunkSamples};
  sizes.erase(0);
  return sizes;
}

}  // namespace

Result<uint64_t> ProbeHash(const JobPlan& plan, const Model& model, const DataSet& data,
                           Device device) {
  ProbePasses passes(plan, model, data, device);
  PANDO_RETURN_IF_ERROR(passes.Train(ProbeSampleCount(plan)));
  return passes.HashGradient();
}

Result<EngineChoice> MeasureEngines(const JobPlan& plan, const Model& model, const DataSet& data,
                                    OpenedGpu& gpu, const std::function<bool()>& is_interrupted) {
  ProbePasses passes(plan, model, data, gpu.device(), is_interrupted);
  std::set<uint64_t> training = MicroBatchSizes(plan);
  training.insert(ProbeSampleCount(plan));
  gpu.StartMeasuringEngines();
  Status status;
  for (const uint64_t samples : training) {
    if (status.ok()) status = passes.Train(samples);
  }
  for (const uint64_t samples : EvaluationSizes(plan)) {
    if (status.ok()) status = passes.Evaluate(samples);
  }
  Synchronize(gpu.device());
  EngineChoice measured = gpu.TakeMeasuredEngines();
  if (!status.ok()) return status;
  return measured;
}

}  // namespace pando
