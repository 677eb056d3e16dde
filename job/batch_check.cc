#include "job/batch_check.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include "common/text.h"
#include "models/graph.h"
#include "plan/micro_batch_tree.h"
#include "train/evaluation_pass.h"
#include "train/gpu/device_codec.h"

namespace pando {
namespace {

const Layer* FindNormOfOnePixel(const Graph& graph) {
  for (const Layer& layer : graph.layers()) {
    const bool is_norm = layer.spec.kind == LayerKind::kBatchNorm;
    if (is_norm && layer.out.height == 1 && layer.out.width == 1) return &layer;
  }
  return nullptr;
}

// Finds a step in which some micro-batch has one sample. With B samples in N micro-batches, each
// has B / N samples or one more. Only an epoch's last step may have fewer samples than the others.
std::optional<Step> FindStepOfSingles(const Job& job, const StepPlan& steps) {
  const uint64_t last = std::min(steps.steps_per_epoch(), steps.step_count()) - 1;
  for (Step step : {Step(0), Step(last)}) {
    if (steps.SampleCount(step) < 2 * uint64_t{job.micro_batches}) return step;
  }
  return std::nullopt;
}

uint64_t LargestOutputBytes(const Graph& graph, uint64_t samples) {
  uint64_t values = graph.input().size();
  for (const Layer& layer : graph.layers()) values = std::max<uint64_t>(values, layer.out.size());
  return values * samples * sizeof(float);
}

// Returns the most vectors at once: those that wait for a sibling, and the one that is being made.
uint64_t GradientVectorsMax(uint64_t micro_batches) {
  return static_cast<uint64_t>(std::bit_width(micro_batches - 1)) + 1;
}

// Does the same for a group, in which a rank's sums stay until a bucket is full: its whole share
// except one sum, and the vectors that this sum needs while it is made.
uint64_t GroupVectorsMax(uint32_t micro_batches, uint32_t ranks) {
  const MicroBatchTree tree({.micro_batch_count = micro_batches, .sample_count = micro_batches});
  uint64_t most = 1;
  for (uint64_t rank = 0; rank < ranks; ++rank) {
    std::vector<MicroBatch> share;
    for (uint64_t m = micro_batches * rank / ranks; m < micro_batches * (rank + 1) / ranks; ++m)
      share.push_back(MicroBatch(static_cast<uint32_t>(m)));
    const std::vector<TreeNode> nodes = tree.Cover(share);
    uint32_t largest = 0;
    for (const TreeNode node : nodes) {
      const MicroBatchRange range = tree.Range(node);
      largest = std::max(largest, range.last - range.first);
    }
    if (largest > 0) most = std::max(most, nodes.size() - 1 + GradientVectorsMax(largest));
  }
  return most;
}

constexpr uint64_t kGpuSamplesMax = 65535;  // each sample is one row of a kernel's grid
constexpr uint64_t kPlannableBytesMax = uint64_t{1} << 46;

// Returns the fewest micro-batches that have at most `samples` each.
uint64_t CountMicroBatches(const Job& job, uint64_t samples) {
  return (job.global_batch + samples - 1) / samples;
}

// Returns the error if the GPU has no room for `plan`.
std::string NoRoomText(Device device, const JobPlan& plan, const Model& model,
                       const GpuMemoryPlan& needed, uint64_t free_bytes) {
  const uint64_t samples = plan.steps.micro_batch_samples_max();
  uint64_t fits = 0;
  for (uint64_t step = std::bit_floor(samples); step > 0; step /= 2) {
    const uint64_t tried = fits + step;
    if (tried < samples && PlanGpuMemory(device, plan, model, tried).total() <= free_bytes)
      fits = tried;
  }
  const std::string text = fmt::format(
      "model {}: a worker takes {} of the GPU's memory with micro-batches of {} samples "
      "(parameters {}, gradients {}, activations and scratch {}, batches {}), and {} are free",
      plan.job.model, BytesText(needed.total()), samples, BytesText(needed.parameters),
      BytesText(needed.gradients), BytesText(needed.network), BytesText(needed.batches),
      BytesText(free_bytes));
  if (fits == 0) return text + "; not even one sample would fit: choose another GPU or model";
  return text + fmt::format(
                    "; {} samples would fit: set train.micro_batches to {} ({} now), or try "
                    "--activation-checkpointing",
                    fits, CountMicroBatches(plan.job, fits), plan.job.micro_batches);
}

}  // namespace

Status CheckMicroBatches(const Job& job, const Model& model, const StepPlan& steps) {
  const uint64_t samples = steps.SampleCount(Step(0));
  if (job.last_batch == LastBatch::kDrop && samples < job.global_batch) {
    return InvalidArgument(fmt::format(
        "train.last_batch is \"drop\", and the {} training samples are no whole batch of {}: "
        "nothing would be left. Lower train.global_batch, or set train.last_batch = \"short\"",
        samples, job.global_batch));
  }
  const Layer* norm = FindNormOfOnePixel(model.graph());
  if (norm == nullptr) return Status();
  const std::optional<Step> step = FindStepOfSingles(job, steps);
  if (!step) return Status();
  return InvalidArgument(fmt::format(
      "model {}: layer '{}' ({}) gets one pixel of a sample, and step {} has micro-batches of one "
      "sample: the variance of one value is 0. Lower train.micro_batches ({}), leave short batches "
      "out with train.last_batch = \"drop\", or choose larger pictures",
      job.model, norm->spec.name, LayerKindName(norm->spec.kind), step->value(),
      job.micro_batches));
}

Status CheckMemory(const Job& job, const Model& model, const StepPlan& steps,
                   uint64_t memory_bytes) {
  const uint64_t samples = steps.micro_batch_samples_max();
  // A plan's sums of sizes cannot overflow 64 bits if each size fits this machine.
  uint64_t bytes = LargestOutputBytes(model.graph(), samples);
  if (bytes <= memory_bytes) {
    bytes = Network::PlanMemory(model, {.training = static_cast<uint32_t>(samples),
                                        .evaluation = kEvaluationChunkSamples})
                .allocated_bytes();
  }
  if (bytes <= memory_bytes) return Status();
  return InvalidArgument(fmt::format(
      "model {}: activations take {} or more, with micro-batches of {} samples and evaluation of "
      "{} at a time, and this machine has {} of memory; raise train.micro_batches ({}), or choose "
      "a smaller model or smaller pictures",
      job.model, BytesText(bytes), samples, kEvaluationChunkSamples, BytesText(memory_bytes),
      job.micro_batches));
}

GpuMemoryPlan PlanGpuMemory(Device device, const JobPlan& plan, const Model& model,
                            uint64_t samples) {
  const uint64_t flat = plan.layout.float_count() * sizeof(float);
  const bool is_evaluated = plan.data.test_samples > 0;
  const uint64_t sample_bytes =
      plan.data.shape.size() * (plan.data.shape.height == 1 ? sizeof(float) : 1) + sizeof(int32_t);
  const auto encoded = [&](const PayloadPlan& payloads) {
    return DeviceCodec::CanCode(device, payloads) ? payloads.float_count() * sizeof(float) : 0;
  };
  const bool is_as_given = samples == plan.steps.micro_batch_samples_max();
  const auto micro_batches = static_cast<uint32_t>(
      is_as_given ? plan.job.micro_batches : CountMicroBatches(plan.job, samples));
  const bool is_group = plan.job.strategy == Strategy::kAllreduce;
  const uint64_t vectors = is_group ? GroupVectorsMax(micro_batches, plan.job.workers)
                                    : GradientVectorsMax(micro_batches);
  const bool is_layered = plan.job.parameter_residency == ParameterResidency::kLayer;
  return {.parameters = flat * (is_evaluated ? 2 : 1) + (is_layered ? 0 : encoded(plan.pulls)),
          .gradients = flat * vectors + encoded(plan.pushes),
          .network = Network::PlanMemory(model,
                                         {.training = static_cast<uint32_t>(samples),
                                          .evaluation = kEvaluationChunkSamples},
                                         device)
                         .allocated_bytes(),
          .batches = (samples + (is_evaluated ? kEvaluationChunkSamples : 0)) * sample_bytes};
}

// Bounds the samples so that a plan's sums of sizes stay far below the range of 64 bits.
Status CheckGpuSamples(Device device, const JobPlan& plan, const Model& model, uint64_t samples) {
  if (samples <= kGpuSamplesMax && LargestOutputBytes(model.graph(), samples) <= kPlannableBytesMax)
    return Status();
  return InvalidArgument(fmt::format(
      "model {}: micro-batches of {} samples are too large for a GPU, which has {} and takes at "
      "most {} samples at a time; raise train.micro_batches ({})",
      plan.job.model, samples, BytesText(ReadRoom(device).total_bytes), kGpuSamplesMax,
      plan.job.micro_batches));
}

Status CheckDeviceMemory(Device device, const JobPlan& plan, const Model& model) {
  if (device.kind == DeviceKind::kCpu)
    return CheckMemory(plan.job, model, plan.steps, MachineMemoryBytes());
  const uint64_t samples = plan.steps.micro_batch_samples_max();
  PANDO_RETURN_IF_ERROR(CheckGpuSamples(device, plan, model, samples));
  const uint64_t free_bytes = ReadRoom(device).free_bytes;
  const GpuMemoryPlan needed = PlanGpuMemory(device, plan, model, samples);
  if (needed.total() <= free_bytes) return Status();
  return InvalidArgument(NoRoomText(device, plan, model, needed, free_bytes));
}

uint64_t MachineMemoryBytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace pando
