#include "models/network.h"

#include <algorithm>

#include "common/check.h"
#include "common/float_buffer.h"
#include "models/graph.h"
#include "models/stage.h"

namespace pando {

struct Network::Impl {
  Impl(const Model& model, uint32_t sample_count_max);

  uint32_t sample_count_max;
  Pass pass;  // before the stages, which are planned for its device
  std::vector<StagePlan> stages;
  size_t first_trained = 0;  // the first stage with parameters: no gradient goes further back
  // Planned once: every stage's output is kept for backward; gradients of activations live only
  // from one stage to the one before, so two buffers take turns.
  std::vector<FloatBuffer> activations;  // [0]: the input; [i + 1]: stage i's output
  FloatBuffer gradients[2];
  FloatBuffer scratch;
  std::vector<int32_t> labels;
  BatchScore score;

  float* Gradient(size_t activation) { return gradients[activation % 2].data(); }
};

Network::Impl::Impl(const Model& model, uint32_t count_max)
    : sample_count_max(count_max), stages(PlanStages(model.graph(), pass.device, count_max)) {
  auto allocate = [&](const SampleShape& shape) {
    return FloatBuffer(shape.size() * count_max + kSlackFloats);
  };
  activations.push_back(allocate(model.graph().input()));
  size_t largest = 0, scratch_bytes = 0;
  for (const StagePlan& plan : stages) {
    activations.push_back(allocate(plan.out));
    largest = std::max({largest, plan.in.size(), plan.out.size()});
    scratch_bytes = std::max(scratch_bytes, plan.stage->scratch_bytes());
  }
  for (FloatBuffer& buffer : gradients) buffer = FloatBuffer(largest * count_max + kSlackFloats);
  scratch = FloatBuffer(scratch_bytes / sizeof(float) + 1);
  pass.scratch = std::as_writable_bytes(scratch.span());
  auto has_tensors = [](const StagePlan& p) { return p.tensors.first != p.tensors.last; };
  labels.reserve(count_max);
  first_trained =
      static_cast<size_t>(std::find_if(stages.begin(), stages.end(), has_tensors) - stages.begin());
}

Network::Network(const Model& model, uint32_t sample_count_max)
    : impl_(std::make_unique<Impl>(model, sample_count_max)) {
  PANDO_CHECK(sample_count_max > 0);
}
Network::~Network() = default;
Network::Network(Network&&) noexcept = default;

uint32_t Network::layer_count() const { return static_cast<uint32_t>(impl_->stages.size()); }

Network::TensorRun Network::LayerTensors(uint32_t layer) const {
  return impl_->stages[layer].tensors;
}

void Network::SetBatch(const Batch& batch, MicroBatchName name, Mode mode) {
  Impl& n = *impl_;
  PANDO_CHECK(batch.sample_count() >= 1 && batch.sample_count() <= n.sample_count_max);
  const SampleShape& in = n.stages.front().in;
  PANDO_CHECK(batch.shape.height == in.height && batch.shape.width == in.width);
  n.pass.sample_count = batch.sample_count();
  n.pass.name = name;
  n.pass.mode = mode;
  n.labels.assign(batch.labels.begin(), batch.labels.end());
  ImportBatch(n.pass.device, batch, in.channels, n.activations[0].data());
}

void Network::Forward(uint32_t layer, const float* parameters) {
  Impl& n = *impl_;
  PANDO_CHECK(layer < n.stages.size());
  float* y = n.activations[layer + 1].data();
  n.stages[layer].stage->Forward(
      n.pass, {.x = n.activations[layer].data(), .parameters = parameters, .y = y});
  if (layer + 1 < n.stages.size()) return;
  const CrossEntropyScore score =
      SoftmaxCrossEntropy(n.pass.device, n.pass.sample_count, n.stages.back().out.channels, 0.0f, y,
                          n.labels.data(), n.Gradient(layer + 1));
  n.score = {.loss_sum = score.loss_sum, .correct_count = score.correct_count};
}

BatchScore Network::Score() const { return impl_->score; }

void Network::Backward(uint32_t layer, const float* parameters, float* gradients) {
  Impl& n = *impl_;
  PANDO_CHECK(layer < n.stages.size());
  if (layer < n.first_trained) return;
  n.stages[layer].stage->Backward(n.pass,
                                  {.x = n.activations[layer].data(),
                                   .parameters = parameters,
                                   .y = n.activations[layer + 1].data(),
                                   .dy = n.Gradient(layer + 1),
                                   .dx = layer > n.first_trained ? n.Gradient(layer) : nullptr,
                                   .gradients = gradients});
}

}  // namespace pando
