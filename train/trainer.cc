#include "train/trainer.h"

#include <utility>

#include "common/check.h"
#include "kernels/batch_block.h"

namespace pando {
namespace {

constexpr uint32_t kReadAheadPerThread = 2;      // micro-batches: the bound of what waits in memory
constexpr uint64_t kEvaluationVersionsKept = 1;  // P31: one pin at a time

BufferPool::Make PinnedFor(Device device) {
  return [device](size_t count) { return PinnedFloats(device, count); };
}

BufferSource GradientsFor(const Trainer::Parts& parts) {
  if (parts.device.kind == DeviceKind::kCpu) return parts.buffers;
  return {.make = [device = parts.device](size_t count) { return DeviceFloats(device, count); }};
}

BatchSource::Finish FinishFor(Device device) {
  if (device.kind == DeviceKind::kCpu) return {};
  return [device](Batch* batch) { PinBatch(device, batch); };
}

}  // namespace

Trainer::Trainer(const Parts& parts, uint32_t thread_count, Sink sink, ParameterResidency residency)
    : parts_(parts),
      sink_(std::move(sink)),
      batches_(parts.data, parts.plan.steps, parts.plan.job.seed,
               /*prefetch_max=*/kReadAheadPerThread * thread_count, parts.plan.job.reader_threads,
               FinishFor(parts.device)),
      parameters_(parts.plan.shards,
                  {kTrainingVersionsKept, residency, PinnedFor(parts.device), &parts.plan.pulls},
                  held_bytes_),
      gradients_(parts.plan.layout.float_count(), GradientsFor(parts)),
      host_gradients_(parts.plan.layout.float_count(), PinnedFor(parts.device)),
      encoded_gradients_(parts.plan.pushes.float_count(), parts.buffers),
      feedback_(parts.plan),
      queue_(parts.plan.steps, kReadAheadPerThread * thread_count, batches_, parameters_),
      evaluations_(parts.plan.shards, {kEvaluationVersionsKept, residency, PinnedFor(parts.device)},
                   held_bytes_, tickets_, queue_, sink_) {
  PANDO_CHECK(thread_count >= 1);
  PANDO_CHECK(parts.device.kind == DeviceKind::kCpu || thread_count == 1);
  if (parts.timeline != nullptr) pull_ = parts.timeline->Name({"pull", "pull", "shard"});
  const ComputeThread::Parts shared{.plan = parts.plan,
                                    .model = parts.model,
                                    .device = parts.device,
                                    .timeline = parts.timeline,
                                    .batches = batches_,
                                    .parameters = parameters_,
                                    .evaluation_parameters = evaluations_.parameters(),
                                    .gradients = gradients_,
                                    .host_gradients = host_gradients_,
                                    .encoded_gradients = encoded_gradients_,
                                    .feedback = feedback_,
                                    .queue = queue_,
                                    .time = time_,
                                    .sink = sink_};
  for (uint32_t i = 0; i < thread_count; ++i)
    threads_.emplace_back([shared, i] { ComputeThread(shared, i).Run(); });
}

Trainer::~Trainer() {
  queue_.Stop();
  evaluations_.parameters().Wake();
  for (std::thread& thread : threads_) thread.join();
}

void Trainer::Compute(Step step, std::vector<MicroBatch> micro_batches) {
  PANDO_CHECK(!micro_batches.empty());
  const JobPlan& plan = parts_.plan;
  auto call = std::make_shared<ComputeCall>(tickets_.ForCall(step), tickets_.lasting(), step);
  call->sum.emplace(plan.steps.Tree(step), plan.NodesToPush(step, micro_batches), plan.shards,
                    parts_.device);
  queue_.Push(call, micro_batches);
}

void Trainer::Verify(Step step, MicroBatch micro_batch) {
  queue_.Push(std::make_shared<ComputeCall>(tickets_.Next(), tickets_.lasting(), step),
              {micro_batch});
}

void Trainer::Abandon(Step from) {
  tickets_.Abandon(from);
  queue_.Abandon([&](const ComputeCall& call) { return call.sum && call.step >= from; });
}

void Trainer::Forget() {
  tickets_.Forget();
  evaluations_.Forget();
  queue_.Abandon([](const ComputeCall&) { return true; });
  parameters_.Clear();
  feedback_.Forget();
}

void Trainer::ParametersArrived(ShardId shard, Version version, const Blob& payload) {
  const TimelineSpan span = PullSpan(shard, version);
  parameters_.Put(shard, version, payload);
}

void Trainer::ParametersGone(ParameterUse use, Version version) {
  if (use == ParameterUse::kTraining) return parameters_.Supersede(version);
  evaluations_.ParametersGone(version);
}

void Trainer::EvaluateSlice(const Evaluate& request) { evaluations_.EvaluateSlice(request); }

void Trainer::EvaluationParametersArrived(ShardId shard, Version version, const Blob& payload) {
  const TimelineSpan span = PullSpan(shard, version);
  evaluations_.ParametersArrived(shard, version, payload);
}

bool Trainer::IsCurrent(ComputeTicket ticket, const ComputeEvent& event) {
  return tickets_.IsCurrent(ticket, event);
}

uint64_t Trainer::micro_batch_us() const {
  const auto thread_count = static_cast<int64_t>(threads_.size());
  return static_cast<uint64_t>((time_.average_ns() / thread_count + 999) / 1000);
}

uint64_t Trainer::exposed_sync_us() const { return parameters_.waited_us() / threads_.size(); }

uint64_t Trainer::data_stall_us() const {
  return static_cast<uint64_t>(batches_.stalled().count() / 1000);
}

TimelineSpan Trainer::PullSpan(ShardId shard, Version version) const {
  const Step step = StepReading(version);
  const bool is_wanted = parts_.protocol != nullptr && parts_.timeline->Wants(step);
  return {is_wanted ? parts_.protocol : nullptr, pull_, step, shard.value()};
}

}  // namespace pando
