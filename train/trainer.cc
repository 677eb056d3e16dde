#include "train/trainer.h"

#include <string>
#include <utility>

#include "common/check.h"
#include "common/system.h"
#include "kernels/batch_block.h"
#include "train/gpu/device_codec.h"

namespace pando {

namespace {

using What = StepTimeline::What;

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

// Micro-batches that are read ahead for each computing thread: they wait in memory. A GPU takes its
// next one at once, so a slow read must not be the last one.
uint32_t ReadAheadPerThread(Device device) { return device.kind == DeviceKind::kCpu ? 2 : 4; }
constexpr uint64_t kEvaluationVersionsKept = 1;  // P31: one pin at a time

BufferPool::Make PinnedFor(Device device) {
  return [device](size_t count) { return PinnedFloats(device, count); };
}

// The same memory. The GPU accesses it directly if its driver allows that.
FloatBuffer Pinned(Device device, FloatBuffer buffer) {
  struct Kept {  // the pin goes first
    FloatBuffer buffer;
    std::shared_ptr<const void> pin;
  };
  const size_t size = buffer.size();
  constexpr uintptr_t kPageBytes = 4096;
  // A small buffer, or one for which shared memory had no room, shares its pages with others.
  if (reinterpret_cast<uintptr_t>(buffer.data()) % kPageBytes != 0) return buffer;
  auto pin = PinHost(device, std::as_bytes(buffer.span()), HostPin::kReadWrite);
  if (pin == nullptr) return buffer;
  auto kept = std::make_shared<Kept>(Kept{std::move(buffer), std::move(pin)});
  float* data = kept->buffer.data();
  return FloatBuffer(FloatBuffer::Memory(data, [kept](float*) mutable { kept = nullptr; }), size);
}

// A GPU's gradients arrive in memory that other processes of the host read, if there is any.
BufferSource HostGradientsFor(const TrainerParts& parts) {
  if (!parts.buffers.renew) return {.make = PinnedFor(parts.device), .renew = {}};
  return {.make = [device = parts.device,
                   make = parts.buffers.make](size_t count) { return Pinned(device, make(count)); },
          .renew = parts.buffers.renew};
}

// Parameters of this host's servers are uploaded from the servers' shared memory.
ParameterStore::Options TrainingParameters(const TrainerParts& parts,
                                           ParameterResidency residency) {
  ParameterStore::Options options{parts.plan.steps.versions_kept(), residency,
                                  PinnedFor(parts.device), &parts.plan.pulls};
  if (parts.device.kind == DeviceKind::kCuda && residency == ParameterResidency::kAll) {
    options.is_read_in_place = [device = parts.device](const Blob& payload) {
      return IsPinned(device, payload.bytes());
    };
    options.keeps_encoded = DeviceCodec::CanCode(parts.device, parts.plan.pulls);
  }
  return options;
}

BufferSource GradientsFor(const TrainerParts& parts) {
  if (parts.device.kind == DeviceKind::kCpu) return parts.buffers;
  return {.make = [device = parts.device](size_t count) { return DeviceFloats(device, count); }};
}

BatchSource::Finish FinishFor(Device device) {
  if (device.kind == DeviceKind::kCpu) return {};
  return [device](Batch* batch) { PinBatch(device, batch); };
}

// Answers a micro-batch's pass for its call.
class CallControl : public PassControl {
 public:
  CallControl(const ComputeCall& call, bool is_hashed, const TaskQueue& queue,
              const ComputeSink& sink)
      : call_(call), is_hashed_(is_hashed), queue_(queue), sink_(sink) {}

  // A wait also ends for evaluation, because the parameters may wait for a pin (P31).
  bool IsInterrupted() const override {
    return queue_.is_stopping() || call_.is_abandoned || queue_.has_chunks();
  }
  bool IsAbandoned(bool is_partly_out) const override {
    return queue_.is_stopping() || call_.IsDropped(is_partly_out, is_hashed_);
  }
  void FetchParameters(const std::vector<ShardId>& shards) override {
    sink_(call_.lasting_ticket, ParametersWanted{ParameterUse::kTraining, call_.version, shards});
  }

 private:
  const ComputeCall& call_;
  const bool is_hashed_;
  const TaskQueue& queue_;
  const ComputeSink& sink_;
};

}  // namespace

Trainer::Trainer(const Parts& parts, uint32_t thread_count, Sink sink, ParameterResidency residency)
    : QueuedComputer({.plan = parts.plan,
                      .sink = std::move(sink),
                      .training = TrainingParameters(parts, residency),
                      .evaluation = {kEvaluationVersionsKept, residency, PinnedFor(parts.device)},
                      .device = parts.device,
                      .timeline = parts.timeline,
                      .protocol = parts.protocol,
                      .on_queued = [this] { state_.ReadAhead(); },
                      .on_forgotten = [this] { state_.feedback.Forget(); }}),
      state_(parts, thread_count, *this) {
  PANDO_CHECK(thread_count >= 1);
  PANDO_CHECK(parts.device.kind == DeviceKind::kCpu || thread_count == 1);
  for (uint32_t i = 0; i < thread_count; ++i)
    threads_.emplace_back([this, i] { ComputeThread(state_, i).Run(); });
}

Trainer::~Trainer() { Stop(); }

void Trainer::Stop() {
  queue().Stop();
  evaluation_parameters().Wake();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

uint64_t Trainer::micro_batch_us() const {
  const auto thread_count = static_cast<int64_t>(threads_.size());
  return static_cast<uint64_t>((state_.time.average_ns() / thread_count + 999) / 1000);
}

uint64_t Trainer::exposed_sync_us() const { return parameters().waited_us() / threads_.size(); }

uint64_t Trainer::data_stall_us() const {
  return static_cast<uint64_t>(state_.batches.stalled().count() / 1000);
}

uint64_t Trainer::samples_wait_ms() const {
  return static_cast<uint64_t>(state_.batches.waiting().count() / 1'000'000);
}

// ---- what the threads share ---------------------------------------------------------------------

TrainerState::TrainerState(const TrainerParts& parts_in, uint32_t thread_count,
                           QueuedComputer& computer_in)
    : parts(parts_in),
      computer(computer_in),
      read_ahead_max(size_t{ReadAheadPerThread(parts.device)} * thread_count),
      batches(parts.data, parts.plan.steps, parts.plan.job.seed,
              static_cast<uint32_t>(read_ahead_max), parts.plan.job.reader_threads,
              FinishFor(parts.device)),
      gradients(parts.plan.layout.float_count(), GradientsFor(parts)),
      host_gradients(parts.plan.layout.float_count(), HostGradientsFor(parts)),
      encoded_gradients(parts.plan.pushes.float_count(), parts.device.kind == DeviceKind::kCpu
                                                             ? parts.buffers
                                                             : HostGradientsFor(parts)),
      feedback(parts.plan) {}

void TrainerState::ReadAhead() {
  for (const ChunkTask& task : computer.queue().ExpectedChunks(read_ahead_max)) {
    const auto [first, last] = task.evaluation->SamplesOfChunk(task.chunk);
    batches.ExpectTest(first, last);
  }
  for (const auto& [step, m] : computer.queue().Expected(0, read_ahead_max, /*steps_max=*/1)) {
    if (step.value() < parts.plan.steps.step_count()) batches.Expect(step, m);
  }
}

std::shared_ptr<const Batch> TrainerState::NextBatch() {
  const std::vector<TaskQueue::StepPart> next = computer.queue().Expected(0, 1);
  return next.empty() ? nullptr : batches.Peek(next.front().first, next.front().second);
}

// ---- a computing thread -------------------------------------------------------------------------

ComputeThread::ComputeThread(TrainerState& trainer, uint32_t index)
    : trainer_(trainer),
      queue_(trainer.computer.queue()),
      sink_(trainer.computer.sink()),
      timeline_(trainer.parts.timeline, "compute " + std::to_string(index)),
      network_(trainer.parts.model, NetworkSamples(trainer.parts.plan),
               UsedOnThisThread(trainer.parts.device)),
      pass_(network_, trainer.parts.device,
            {trainer.parts.plan, trainer.batches, trainer.computer.parameters(), trainer.gradients,
             trainer.host_gradients, trainer.encoded_gradients, trainer.feedback, timeline_,
             trainer.parts.sums_stay, [&trainer] { return trainer.NextBatch(); }}),
      evaluation_pass_(trainer.parts.plan, network_, trainer.parts.device) {
  timeline_.NameLayers(network_);
}

void ComputeThread::Run() {
  while (std::optional<ComputeTask> task = queue_.Take()) {
    std::visit([this](auto& t) { RunTask(t); }, *task);
    timeline_.Did(What::kFinish);
  }
  const Device device = trainer_.parts.device;  // used by one thread at a time: by this one
  if (device.kind == DeviceKind::kCuda) trainer_.gpu_free_bytes = ReadRoom(device).free_bytes;
}

// ---- micro-batches ------------------------------------------------------------------------------

void ComputeThread::RunTask(MicroBatchTask& task) {
  ComputeCall& call = *task.call;
  timeline_.Begin(call.step, task.micro_batch.value());
  timeline_.Did(What::kAwaitWork);
  const bool is_hashed = trainer_.parts.plan.IsVerified(call.step, task.micro_batch);
  uint64_t hash = 0;
  CallControl control(call, is_hashed, queue_, sink_);
  Status status = pass_.Run({.step = call.step,
                             .micro_batch = task.micro_batch,
                             .sum = call.sum ? &*call.sum : nullptr,
                             .hash = is_hashed ? &hash : nullptr,
                             .ticket = call.ticket,
                             .sink = sink_,
                             .control = control});
  if (hash != 0) sink_(call.lasting_ticket, GradientHashed{call.step, task.micro_batch, hash});
  Finish(task, std::move(status));
}

void ComputeThread::Finish(MicroBatchTask& task, Status status) {
  ComputeCall& call = *task.call;
  if (call.is_abandoned) return;
  if (status.code() == StatusCode::kInterrupted) return GiveBack(task);
  if (!status.ok()) {
    if (!queue_.AbandonFailed(call)) return;
    return sink_(call.sum ? call.ticket : call.lasting_ticket, ComputeFailed{std::move(status)});
  }
  trainer_.time.Add(pass_.computing_time());
  trainer_.ReadAhead();
  if (--call.unfinished_count == 0 && call.sum) sink_(call.ticket, StepComputed{call.step});
}

// If the version is superseded, the sum is not needed any more. A verification reports a hash of 0.
void ComputeThread::GiveBack(const MicroBatchTask& task) {
  const ComputeCall& call = *task.call;
  if (!trainer_.computer.parameters().IsSuperseded(call.version)) return queue_.GiveBack(task);
  if (!call.sum) sink_(call.lasting_ticket, GradientHashed{call.step, task.micro_batch, 0});
}

// ---- evaluation ---------------------------------------------------------------------------------

void ComputeThread::RunTask(ChunkTask& task) {
  SliceEvaluation& evaluation = *task.evaluation;
  if (evaluation.is_abandoned) return;
  timeline_.Begin(StepUpdating(evaluation.request.version), static_cast<uint32_t>(task.chunk));
  timeline_.Did(What::kAwaitWork);
  const auto [first, last] = evaluation.SamplesOfChunk(task.chunk);
  auto batch = trainer_.batches.TakeTest(first, last);
  timeline_.Did(What::kAwaitSamples);
  trainer_.ReadAhead();
  if (!batch.ok()) return sink_(evaluation.ticket, ComputeFailed{batch.status()});
  Result<ChunkScore> score = Score(evaluation, **batch);
  timeline_.Did(What::kEvaluate);
  if (score.status().code() == StatusCode::kInterrupted) return;
  if (!score.ok()) return sink_(evaluation.ticket, ComputeFailed{score.status()});
  evaluation.scores[task.chunk] = *std::move(score);
  if (--evaluation.unfinished_count > 0) return;
  sink_(evaluation.ticket, CombineScores(evaluation.request, evaluation.scores));
}

Result<ChunkScore> ComputeThread::Score(const SliceEvaluation& evaluation, const Batch& batch) {
  if (evaluation.parameters != nullptr)
    return evaluation_pass_.Run(batch, {evaluation.number, evaluation.parameters->data(), {}});
  const Version version = evaluation.request.version;
  const auto interrupted = [&] { return queue_.is_stopping() || evaluation.is_abandoned; };
  PANDO_ASSIGN_OR_RETURN(
      auto parameters, trainer_.computer.evaluation_parameters().HoldVersion(version, interrupted));
  const auto fetch = [&](const std::vector<ShardId>& shards) {
    sink_(evaluation.ticket, ParametersWanted{ParameterUse::kEvaluation, version, shards});
  };
  const auto await = [&](const LayerReads& reads) {
    return parameters.Advance(reads.now, reads.next, interrupted, fetch);
  };
  return evaluation_pass_.Run(batch, {parameters.serial(), parameters.values(), await});
}

}  // namespace pando
