#include "models/network.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "models/graph.h"
#include "models/network_plan.h"
#include "models/stage.h"

namespace pando {

namespace {

// `evaluation_bytes`: what evaluation needs of the same memory.
NetworkPlan MakePlan(const Model& model, const std::vector<StagePlan>& stages,
                     uint32_t sample_count, uint64_t evaluation_bytes, ElementType element) {
  const SampleShape input = model.graph().input();
  return model.is_checkpointed()
             ? PlanCheckpointed(stages, input, sample_count, evaluation_bytes, element)
             : PlanTraining(stages, input, sample_count, {}, element);
}

std::vector<ShardRange> ParameterFloats(const TensorLayout& layout,
                                        const std::vector<StagePlan>& stages) {
  std::vector<ShardRange> ranges;
  for (const StagePlan& stage : stages) {
    const Network::TensorRun& run = stage.parameters;
    ShardRange& range = ranges.emplace_back();
    if (run.first != run.last) range = {layout.offset(run.first), layout.offset(run.last)};
  }
  return ranges;
}

// A device's memory for a number of T.
template <class T>
class DeviceArray {
 public:
  DeviceArray(Device device, size_t count) : memory_(device, count * sizeof(T)) {}
  T* data() const { return reinterpret_cast<T*>(memory_.data()); }

 private:
  DeviceMemory memory_;
};

}  // namespace

struct Network::Impl {
  Impl(const Model& model, SampleCounts counts, Device device);

  bool has_loss_scale() const { return pass.device.element == ElementType::kFloat16; }
  void ScoreBatch(const void* logits);
  void ForwardStage(size_t stage, const ForwardBuffers& buffers, const float* parameters);
  void AddGradients(size_t stage, const BackwardBuffers& buffers);

  // The plan of the current pass. Both plans share the memory.
  const NetworkPlan& plan() const { return pass.mode == Mode::kEvaluate ? evaluation : training; }
  std::byte* Bytes(size_t buffer) {
    if (buffer == kNoBuffer) return nullptr;
    return memory.data() + plan().memory.buffers[buffer].offset;
  }
  std::span<std::byte> Span(size_t buffer) {
    if (buffer == kNoBuffer) return {};
    return {Bytes(buffer), plan().memory.buffers[buffer].bytes};
  }

  SampleCounts samples;
  SampleShape input;
  float label_smoothing;
  Pass pass;
  std::vector<StagePlan> stages;
  std::vector<ShardRange> parameter_floats;  // by stage: its parameters' place in a flat vector
  NetworkPlan evaluation;
  NetworkPlan training;
  DeviceMemory memory;
  DeviceArray<int32_t> labels;
  DeviceArray<PassNumbers> numbers;
  DeviceArray<CrossEntropyScore> score;
  DeviceMemory score_scratch;
  // Stages whose forward is done; in backward, stages whose backward is not done. Any other order
  // would read memory that has been reused.
  size_t open_count = 0;
  enum class Phase : uint8_t { kNoBatch, kForward, kScored, kBackward } phase = Phase::kNoBatch;
};

Network::Impl::Impl(const Model& model, SampleCounts counts, Device device)
    : samples(counts),
      input(model.graph().input()),
      label_smoothing(model.label_smoothing()),
      pass{.device = device},
      stages(PlanStages(model.graph(), device)),
      parameter_floats(ParameterFloats(model.layout(), stages)),
      evaluation(PlanEvaluation(stages, input, counts.evaluation, device.element)),
      training(MakePlan(model, stages, counts.training, evaluation.memory.allocated_bytes,
                        device.element)),
      memory(device, std::max(training.memory.allocated_bytes, evaluation.memory.allocated_bytes)),
      labels(device, std::max(counts.training, counts.evaluation)),
      numbers(device, 1),
      score(device, 1),
      score_scratch(
          device, CrossEntropyScratchBytes(device, std::max(counts.training, counts.evaluation))) {
  pass.numbers = numbers.data();
}

Network::Network(const Model& model, SampleCounts samples, Device device)
    : impl_(std::make_unique<Impl>(model, samples, device)) {
  PANDO_CHECK(samples.training > 0 && samples.evaluation > 0);
}
Network::~Network() = default;
Network::Network(Network&&) noexcept = default;

NetworkMemory Network::PlanMemory(const Model& model, SampleCounts samples, Device device) {
  const std::vector<StagePlan> stages = PlanStages(model.graph(), device);
  const uint64_t evaluation_bytes =
      PlanEvaluation(stages, model.graph().input(), samples.evaluation, device.element)
          .memory.allocated_bytes;
  return {.training =
              MakePlan(model, stages, samples.training, evaluation_bytes, device.element).memory,
          .evaluation_bytes = evaluation_bytes};
}

uint32_t Network::layer_count() const { return static_cast<uint32_t>(impl_->stages.size()); }

const std::string& Network::LayerNames(uint32_t layer) const { return impl_->stages[layer].layers; }

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

void Network::SetBatch(const Batch& batch, MicroBatchName name, Mode mode,
                       const DeviceBatch* there) {
  Impl& n = *impl_;
  const uint32_t count_max = mode == Mode::kEvaluate ? n.samples.evaluation : n.samples.training;
  PANDO_CHECK(batch.sample_count() >= 1 && batch.sample_count() <= count_max);
  PANDO_CHECK(batch.shape.height == n.input.height && batch.shape.width == n.input.width);
  for (int32_t label : batch.labels) {
    PANDO_CHECK(label >= 0 && static_cast<uint32_t>(label) < n.stages.back().out.channels);
  }
  n.pass.sample_count = batch.sample_count();
  n.pass.seed = name.seed;
  n.pass.mode = mode;
  n.phase = Impl::Phase::kForward;
  n.open_count = 0;
  const PassNumbers numbers{name.step.value(), name.micro_batch.value(), name.loss_scale,
                            1 / name.loss_scale};
  Upload(n.pass.device, std::as_bytes(std::span(&numbers, 1)), n.numbers.data());
  const auto import = [&](const auto& from) {
    ImportBatch(n.pass.device, from, n.input.channels, n.Bytes(n.plan().input), n.labels.data());
  };
  there == nullptr ? import(batch) : import(*there);
}

void Network::Impl::ForwardStage(size_t stage, const ForwardBuffers& buffers,
                                 const float* parameters) {
  stages[stage].stage->Forward(pass, {.x = {Bytes(buffers.x[0]), Bytes(buffers.x[1])},
                                      .parameters = parameters,
                                      .y = Bytes(buffers.y),
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
  n.ScoreBatch(n.Bytes(buffers.y));
}

void Network::Impl::ScoreBatch(const void* logits) {
  SoftmaxCrossEntropy(pass.device,
                      {.sample_count = pass.sample_count,
                       .class_count = stages.back().out.channels,
                       .label_smoothing = pass.mode == Mode::kEvaluate ? 0.0f : label_smoothing,
                       .logits = logits,
                       .labels = labels.data(),
                       .gradient_scale = has_loss_scale() ? &pass.numbers->loss_scale : nullptr,
                       .dlogits = Bytes(plan().score_gradient),
                       .score = score.data()},
                      {score_scratch.data(), score_scratch.size_bytes()});
}

BatchScore Network::Score() const {
  CrossEntropyScore score;
  Download(impl_->pass.device, impl_->score.data(), std::as_writable_bytes(std::span(&score, 1)));
  return {.loss_sum = score.loss_sum,
          .correct_count = score.correct_count,
          .top5_count = score.top5_count};
}

const CrossEntropyScore* Network::device_score() const { return impl_->score.data(); }

void Network::WriteScore(float* loss_and_correct) const {
  ScoreToFloats(impl_->pass.device, impl_->score.data(), loss_and_correct);
}

std::vector<uint32_t> Network::Predictions() const {
  PANDO_CHECK(impl_->phase == Impl::Phase::kScored);
  const size_t class_count = impl_->stages.back().out.channels;
  std::vector<float> logits(impl_->pass.sample_count * class_count);
  ExportFloats(impl_->pass.device, logits.size(), impl_->Bytes(impl_->plan().forward.back().y),
               logits.data());
  std::vector<uint32_t> predictions;
  for (auto row = logits.begin(); row != logits.end(); row += class_count) {
    predictions.push_back(static_cast<uint32_t>(std::max_element(row, row + class_count) - row));
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
  n.stages[layer].stage->Backward(n.pass, {.x = n.Bytes(buffers.x),
                                           .parameters = parameters,
                                           .y = n.Bytes(buffers.y),
                                           .kept = n.Bytes(buffers.kept),
                                           .dy = n.Bytes(buffers.dy),
                                           .dx = {n.Bytes(buffers.dx[0]), n.Bytes(buffers.dx[1])},
                                           .gradients = gradients,
                                           .scratch = n.Span(buffers.scratch)});
  n.AddGradients(layer, buffers);
  const ShardRange& own = n.parameter_floats[layer];
  if (!n.has_loss_scale() || own.size() == 0) return;
  ScaleFloatsInPlace(n.pass.device, own.size(), &n.pass.numbers->inverse_loss_scale,
                     gradients + own.first);
}

// Adds the gradients of inputs that other stages have read too.
void Network::Impl::AddGradients(size_t stage, const BackwardBuffers& buffers) {
  for (size_t k = 0; k < stages[stage].inputs.size(); ++k) {
    if (buffers.sum[k] == kNoBuffer) continue;
    const size_t count = stages[stages[stage].inputs[k]].out.size() * pass.sample_count;
    AddInPlace(pass.device, count, Bytes(buffers.dx[k]), Bytes(buffers.sum[k]));
  }
}

}  // namespace pando
