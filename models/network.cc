#include "models/network.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/float_buffer.h"
#include "models/graph.h"
#include "models/network_plan.h"
#include "models/stage.h"

namespace pando {

namespace {

// `evaluation_bytes`: what evaluation takes anyway, in the same memory.
NetworkPlan PlanOf(const Model& model, const std::vector<StagePlan>& stages, uint32_t sample_count,
                   uint64_t evaluation_bytes) {
  const SampleShape input = model.graph().input();
  return model.is_checkpointed() ? PlanCheckpointed(stages, input, sample_count, evaluation_bytes)
                                 : PlanTraining(stages, input, sample_count, {});
}

}  // namespace

struct Network::Impl {
  Impl(const Model& model, SampleCounts counts);

  void ForwardStage(size_t stage, const ForwardBuffers& buffers, const float* parameters);
  void AddGradients(size_t stage, const BackwardBuffers& buffers);

  // The plan of the pass at hand. Both share the memory.
  const NetworkPlan& plan() const { return pass.mode == Mode::kEvaluate ? evaluation : training; }
  std::byte* Bytes(size_t buffer) {
    if (buffer == kNoBuffer) return nullptr;
    return reinterpret_cast<std::byte*>(memory.data()) + plan().memory.buffers[buffer].offset;
  }
  float* Floats(size_t buffer) { return reinterpret_cast<float*>(Bytes(buffer)); }
  std::span<std::byte> Span(size_t buffer) {
    if (buffer == kNoBuffer) return {};
    return {Bytes(buffer), plan().memory.buffers[buffer].bytes};
  }

  SampleCounts samples;
  SampleShape input;
  float label_smoothing;
  Pass pass;
  std::vector<StagePlan> stages;
  NetworkPlan evaluation;
  NetworkPlan training;
  FloatBuffer memory;
  std::vector<int32_t> labels;
  BatchScore score;
  // Stages whose forward is done; in backward those whose backward is not. Any other order would
  // read memory that has another use by then.
  size_t open_count = 0;
  enum class Phase : uint8_t { kNoBatch, kForward, kScored, kBackward } phase = Phase::kNoBatch;
};

Network::Impl::Impl(const Model& model, SampleCounts counts)
    : samples(counts),
      input(model.graph().input()),
      label_smoothing(model.label_smoothing()),
      stages(PlanStages(model.graph(), pass.device)),
      evaluation(PlanEvaluation(stages, input, counts.evaluation)),
      training(PlanOf(model, stages, counts.training, evaluation.memory.allocated_bytes)),
      memory(std::max(training.memory.allocated_bytes, evaluation.memory.allocated_bytes) /
             sizeof(float)) {
  labels.reserve(std::max(counts.training, counts.evaluation));
}

Network::Network(const Model& model, SampleCounts samples)
    : impl_(std::make_unique<Impl>(model, samples)) {
  PANDO_CHECK(samples.training > 0 && samples.evaluation > 0);
}
Network::~Network() = default;
Network::Network(Network&&) noexcept = default;

NetworkMemory Network::PlanMemory(const Model& model, SampleCounts samples) {
  const std::vector<StagePlan> stages = PlanStages(model.graph(), Device{});
  const uint64_t evaluation_bytes =
      PlanEvaluation(stages, model.graph().input(), samples.evaluation).memory.allocated_bytes;
  return {.training = PlanOf(model, stages, samples.training, evaluation_bytes).memory,
          .evaluation_bytes = evaluation_bytes};
}

uint32_t Network::layer_count() const { return static_cast<uint32_t>(impl_->stages.size()); }

Network::TensorRun Network::LayerTensors(uint32_t layer) const {
  return impl_->stages[layer].tensors;
}

Network::TensorRun Network::TrainingTensors(uint32_t layer) const {
  return impl_->stages[layer].parameters;
}

Network::TensorRun Network::BackwardTensors(uint32_t layer) const {
  TensorRun run = impl_->stages[layer].parameters;
  for (size_t stage : impl_->training.made_again[layer]) {
    const TensorRun& again = impl_->stages[stage].parameters;
    if (again.first == again.last) continue;
    run = run.first == run.last ? again : TensorRun{std::min(run.first, again.first), run.last};
  }
  return run;
}

void Network::SetBatch(const Batch& batch, MicroBatchName name, Mode mode) {
  Impl& n = *impl_;
  const uint32_t count_max = mode == Mode::kEvaluate ? n.samples.evaluation : n.samples.training;
  PANDO_CHECK(batch.sample_count() >= 1 && batch.sample_count() <= count_max);
  PANDO_CHECK(batch.shape.height == n.input.height && batch.shape.width == n.input.width);
  n.pass.sample_count = batch.sample_count();
  n.pass.name = name;
  n.pass.mode = mode;
  n.phase = Impl::Phase::kForward;
  n.open_count = 0;
  n.labels.assign(batch.labels.begin(), batch.labels.end());
  ImportBatch(n.pass.device, batch, n.input.channels, n.Floats(n.plan().input));
}

void Network::Impl::ForwardStage(size_t stage, const ForwardBuffers& buffers,
                                 const float* parameters) {
  stages[stage].stage->Forward(pass, {.x = {Floats(buffers.x[0]), Floats(buffers.x[1])},
                                      .parameters = parameters,
                                      .y = Floats(buffers.y),
                                      .kept = Bytes(buffers.kept),
                                      .scratch = Span(buffers.scratch)});
}

void Network::Forward(uint32_t layer, const float* parameters) {
  Impl& n = *impl_;
  PANDO_CHECK(n.phase == Impl::Phase::kForward && layer == n.open_count);
  const ForwardBuffers& buffers = n.plan().forward[layer];
  n.ForwardStage(layer, buffers, parameters);
  if (++n.open_count < n.stages.size()) return;
  n.phase = Impl::Phase::kScored;
  const float smoothing = n.pass.mode == Mode::kEvaluate ? 0.0f : n.label_smoothing;
  const CrossEntropyScore score = SoftmaxCrossEntropy(
      n.pass.device, n.pass.sample_count, n.stages.back().out.channels, smoothing,
      n.Floats(buffers.y), n.labels.data(), n.Floats(n.plan().score_gradient));
  n.score = {.loss_sum = score.loss_sum,
             .correct_count = score.correct_count,
             .top5_count = score.top5_count};
}

BatchScore Network::Score() const { return impl_->score; }

std::vector<uint32_t> Network::Predictions() const {
  PANDO_CHECK(impl_->phase == Impl::Phase::kScored);
  const size_t class_count = impl_->stages.back().out.channels;
  const float* logits = impl_->Floats(impl_->plan().forward.back().y);
  std::vector<uint32_t> predictions;
  for (uint32_t s = 0; s < impl_->pass.sample_count; ++s, logits += class_count) {
    predictions.push_back(
        static_cast<uint32_t>(std::max_element(logits, logits + class_count) - logits));
  }
  return predictions;
}

void Network::Backward(uint32_t layer, const float* parameters, float* gradients) {
  Impl& n = *impl_;
  PANDO_CHECK(n.phase == Impl::Phase::kScored || n.phase == Impl::Phase::kBackward);
  PANDO_CHECK(n.pass.mode != Mode::kEvaluate && layer + 1 == n.open_count);
  n.phase = Impl::Phase::kBackward;
  n.open_count = layer;
  const NetworkPlan& plan = n.training;
  for (size_t stage : plan.made_again[layer]) n.ForwardStage(stage, plan.again[stage], parameters);
  if (!plan.has_backward[layer]) return;
  const BackwardBuffers& buffers = plan.backward[layer];
  n.stages[layer].stage->Backward(n.pass, {.x = n.Floats(buffers.x),
                                           .parameters = parameters,
                                           .y = n.Floats(buffers.y),
                                           .kept = n.Bytes(buffers.kept),
                                           .dy = n.Floats(buffers.dy),
                                           .dx = {n.Floats(buffers.dx[0]), n.Floats(buffers.dx[1])},
                                           .gradients = gradients,
                                           .scratch = n.Span(buffers.scratch)});
  n.AddGradients(layer, buffers);
}

// Of what other stages have read too.
void Network::Impl::AddGradients(size_t stage, const BackwardBuffers& buffers) {
  for (size_t k = 0; k < stages[stage].inputs.size(); ++k) {
    if (buffers.sum[k] == kNoBuffer) continue;
    const size_t count = stages[stages[stage].inputs[k]].out.size() * pass.sample_count;
    AddInPlace(pass.device, count, Floats(buffers.dx[k]), Floats(buffers.sum[k]));
  }
}

}  // namespace pando
