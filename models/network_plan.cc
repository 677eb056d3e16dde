#include "models/network_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/check.h"

namespace pando {
namespace {

class Planner {
 public:
  Planner(const std::vector<StagePlan>& stages, SampleShape input, uint32_t sample_count,
          ElementType element)
      : stages_(stages),
        input_(input),
        sample_count_(sample_count),
        element_bytes_(ElementBytes(element)) {
    plan_.forward.resize(stages.size());
    plan_.again.resize(stages.size());
    plan_.backward.resize(stages.size());
    plan_.has_backward.resize(stages.size());
    plan_.made_again.resize(stages.size());
    segment_end_.assign(stages.size(), kNoBuffer);
    is_dropped_.resize(stages.size());
  }

  NetworkPlan Evaluation() {
    PlanForward();
    return Finish();
  }

  NetworkPlan Training(std::span<const StageRun> segments) {
    for (const StageRun& run : segments) Drop(run);
    for (size_t i = 0; i < stages_.size(); ++i) plan_.has_backward[i] = IsTrained(i);
    PlanForward();
    gradients_.assign(stages_.size(), kNoBuffer);
    gradients_.back() = plan_.score_gradient;
    for (size_t i = stages_.size(); i-- > 0;) {
      if (i + 1 == segment_end_[i]) PlanAgain(i);
      PlanBackward(i);
    }
    return Finish();
  }

 private:
  // ---- which activations are dropped ------------------------------------------------------------

  // The outputs of the run that no stage behind the segment reads; so the last one's is kept.
  void Drop(StageRun run) {
    for (size_t i = run.first; i + 1 < run.last; ++i) is_dropped_[i] = true;
    for (size_t i = run.first; i < run.last; ++i) segment_end_[i] = run.last;
    for (size_t reader = run.last; reader < stages_.size(); ++reader) {
      for (int input : stages_[reader].inputs) {
        if (input >= 0) is_dropped_[input] = is_dropped_[input] && segment_end_[input] != run.last;
      }
    }
  }

  bool IsTrained(size_t stage) const {
    const StagePlan& plan = stages_[stage];
    if (plan.tensors.first != plan.tensors.last) return true;
    return std::ranges::any_of(plan.inputs,
                               [&](int input) { return input >= 0 && plan_.has_backward[input]; });
  }

  // ---- buffers --------------------------------------------------------------------------------

  // Needed in the current event. The first event that needs it makes it.
  size_t Need(size_t buffer) {
    if (buffer != kNoBuffer) plan_.memory.buffers[buffer].last_event = event_;
    return buffer;
  }
  size_t Make(BufferUse use, size_t bytes) {
    if (bytes == 0) return kNoBuffer;
    plan_.memory.buffers.push_back({use, bytes, event_, event_});
    return plan_.memory.buffers.size() - 1;
  }
  size_t MakeArray(BufferUse use, const SampleShape& shape) {
    return Make(use, (shape.size() * sample_count_ + kSlackElements) * element_bytes_);
  }
  const SampleShape& FindShape(int value) const { return value < 0 ? input_ : stages_[value].out; }

  MemoryEvent& BeginEvent(size_t stage, bool is_backward) {
    event_ = plan_.memory.events.size();
    return plan_.memory.events.emplace_back(
        MemoryEvent{.is_backward = is_backward, .layers = stages_[stage].layers});
  }

  // The place of a stage's output for backward.
  size_t Held(int value) const {
    if (value < 0) return plan_.input;
    return is_dropped_[value] ? plan_.again[value].y : plan_.forward[value].y;
  }

  // ---- events ---------------------------------------------------------------------------------

  void PlanForward() {
    BeginEvent(0, false);
    plan_.input = MakeArray(BufferUse::kActivation, input_);
    for (size_t i = 0; i < stages_.size(); ++i) {
      if (i > 0) BeginEvent(i, false);
      ForwardBuffers& buffers = plan_.forward[i];
      for (size_t k = 0; k < stages_[i].inputs.size(); ++k) {
        const int input = stages_[i].inputs[k];
        buffers.x[k] = Need(input < 0 ? plan_.input : plan_.forward[input].y);
      }
      MakeOutputs(i, &buffers);
    }
    plan_.score_gradient = MakeArray(BufferUse::kActivationGradient, stages_.back().out);
  }

  void MakeOutputs(size_t i, ForwardBuffers* buffers) {
    const Stage& stage = *stages_[i].stage;
    buffers->y = MakeArray(BufferUse::kActivation, stages_[i].out);
    buffers->kept = Make(BufferUse::kKept, stage.kept_bytes(sample_count_));
    buffers->scratch = Make(BufferUse::kScratch, stage.scratch_bytes(sample_count_));
  }

  // Plans the dropped outputs of the segment that ends with this stage.
  void PlanAgain(size_t last) {
    size_t first = last;
    while (first > 0 && segment_end_[first - 1] == last + 1) --first;
    for (size_t i = first; i < last; ++i) {
      if (!is_dropped_[i]) continue;
      BeginEvent(i, true).is_again = true;
      ForwardBuffers& buffers = plan_.again[i];
      for (size_t k = 0; k < stages_[i].inputs.size(); ++k) {
        buffers.x[k] = Need(Held(stages_[i].inputs[k]));
      }
      MakeOutputs(i, &buffers);
      plan_.made_again[last].push_back(i);
    }
  }

  void PlanBackward(size_t i) {
    BeginEvent(i, true);
    if (!plan_.has_backward[i]) return;
    const StagePlan& stage = stages_[i];
    const StageTraits traits = stage.stage->traits();
    BackwardBuffers& buffers = plan_.backward[i];
    if (traits.reads_input) buffers.x = Need(Held(stage.inputs[0]));
    if (traits.reads_output) buffers.y = Need(Held(static_cast<int>(i)));
    const ForwardBuffers& made = is_dropped_[i] ? plan_.again[i] : plan_.forward[i];
    buffers.kept = Need(made.kept);
    buffers.scratch = Make(BufferUse::kScratch, stage.stage->scratch_bytes(sample_count_));
    buffers.dy = Need(gradients_[i]);
    const std::optional<size_t> in_dy = InputInDy(i, traits);
    for (size_t k = 0; k < stage.inputs.size(); ++k) {
      if (IsWanted(stage.inputs[k])) PlanGradient(stage.inputs[k], in_dy == k, k, &buffers);
    }
  }

  bool IsWanted(int value) const { return value >= 0 && plan_.has_backward[value]; }

  // The input whose gradient reuses the place of dy.
  std::optional<size_t> InputInDy(size_t i, const StageTraits& traits) const {
    for (size_t k = stages_[i].inputs.size(); k-- > 0;) {
      if (traits.may_be_dy[k] && IsWanted(stages_[i].inputs[k])) return k;
    }
    return std::nullopt;
  }

  void PlanGradient(int value, bool is_in_dy, size_t k, BackwardBuffers* buffers) {
    size_t& gradient = gradients_[value];
    buffers->dx[k] =
        is_in_dy ? buffers->dy : MakeArray(BufferUse::kActivationGradient, FindShape(value));
    if (gradient == kNoBuffer) {
      gradient = buffers->dx[k];
    } else {
      buffers->sum[k] = Need(gradient);
    }
  }

  NetworkPlan Finish() {
    PlaceBuffers(&plan_.memory);
    return std::move(plan_);
  }

  const std::vector<StagePlan>& stages_;
  SampleShape input_;
  uint32_t sample_count_;
  size_t element_bytes_;
  NetworkPlan plan_;
  std::vector<size_t> segment_end_;  // by stage; kNoBuffer: in none
  std::vector<bool> is_dropped_;     // by stage: its output
  std::vector<size_t> gradients_;    // by stage: of its output, once made
  size_t event_ = 0;
};

}  // namespace

NetworkPlan PlanTraining(const std::vector<StagePlan>& stages, SampleShape input,
                         uint32_t sample_count, std::span<const StageRun> segments,
                         ElementType element) {
  return Planner(stages, input, sample_count, element).Training(segments);
}

namespace {

constexpr size_t kSegmentsMax = 32;

// By stage: whether its output is the only value before it that later stages read.
std::vector<bool> FindCuts(const std::vector<StagePlan>& stages) {
  std::vector<bool> is_cut(stages.size(), true);
  for (size_t reader = 0; reader < stages.size(); ++reader) {
    for (int input : stages[reader].inputs) {
      for (size_t i = static_cast<size_t>(input + 1); i < reader; ++i) is_cut[i] = false;
    }
  }
  return is_cut;
}

// About `count` segments of equal size, without the last one: its backward comes at once.
std::vector<StageRun> CutSegments(const std::vector<StagePlan>& stages,
                                  const std::vector<bool>& is_cut, size_t count) {
  size_t all = 0;
  for (const StagePlan& stage : stages) all += stage.out.size();
  std::vector<StageRun> segments;
  size_t first = 0, size = 0;
  for (size_t i = 0; i + 1 < stages.size(); ++i) {
    size += stages[i].out.size();
    if (!is_cut[i] || size < all / count) continue;
    segments.push_back({first, i + 1});
    first = i + 1;
    size = 0;
  }
  return segments;
}

// For one sample.
uint64_t FlopsAgain(const std::vector<StagePlan>& stages, const NetworkPlan& plan) {
  uint64_t flops = 0;
  for (const std::vector<size_t>& made_again : plan.made_again) {
    for (size_t stage : made_again) flops += stages[stage].forward_flops;
  }
  return flops;
}

}  // namespace

NetworkPlan PlanCheckpointed(const std::vector<StagePlan>& stages, SampleShape input,
                             uint32_t sample_count, uint64_t evaluation_bytes,
                             ElementType element) {
  const std::vector<bool> is_cut = FindCuts(stages);
  const auto cost_of = [&](const NetworkPlan& plan) {
    return std::pair(std::max(plan.memory.allocated_bytes, evaluation_bytes),
                     FlopsAgain(stages, plan));
  };
  NetworkPlan best = PlanTraining(stages, input, sample_count, {}, element);
  for (size_t count = 2; count <= kSegmentsMax; ++count) {
    NetworkPlan plan =
        PlanTraining(stages, input, sample_count, CutSegments(stages, is_cut, count), element);
    if (cost_of(plan) < cost_of(best)) best = std::move(plan);
  }
  return best;
}

NetworkPlan PlanEvaluation(const std::vector<StagePlan>& stages, SampleShape input,
                           uint32_t sample_count, ElementType element) {
  return Planner(stages, input, sample_count, element).Evaluation();
}

}  // namespace pando
