#include "models/network.h"

#include <utility>

#include "common/check.h"

namespace pando {
namespace {

// `evaluation_bytes` is what evaluation needs of the same memory.
NetworkPlan MakePlan(const Model& model, const PlanRequest& request, uint64_t evaluation_bytes) {
  return model.is_checkpointed() ? PlanCheckpointed(request, evaluation_bytes)
                                 : PlanTraining(request, {});
}

}  // namespace

Network::Network(const Model& model, SampleCounts counts, Device device)
    : samples_(counts),
      input_(model.graph().input()),
      label_smoothing_(model.label_smoothing()),
      pass_{.device = device},
      stages_(PlanStages(model.graph())),
      evaluation_(PlanEvaluation({stages_, input_, counts.evaluation, device})),
      training_(MakePlan(model, {stages_, input_, counts.training, device},
                         evaluation_.memory.allocated_bytes)),
      memory_(device,
              std::max(training_.memory.allocated_bytes, evaluation_.memory.allocated_bytes)),
      labels_(device, std::max(counts.training, counts.evaluation)),
      numbers_(device, 1),
      score_(device, 1),
      score_scratch_(
          device, CrossEntropyScratchBytes(device, std::max(counts.training, counts.evaluation))) {
  PANDO_CHECK(counts.training > 0 && counts.evaluation > 0);
  pass_.numbers = numbers_.data();
}

NetworkMemory Network::PlanMemory(const Model& model, SampleCounts samples, Device device) {
  const std::vector<StagePlan> stages = PlanStages(model.graph());
  PlanRequest request{stages, model.graph().input(), samples.evaluation, device};
  const uint64_t evaluation_bytes = PlanEvaluation(request).memory.allocated_bytes;
  request.sample_count = samples.training;
  return {.training = MakePlan(model, request, evaluation_bytes).memory,
          .evaluation_bytes = evaluation_bytes};
}

std::byte* Network::Bytes(size_t buffer) const {
  return buffer == kNoBuffer ? nullptr : memory_.data() + plan().memory.buffers[buffer].offset;
}

std::span<std::byte> Network::Span(size_t buffer) const {
  if (buffer == kNoBuffer) return {};
  return {Bytes(buffer), plan().memory.buffers[buffer].bytes};
}

TensorRun Network::BackwardTensors(uint32_t layer) const {
  TensorRun run = stages_[layer].parameters;
  for (size_t stage : training_.made_again[layer]) {
    const TensorRun& again = stages_[stage].parameters;
    if (again.first == again.last) continue;
    run = run.first == run.last ? again : TensorRun{std::min(run.first, again.first), run.last};
  }
  return run;
}

void Network::SetBatch(const Batch& batch, MicroBatchName name, Mode mode,
                       const DeviceBatch* there) {
  const uint32_t count_max = mode == Mode::kEvaluate ? samples_.evaluation : samples_.training;
  PANDO_CHECK(batch.sample_count() >= 1 && batch.sample_count() <= count_max);
  PANDO_CHECK(batch.shape.height == input_.height && batch.shape.width == input_.width);
  for (int32_t label : batch.labels) {
    PANDO_CHECK(label >= 0 && static_cast<uint32_t>(label) < stages_.back().out.channels);
  }
  pass_.sample_count = batch.sample_count();
  pass_.seed = name.seed;
  pass_.mode = mode;
  pass_.input_channels = plan().input_channels;
  phase_ = Phase::kForward;
  open_count_ = 0;
  const PassNumbers numbers{name.step.value(), name.micro_batch.value(), name.loss_scale,
                            1 / name.loss_scale};
  Upload(pass_.device, std::as_bytes(std::span(&numbers, 1)), numbers_.data());
  const auto import = [&](const auto& from) {
    ImportBatch(pass_.device, from, input_.channels, Bytes(plan().input), labels_.data(),
                plan().input_channels);
  };
  there == nullptr ? import(batch) : import(*there);
}

void Network::ForwardStage(size_t stage, const ForwardBuffers& buffers, const float* parameters) {
  stages_[stage].stage->Forward(pass_, {.x = {Bytes(buffers.x[0]), Bytes(buffers.x[1])},
                                        .parameters = parameters,
                                        .y = Bytes(buffers.y),
                                        .kept = Bytes(buffers.kept),
                                        .scratch = Span(buffers.scratch)});
}

void Network::Forward(uint32_t layer, const float* parameters) {
  PANDO_CHECK(phase_ == Phase::kForward && layer == open_count_);
  const ForwardBuffers& buffers = plan().forward[layer];
  ForwardStage(layer, buffers, parameters);
  if (++open_count_ < stages_.size()) return;
  phase_ = Phase::kScored;
  ScoreBatch(Bytes(buffers.y));
}

void Network::ScoreBatch(const void* logits) {
  SoftmaxCrossEntropy(pass_.device,
                      {.sample_count = pass_.sample_count,
                       .class_count = stages_.back().out.channels,
                       .label_smoothing = pass_.mode == Mode::kEvaluate ? 0.0f : label_smoothing_,
                       .logits = logits,
                       .labels = labels_.data(),
                       .gradient_scale = has_loss_scale() ? &pass_.numbers->loss_scale : nullptr,
                       .dlogits = Bytes(plan().score_gradient),
                       .score = score_.data()},
                      {score_scratch_.data(), score_scratch_.size_bytes()});
}

BatchScore Network::Score() const {
  BatchScore score;
  Download(pass_.device, score_.data(), std::as_writable_bytes(std::span(&score, 1)));
  return score;
}

std::vector<float> Network::Outputs() const {
  PANDO_CHECK(phase_ == Phase::kScored);
  std::vector<float> logits(size_t{pass_.sample_count} * stages_.back().out.channels);
  ExportFloats(pass_.device, logits.size(), Bytes(plan().forward.back().y), logits.data());
  return logits;
}

std::vector<uint32_t> Network::Predictions() const {
  const std::vector<float> logits = Outputs();
  const size_t class_count = stages_.back().out.channels;
  std::vector<uint32_t> predictions;
  for (auto row = logits.begin(); row != logits.end(); row += class_count) {
    predictions.push_back(static_cast<uint32_t>(std::max_element(row, row + class_count) - row));
  }
  return predictions;
}

void Network::Backward(uint32_t layer, const float* parameters, float* gradients) {
  PANDO_CHECK(phase_ == Phase::kScored || phase_ == Phase::kBackward);
  PANDO_CHECK(pass_.mode != Mode::kEvaluate && layer + 1 == open_count_);
  phase_ = Phase::kBackward;
  open_count_ = layer;
  for (size_t stage : training_.made_again[layer]) {
    ForwardStage(stage, training_.again[stage], parameters);
  }
  if (!training_.has_backward[layer]) return;
  const BackwardBuffers& buffers = training_.backward[layer];
  stages_[layer].stage->Backward(pass_, {.x = Bytes(buffers.x),
                                         .parameters = parameters,
                                         .y = Bytes(buffers.y),
                                         .kept = Bytes(buffers.kept),
                                         .dy = Bytes(buffers.dy),
                                         .dx = {Bytes(buffers.dx[0]), Bytes(buffers.dx[1])},
                                         .adds_dx = buffers.adds_dx,
                                         .gradients = gradients,
                                         .scratch = Span(buffers.scratch)});
  AddGradients(layer, buffers);
  const ShardRange& own = stages_[layer].parameter_floats;
  if (!has_loss_scale() || own.size() == 0) return;
  ScaleFloatsInPlace(pass_.device, own.size(), &pass_.numbers->inverse_loss_scale,
                     gradients + own.first);
}

// Adds the gradients of inputs that other stages have read too.
void Network::AddGradients(size_t stage, const BackwardBuffers& buffers) {
  for (size_t k = 0; k < stages_[stage].inputs.size(); ++k) {
    if (buffers.sum[k] == kNoBuffer) continue;
    const size_t count = stages_[stages_[stage].inputs[k]].out.size() * pass_.sample_count;
    AddInPlace(pass_.device, count, Bytes(buffers.dx[k]), Bytes(buffers.sum[k]));
  }
}

}  // namespace pando
