#include "models/network_plan.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "common/check.h"

namespace pando {

std::vector<BytesByUse> MemoryPlan::LiveBytes() const {
  std::vector<BytesByUse> begun(events.size() + 1), ended(events.size() + 1);
  for (const PlannedBuffer& buffer : buffers) {
    const auto use = static_cast<size_t>(buffer.use);
    begun[buffer.first_event][use] += buffer.bytes;
    ended[buffer.last_event + 1][use] += buffer.bytes;
  }
  std::vector<BytesByUse> live(events.size());
  BytesByUse bytes{};
  for (size_t event = 0; event < events.size(); ++event) {
    for (size_t use = 0; use < kBufferUseCount; ++use) {
      bytes[use] += begun[event][use] - ended[event][use];
    }
    live[event] = bytes;
  }
  return live;
}

uint64_t MemoryPlan::PeakLiveBytes() const {
  uint64_t peak = 0;
  for (const BytesByUse& bytes : LiveBytes()) {
    peak = std::max(peak, std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}));
  }
  return peak;
}

namespace {

uint64_t Aligned(uint64_t bytes) {
  return (bytes + kBufferAlignmentBytes - 1) / kBufferAlignmentBytes * kBufferAlignmentBytes;
}

// Returns the lowest offset where `buffer` overlaps no buffer of `placed` needed at the same time.
uint64_t LowestOffset(const PlannedBuffer& buffer,
                      const std::vector<const PlannedBuffer*>& placed) {
  uint64_t offset = 0;
  for (const PlannedBuffer* other : placed) {  // by offset
    const bool is_apart =
        other->last_event < buffer.first_event || buffer.last_event < other->first_event;
    if (is_apart || other->offset + other->bytes <= offset) continue;
    if (offset + buffer.bytes <= other->offset) break;
    offset = Aligned(other->offset + other->bytes);
  }
  return offset;
}

}  // namespace

void PlaceBuffers(MemoryPlan* plan) {
  std::vector<PlannedBuffer*> order;
  for (PlannedBuffer& buffer : plan->buffers) order.push_back(&buffer);
  std::ranges::stable_sort(
      order, [](const PlannedBuffer* a, const PlannedBuffer* b) { return a->bytes > b->bytes; });
  std::vector<const PlannedBuffer*> placed;
  plan->allocated_bytes = 0;
  for (PlannedBuffer* buffer : order) {
    buffer->offset = LowestOffset(*buffer, placed);
    const auto at = std::ranges::upper_bound(placed, buffer->offset, {},
                                             [](const PlannedBuffer* p) { return p->offset; });
    placed.insert(at, buffer);
    plan->allocated_bytes =
        std::max(plan->allocated_bytes, Aligned(buffer->offset + buffer->bytes));
  }
}

namespace {

// Planner makes one plan, event by event.
class Planner {
 public:
  explicit Planner(const PlanRequest& request) : request_(request), stages_(request.stages) {
    plan_.forward.resize(stages_.size());
    plan_.again.resize(stages_.size());
    plan_.backward.resize(stages_.size());
    plan_.has_backward.resize(stages_.size());
    plan_.made_again.resize(stages_.size());
    segment_end_.assign(stages_.size(), kNoBuffer);
    is_dropped_.resize(stages_.size());
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
  // Drops the run's outputs that no stage behind the segment reads, so the last one's is kept.
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

  // Notes that the current event needs the buffer. The first event that needs a buffer makes it.
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
    const size_t element_count = shape.size() * request_.sample_count + kSlackElements;
    return Make(use, element_count * ElementBytes(request_.device.element));
  }

  size_t MakeScratch(const StagePlan& stage) {
    return Make(BufferUse::kScratch,
                stage.stage->scratch_bytes(request_.device, request_.sample_count));
  }

  MemoryEvent& BeginEvent(size_t stage, bool is_backward) {
    event_ = plan_.memory.events.size();
    return plan_.memory.events.emplace_back(
        MemoryEvent{.is_backward = is_backward, .layers = stages_[stage].layers});
  }

  // Returns the place of a stage's output in forward, or in backward.
  size_t Held(int value, bool is_backward) const {
    if (value < 0) return plan_.input;
    return is_backward && is_dropped_[value] ? plan_.again[value].y : plan_.forward[value].y;
  }

  // ---- events ---------------------------------------------------------------------------------

  void PlanForward() {
    BeginEvent(0, false);
    SampleShape input = request_.input;
    if (CanPadInput()) input.channels = StoredChannels(request_.device, input.channels);
    plan_.input = MakeArray(BufferUse::kActivation, input);
    plan_.input_channels = input.channels;
    for (size_t i = 0; i < stages_.size(); ++i) {
      if (i > 0) BeginEvent(i, false);
      PlanStage(i, false);
    }
    plan_.score_gradient = MakeArray(BufferUse::kActivationGradient, stages_.back().out);
  }

  bool CanPadInput() const {
    return std::ranges::all_of(stages_, [](const StagePlan& stage) {
      return stage.stage->traits().can_pad_input ||
             std::ranges::find(stage.inputs, kGraphInput) == stage.inputs.end();
    });
  }

  // Plans the buffers of a stage in forward, or for computing it again.
  void PlanStage(size_t i, bool is_again) {
    const StagePlan& stage = stages_[i];
    ForwardBuffers& buffers = is_again ? plan_.again[i] : plan_.forward[i];
    for (size_t k = 0; k < stage.inputs.size(); ++k) {
      buffers.x[k] = Need(Held(stage.inputs[k], is_again));
    }
    buffers.y = MakeArray(BufferUse::kActivation, stage.out);
    buffers.kept = Make(BufferUse::kKept, stage.stage->kept_bytes(request_.sample_count));
    buffers.scratch = MakeScratch(stage);
  }

  // Plans the dropped outputs of the segment that ends with this stage.
  void PlanAgain(size_t last) {
    size_t first = last;
    while (first > 0 && segment_end_[first - 1] == last + 1) --first;
    for (size_t i = first; i < last; ++i) {
      if (!is_dropped_[i]) continue;
      BeginEvent(i, true).is_again = true;
      PlanStage(i, true);
      plan_.made_again[last].push_back(i);
    }
  }

  void PlanBackward(size_t i) {
    BeginEvent(i, true);
    if (!plan_.has_backward[i]) return;
    const StagePlan& stage = stages_[i];
    const StageTraits traits = stage.stage->traits();
    BackwardBuffers& buffers = plan_.backward[i];
    if (traits.reads_input) buffers.x = Need(Held(stage.inputs[0], true));
    if (traits.reads_output) buffers.y = Need(Held(static_cast<int>(i), true));
    const ForwardBuffers& made = is_dropped_[i] ? plan_.again[i] : plan_.forward[i];
    buffers.kept = Need(made.kept);
    buffers.scratch = MakeScratch(stage);
    buffers.dy = Need(gradients_[i]);
    const std::optional<size_t> in_dy = InputInDy(i, traits);
    for (size_t k = 0; k < stage.inputs.size(); ++k) {
      if (!IsWanted(stage.inputs[k])) continue;
      if (AddsGradient(stage.inputs[k], traits)) {
        buffers.dx[k] = Need(gradients_[stage.inputs[k]]);
        buffers.adds_dx = true;
      } else {
        PlanGradient(stage.inputs[k], in_dy == k, k, &buffers);
      }
    }
  }

  bool IsWanted(int value) const { return value >= 0 && plan_.has_backward[value]; }

  // Returns whether the stage adds the gradient itself, so that it needs no array and no addition.
  bool AddsGradient(int value, const StageTraits& traits) const {
    return traits.can_add_dx && request_.device.kind == DeviceKind::kCuda &&
           gradients_[value] != kNoBuffer;
  }

  // Returns the input whose gradient reuses the place of dy.
  std::optional<size_t> InputInDy(size_t i, const StageTraits& traits) const {
    for (size_t k = stages_[i].inputs.size(); k-- > 0;) {
      if (traits.may_be_dy[k] && IsWanted(stages_[i].inputs[k])) return k;
    }
    return std::nullopt;
  }

  void PlanGradient(int value, bool is_in_dy, size_t k, BackwardBuffers* buffers) {
    size_t& gradient = gradients_[value];
    buffers->dx[k] =
        is_in_dy ? buffers->dy : MakeArray(BufferUse::kActivationGradient, stages_[value].out);
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

  const PlanRequest& request_;
  const std::vector<StagePlan>& stages_;
  NetworkPlan plan_;
  std::vector<size_t> segment_end_;  // by stage; kNoBuffer: in none
  std::vector<bool> is_dropped_;     // by stage: its output is dropped
  std::vector<size_t> gradients_;    // by stage: its output's gradient, once made
  size_t event_ = 0;
};

}  // namespace

NetworkPlan PlanTraining(const PlanRequest& request, std::span<const StageRun> segments) {
  return Planner(request).Training(segments);
}

namespace {

constexpr size_t kSegmentsMax = 32;

// Returns for each stage whether its output is the only earlier value that later stages read.
std::vector<bool> FindCuts(const std::vector<StagePlan>& stages) {
  std::vector<bool> is_cut(stages.size(), true);
  for (size_t reader = 0; reader < stages.size(); ++reader) {
    for (int input : stages[reader].inputs) {
      for (size_t i = static_cast<size_t>(input + 1); i < reader; ++i) is_cut[i] = false;
    }
  }
  return is_cut;
}

// Cuts about `count` segments of equal size, without the last one, whose backward comes at once.
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

// Counts the operations of the stages that are computed again, for one sample.
uint64_t FlopsAgain(const std::vector<StagePlan>& stages, const NetworkPlan& plan) {
  uint64_t flops = 0;
  for (const std::vector<size_t>& made_again : plan.made_again) {
    for (size_t stage : made_again) flops += stages[stage].forward_flops;
  }
  return flops;
}

}  // namespace

NetworkPlan PlanCheckpointed(const PlanRequest& request, uint64_t evaluation_bytes) {
  const std::vector<bool> is_cut = FindCuts(request.stages);
  const auto cost = [&](const NetworkPlan& plan) {
    return std::pair(std::max(plan.memory.allocated_bytes, evaluation_bytes),
                     FlopsAgain(request.stages, plan));
  };
  NetworkPlan best = PlanTraining(request, {});
  for (size_t count = 2; count <= kSegmentsMax; ++count) {
    NetworkPlan plan = PlanTraining(request, CutSegments(request.stages, is_cut, count));
    if (cost(plan) < cost(best)) best = std::move(plan);
  }
  return best;
}

NetworkPlan PlanEvaluation(const PlanRequest& request) { return Planner(request).Evaluation(); }

}  // namespace pando
