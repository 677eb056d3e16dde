#include "cli/batch_check.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "cli/text.h"
#include "models/graph.h"
#include "worker/evaluate_chunk.h"

namespace pando {
namespace {

const Layer* FindNormOfOnePixel(const Graph& graph) {
  for (const Layer& layer : graph.layers()) {
    const bool is_norm = layer.spec.kind == LayerKind::kBatchNorm;
    if (is_norm && layer.out.height == 1 && layer.out.width == 1) return &layer;
  }
  return nullptr;
}

// A step in which some micro-batch has one sample. Of B samples in N micro-batches each has B / N,
// or one more; only an epoch's last step may have fewer samples than the others.
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

}  // namespace

Status CheckMicroBatches(const Job& job, const Model& model, const StepPlan& steps) {
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
  // A plan's sums of sizes stay far from where 64 bits end if each of them fits this machine.
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

uint64_t MachineMemoryBytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace pando
