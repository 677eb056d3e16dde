#include "train/probe.h"

#include <algorithm>

#include "common/float_buffer.h"
#include "common/hash.h"
#include "data/permutation.h"
#include "plan/tensor_init.h"

namespace pando {
namespace {

constexpr uint64_t kProbeSamplesMax = 4;  // enough for every kernel, cheap for every model

}  // namespace

Result<uint64_t> ProbeHash(const JobPlan& plan, const Model& model, const DataSet& data,
                           Device device) {
  const uint64_t count =
      std::min({kProbeSamplesMax, plan.steps.micro_batch_samples_max(), plan.data.train_samples});
  const Permutation permutation(plan.data.train_samples, plan.job.seed, 0);
  std::vector<uint64_t> indices;
  for (uint64_t i = 0; i < count; ++i) indices.push_back(permutation.At(i));
  Batch batch;
  if (Status s = data.Read(Split::kTrain, indices, &batch); !s.ok()) return s;
  const size_t size = model.layout().float_count();
  FloatBuffer host(size);
  FloatBuffer parameters = DeviceFloats(device, size), gradients = DeviceFloats(device, size);
  InitRange(model.layout(), plan.job.seed, {0, size}, host.span());
  Upload(device, std::as_bytes(host.span()), parameters.data());
  Network network(model, static_cast<uint32_t>(count), device);
  network.SetBatch(batch, {.seed = plan.job.seed}, Mode::kTrain);
  for (uint32_t layer = 0; layer < network.layer_count(); ++layer)
    network.Forward(layer, parameters.data());
  for (uint32_t layer = network.layer_count(); layer-- > 0;) {
    network.Backward(layer, parameters.data(), gradients.data());
  }
  Download(device, gradients.data(), std::as_writable_bytes(host.span()));
  return Hash64(std::as_bytes(host.span()));
}

}  // namespace pando
