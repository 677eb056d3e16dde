#include "train/compute_thread.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/float_env.h"
#include "common/time_slice.h"

namespace pando {
namespace {

using What = StepTimeline::What;

constexpr int64_t kTimeMemory = 8;  // micro-batches that the average time looks back
// A process that was stopped, or lost its core for a while, is not slow. So one micro-batch counts
// as at most this many times the average.
constexpr int64_t kTimeOutlier = 4;

// Switches the calling thread to the device, before anything is allocated on it.
Device UsedOnThisThread(Device device) {
  SetFloatEnvironment();
  if (device.kind == DeviceKind::kCpu) TakeBatchTimeSlices();
  UseOnThisThread(device);
  return device;
}

SampleCounts NetworkSamples(const JobPlan& plan) {
  return {.training = static_cast<uint32_t>(plan.steps.micro_batch_samples_max()),
          .evaluation = kEvaluationChunkSamples};
}

// Joins one micro-batch's pass to its call: gradients go to the trainer's sink as events.
class CallPort : public GradientSink, public PassControl {
 public:
  CallPort(const ComputeCall& call, bool is_hashed, const TaskQueue& queue, const ComputeSink& sink)
      : call_(call), is_hashed_(is_hashed), queue_(queue), sink_(sink) {}

  void OnGradient(TreeNode node, ShardId shard, Blob sum) override {
    sink_(call_.ticket, GradientReady{call_.step, node, shard, std::move(sum)});
  }
  // A wait also ends for evaluation, because the parameters may wait for a pin (P31).
  bool IsInterrupted() const override {
    return queue_.is_stopping() || call_.abandoned || queue_.has_chunks();
  }
  // Shards that have left may count. If the micro-batch is hashed, it is hashed to its end (P41).
  bool IsAbandoned(bool is_partly_out) const override {
    return queue_.is_stopping() || (call_.abandoned && !(is_partly_out && is_hashed_));
  }
  void FetchParameters(const std::vector<ShardId>& shards) override {
    sink_(call_.lasting_ticket,
          ParametersWanted{ParameterUse::kTraining, VersionReadBy(call_.step), shards});
  }

 private:
  const ComputeCall& call_;
  const bool is_hashed_;
  const TaskQueue& queue_;
  const ComputeSink& sink_;
};

}  // namespace

void MicroBatchTime::Add(std::chrono::nanoseconds time) {
  const int64_t average = average_ns_;
  const int64_t sample = std::max<int64_t>(1, time.count());
  average_ns_ = average == 0
                    ? sample
                    : average + (std::min(sample, kTimeOutlier * average) - average) / kTimeMemory;
}

ComputeThread::ComputeThread(const Parts& parts, uint32_t index)
    : parts_(parts),
      timeline_(parts.timeline, "compute " + std::to_string(index)),
      network_(parts.model, NetworkSamples(parts.plan), UsedOnThisThread(parts.device)),
      pass_(network_, parts.device,
            {parts.plan, parts.batches, parts.parameters, parts.gradients, parts.host_gradients,
             parts.encoded_gradients, parts.feedback, timeline_,
             [&queue = parts.queue] { return queue.NextBatch(); }}),
      evaluation_pass_(parts.plan, network_, parts.device) {
  timeline_.NameLayers(network_);
}

void ComputeThread::Run() {
  while (std::optional<ComputeTask> task = parts_.queue.Take()) {
    std::visit([this](auto& t) { RunTask(t); }, *task);
    timeline_.Did(What::kFinish);
  }
}

// ---- micro-batches ------------------------------------------------------------------------------

void ComputeThread::RunTask(MicroBatchTask& task) {
  ComputeCall& call = *task.call;
  timeline_.Begin(call.step, task.micro_batch.value());
  timeline_.Did(What::kAwaitWork);
  const bool is_hashed = parts_.plan.IsVerified(call.step, task.micro_batch);
  uint64_t hash = 0;
  CallPort port(call, is_hashed, parts_.queue, parts_.sink);
  Status status = pass_.Run({.step = call.step,
                             .micro_batch = task.micro_batch,
                             .sum = call.sum ? &*call.sum : nullptr,
                             .hash = is_hashed ? &hash : nullptr,
                             .sink = port,
                             .control = port});
  if (hash != 0)
    parts_.sink(call.lasting_ticket, GradientHashed{call.step, task.micro_batch, hash});
  Finish(task, std::move(status));
}

void ComputeThread::Finish(MicroBatchTask& task, Status status) {
  ComputeCall& call = *task.call;
  if (call.abandoned) return;
  if (status.code() == StatusCode::kInterrupted) return GiveBack(task);
  if (!status.ok()) {
    if (!parts_.queue.AbandonFailed(call)) return;
    return parts_.sink(call.sum ? call.ticket : call.lasting_ticket,
                       ComputeFailed{std::move(status)});
  }
  parts_.time.Add(pass_.computing_time());
  parts_.queue.ReadAhead();
  if (--call.unfinished_count == 0 && call.sum) parts_.sink(call.ticket, StepComputed{call.step});
}

// If the version is superseded, the sum is not needed any more. A verification reports a hash of 0.
void ComputeThread::GiveBack(const MicroBatchTask& task) {
  const ComputeCall& call = *task.call;
  if (!parts_.parameters.IsSuperseded(VersionReadBy(call.step))) return parts_.queue.GiveBack(task);
  if (!call.sum) parts_.sink(call.lasting_ticket, GradientHashed{call.step, task.micro_batch, 0});
}

// ---- evaluation ---------------------------------------------------------------------------------

void ComputeThread::RunTask(ChunkTask& task) {
  SliceEvaluation& evaluation = *task.evaluation;
  if (evaluation.abandoned) return;
  timeline_.Begin(StepReading(evaluation.request.version), static_cast<uint32_t>(task.chunk));
  timeline_.Did(What::kAwaitWork);
  const auto [first, last] = evaluation.SamplesOfChunk(task.chunk);
  auto batch = parts_.batches.TakeTest(first, last);
  timeline_.Did(What::kAwaitSamples);
  parts_.queue.ReadChunksAhead();
  if (!batch.ok()) return parts_.sink(evaluation.ticket, ComputeFailed{batch.status()});
  Result<ChunkScore> score = Score(evaluation, **batch);
  timeline_.Did(What::kEvaluate);
  if (score.status().code() == StatusCode::kInterrupted) return;
  if (!score.ok()) return parts_.sink(evaluation.ticket, ComputeFailed{score.status()});
  evaluation.scores[task.chunk] = *std::move(score);
  if (--evaluation.unfinished_count > 0) return;
  parts_.sink(evaluation.ticket, CombineScores(evaluation.request, evaluation.scores));
}

Result<ChunkScore> ComputeThread::Score(const SliceEvaluation& evaluation, const Batch& batch) {
  if (evaluation.parameters != nullptr)
    return evaluation_pass_.Run(batch, {evaluation.number, evaluation.parameters->data(), {}});
  const Version version = evaluation.request.version;
  const auto interrupted = [&] { return parts_.queue.is_stopping() || evaluation.abandoned; };
  auto parameters = parts_.evaluation_parameters.HoldVersion(version, interrupted);
  if (!parameters.ok()) return parameters.status();
  const auto fetch = [&](const std::vector<ShardId>& shards) {
    parts_.sink(evaluation.ticket, ParametersWanted{ParameterUse::kEvaluation, version, shards});
  };
  const auto await = [&](const LayerReads& reads) {
    return parameters->Advance(reads.now, reads.next, interrupted, fetch);
  };
  return evaluation_pass_.Run(batch, {parameters->serial(), parameters->values(), await});
}

}  // namespace pando
