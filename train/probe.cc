#include "train/probe.h"

#include <algorithm>
#include <vector>

#include "common/hash.h"
#include "data/permutation.h"
#include "kernels/ops.h"
#include "models/network.h"
#include "plan/tensor_init.h"

namespace pando {
namespace {

constexpr uint64_t kProbeSamplesMax = 4;  // enough for every kernel, cheap for every model

uint64_t ProbeSampleCount(const JobPlan& plan) {
  return std::min(
      {kProbeSamplesMax, plan.steps.micro_batch_samples_max(), plan.data.train_samples});
}

}  // namespace

Result<uint64_t> ProbeHash(const JobPlan& plan, const Model& model, const DataSet& data,
                           Device device) {
  FloatBuffer host(model.layout().float_count());
  FloatBuffer parameters = DeviceFloats(device, host.size());
  FloatBuffer gradients = DeviceFloats(device, host.size());
  InitRange(model.layout(), plan.job.seed, {0, host.size()}, host.span());
  Upload(device, std::as_bytes(host.span()), parameters.data());

  const Permutation permutation(plan.data.train_samples, plan.job.seed, 0);
  std::vector<uint64_t> indices;
  for (uint64_t i = 0; i < ProbeSampleCount(plan); ++i) indices.push_back(permutation.At(i));
  Batch batch;
  PANDO_RETURN_IF_ERROR(data.Read({Split::kTrain, indices}, &batch));
  Network network(model, static_cast<uint32_t>(indices.size()), device);
  network.SetBatch(batch, {.seed = plan.job.seed}, Mode::kTrain);
  for (uint32_t layer = 0; layer < network.layer_count(); ++layer)
    network.Forward(layer, parameters.data());
  for (uint32_t layer = network.layer_count(); layer-- > 0;)
    network.Backward(layer, parameters.data(), gradients.data());
  Download(device, gradients.data(), std::as_writable_bytes(host.span()));
  return Hash64(std::as_bytes(host.span()));
}

}  // namespace pando
