#include "train/trainer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/system.h"
#include "kernels/batch_block.h"
#include "train/gpu/device_codec.h"

namespace pando {

Trainer::Trainer(const Parts& parts, uint32_t thread_count, Sink sink, ParameterResidency residency)
    : state_(parts, thread_count, std::move(sink), residency),
      evaluations_(state_.evaluation_parameters, tickets_, state_.queue, state_.sink) {
  PANDO_CHECK(thread_count >= 1);
  PANDO_CHECK(parts.device.kind == DeviceKind::kCpu || thread_count == 1);
  if (parts.timeline != nullptr) pull_ = parts.timeline->Name({"pull", "pull", "shard"});
  for (uint32_t i = 0; i < thread_count; ++i)
    threads_.emplace_back([this, i] { ComputeThread(state_, i).Run(); });
}

Trainer::~Trainer() { Stop(); }

void Trainer::Stop() {
  state_.queue.Stop();
  state_.evaluation_parameters.Wake();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void Trainer::Compute(Step step, std::vector<MicroBatch> micro_batches) {
  PANDO_CHECK(!micro_batches.empty());
  const JobPlan& plan = state_.parts.plan;
  auto call = std::make_shared<ComputeCall>(tickets_.ForCall(step), tickets_.lasting(), step);
  call->sum.emplace(plan.steps.Tree(step), plan.NodesToPush(step, micro_batches), plan.shards,
                    state_.parts.device);
  state_.queue.Push(call, micro_batches);
}

void Trainer::Verify(Step step, MicroBatch micro_batch) {
  state_.queue.Push(std::make_shared<ComputeCall>(tickets_.Next(), tickets_.lasting(), step),
                    {micro_batch});
}

void Trainer::Abandon(Step from) {
  tickets_.Abandon(from);
  state_.queue.Abandon([&](const ComputeCall& call) { return call.sum && call.step >= from; });
}

void Trainer::Forget() {
  tickets_.Forget();
  evaluations_.Forget();
  state_.queue.Abandon([](const ComputeCall&) { return true; });
  state_.parameters.Clear();
  state_.feedback.Forget();
}

void Trainer::ParametersArrived(ShardId shard, Version version, const Blob& payload) {
  const TimelineTrack::Span span = PullSpan(shard, version);
  state_.parameters.Put(shard, version, payload);
}

void Trainer::ParametersGone(ParameterUse use, Version version) {
  if (use == ParameterUse::kTraining) return state_.parameters.Supersede(version);
  evaluations_.ParametersGone(version);
}

void Trainer::EvaluateSlice(const Evaluate& request) { evaluations_.EvaluateSlice(request); }

void Trainer::EvaluationParametersArrived(ShardId shard, Version version, const Blob& payload) {
  const TimelineTrack::Span span = PullSpan(shard, version);
  evaluations_.ParametersArrived(shard, version, payload);
}

bool Trainer::IsCurrent(ComputeTicket ticket, const ComputeEvent& event) {
  return tickets_.IsCurrent(ticket, event);
}

uint64_t Trainer::micro_batch_us() const {
  const auto thread_count = static_cast<int64_t>(threads_.size());
  return static_cast<uint64_t>((state_.time.average_ns() / thread_count + 999) / 1000);
}

uint64_t Trainer::exposed_sync_us() const {
  return state_.parameters.waited_us() / threads_.size();
}

uint64_t Trainer::data_stall_us() const {
  return static_cast<uint64_t>(state_.batches.stalled().count() / 1000);
}

uint64_t Trainer::samples_wait_ms() const {
  return static_cast<uint64_t>(state_.batches.waiting().count() / 1'000'000);
}

TimelineTrack::Span Trainer::PullSpan(ShardId shard, Version version) const {
  const Step step = StepReading(version);
  const bool is_wanted = state_.parts.protocol != nullptr && state_.parts.timeline->Wants(step);
  return {is_wanted ? state_.parts.protocol : nullptr, pull_, step, shard.value()};
}

// ---- evaluations --------------------------------------------------------------------------------

void Evaluations::EvaluateSlice(const Evaluate& request) {
  std::erase_if(unstarted_,
                [&](const Evaluate& other) { return other.version != request.version; });
  unstarted_.push_back(request);
  StartWhole();
}

void Evaluations::ParametersArrived(ShardId shard, Version version, const Blob& payload) {
  parameters_.Put(shard, version, payload);
  StartWhole();
}

void Evaluations::ParametersGone(Version version) {
  for (const std::weak_ptr<SliceEvaluation>& entry : running_) {
    auto evaluation = entry.lock();
    if (evaluation != nullptr && evaluation->request.version <= version)
      evaluation->is_abandoned = true;
  }
  parameters_.Wake();
}

void Evaluations::Forget() {
  unstarted_.clear();
  queue_.DropChunks();
  for (const std::weak_ptr<SliceEvaluation>& entry : std::exchange(running_, {})) {
    if (auto evaluation = entry.lock()) evaluation->is_abandoned = true;
  }
  parameters_.Clear();
}

void Evaluations::StartWhole() {
  if (unstarted_.empty()) return;
  if (!parameters_.is_layered() && !parameters_.IsWhole(unstarted_.front().version)) return;
  for (const Evaluate& request : std::exchange(unstarted_, {})) Start(request);
}

void Evaluations::Start(const Evaluate& request) {
  const uint64_t sample_count = request.last_sample - request.first_sample;
  const size_t chunk_count = (sample_count + kEvaluationChunkSamples - 1) / kEvaluationChunkSamples;
  if (chunk_count == 0) return sink_(tickets_.lasting(), CombineScores(request, {}));
  auto evaluation = std::make_shared<SliceEvaluation>();
  evaluation->number = ++started_count_;
  evaluation->ticket = tickets_.lasting();
  evaluation->request = request;
  if (!parameters_.is_layered()) evaluation->parameters = *parameters_.Open(request.version);
  evaluation->scores.resize(chunk_count);
  evaluation->unfinished_count = chunk_count;
  std::erase_if(running_, [](const auto& other) { return other.expired(); });
  running_.push_back(evaluation);
  queue_.Push(evaluation);
}

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
  ParameterStore::Options options{kTrainingVersionsKept, residency, PinnedFor(parts.device),
                                  &parts.plan.pulls};
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
  // Abandoned work stops. But shards of it that have left may be part of the update, so a verified
  // micro-batch is computed to its end for its hash (P41).
  bool IsAbandoned(bool is_partly_out) const override {
    return queue_.is_stopping() || (call_.is_abandoned && !(is_partly_out && is_hashed_));
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

TrainerState::TrainerState(const TrainerParts& parts_in, uint32_t thread_count, ComputeSink sink_in,
                           ParameterResidency residency)
    : parts(parts_in),
      sink(std::move(sink_in)),
      batches(parts.data, parts.plan.steps, parts.plan.job.seed,
              /*prefetch_max=*/ReadAheadPerThread(parts.device) * thread_count,
              parts.plan.job.reader_threads, FinishFor(parts.device)),
      parameters(parts.plan.shards, TrainingParameters(parts, residency), held_bytes),
      evaluation_parameters(parts.plan.shards,
                            {kEvaluationVersionsKept, residency, PinnedFor(parts.device)},
                            held_bytes),
      gradients(parts.plan.layout.float_count(), GradientsFor(parts)),
      host_gradients(parts.plan.layout.float_count(), HostGradientsFor(parts)),
      encoded_gradients(parts.plan.pushes.float_count(), parts.device.kind == DeviceKind::kCpu
                                                             ? parts.buffers
                                                             : HostGradientsFor(parts)),
      feedback(parts.plan),
      queue(parts.plan.steps, ReadAheadPerThread(parts.device) * thread_count, batches,
            parameters) {}

ComputeThread::ComputeThread(TrainerState& trainer, uint32_t index)
    : trainer_(trainer),
      timeline_(trainer.parts.timeline, "compute " + std::to_string(index)),
      network_(trainer.parts.model, NetworkSamples(trainer.parts.plan),
               UsedOnThisThread(trainer.parts.device)),
      pass_(network_, trainer.parts.device,
            {trainer.parts.plan, trainer.batches, trainer.parameters, trainer.gradients,
             trainer.host_gradients, trainer.encoded_gradients, trainer.feedback, timeline_,
             trainer.parts.sums_stay, [&queue = trainer.queue] { return queue.NextBatch(); }}),
      evaluation_pass_(trainer.parts.plan, network_, trainer.parts.device) {
  timeline_.NameLayers(network_);
}

void ComputeThread::Run() {
  while (std::optional<ComputeTask> task = trainer_.queue.Take()) {
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
  CallControl control(call, is_hashed, trainer_.queue, trainer_.sink);
  Status status = pass_.Run({.step = call.step,
                             .micro_batch = task.micro_batch,
                             .sum = call.sum ? &*call.sum : nullptr,
                             .hash = is_hashed ? &hash : nullptr,
                             .ticket = call.ticket,
                             .sink = trainer_.sink,
                             .control = control});
  if (hash != 0)
    trainer_.sink(call.lasting_ticket, GradientHashed{call.step, task.micro_batch, hash});
  Finish(task, std::move(status));
}

void ComputeThread::Finish(MicroBatchTask& task, Status status) {
  ComputeCall& call = *task.call;
  if (call.is_abandoned) return;
  if (status.code() == StatusCode::kInterrupted) return GiveBack(task);
  if (!status.ok()) {
    if (!trainer_.queue.AbandonFailed(call)) return;
    return trainer_.sink(call.sum ? call.ticket : call.lasting_ticket,
                         ComputeFailed{std::move(status)});
  }
  trainer_.time.Add(pass_.computing_time());
  trainer_.queue.ReadAhead();
  if (--call.unfinished_count == 0 && call.sum) trainer_.sink(call.ticket, StepComputed{call.step});
}

// If the version is superseded, the sum is not needed any more. A verification reports a hash of 0.
void ComputeThread::GiveBack(const MicroBatchTask& task) {
  const ComputeCall& call = *task.call;
  if (!trainer_.parameters.IsSuperseded(VersionReadBy(call.step)))
    return trainer_.queue.GiveBack(task);
  if (!call.sum) trainer_.sink(call.lasting_ticket, GradientHashed{call.step, task.micro_batch, 0});
}

// ---- evaluation ---------------------------------------------------------------------------------

void ComputeThread::RunTask(ChunkTask& task) {
  SliceEvaluation& evaluation = *task.evaluation;
  if (evaluation.is_abandoned) return;
  timeline_.Begin(StepReading(evaluation.request.version), static_cast<uint32_t>(task.chunk));
  timeline_.Did(What::kAwaitWork);
  const auto [first, last] = evaluation.SamplesOfChunk(task.chunk);
  auto batch = trainer_.batches.TakeTest(first, last);
  timeline_.Did(What::kAwaitSamples);
  trainer_.queue.ReadChunksAhead();
  if (!batch.ok()) return trainer_.sink(evaluation.ticket, ComputeFailed{batch.status()});
  Result<ChunkScore> score = Score(evaluation, **batch);
  timeline_.Did(What::kEvaluate);
  if (score.status().code() == StatusCode::kInterrupted) return;
  if (!score.ok()) return trainer_.sink(evaluation.ticket, ComputeFailed{score.status()});
  evaluation.scores[task.chunk] = *std::move(score);
  if (--evaluation.unfinished_count > 0) return;
  trainer_.sink(evaluation.ticket, CombineScores(evaluation.request, evaluation.scores));
}

Result<ChunkScore> ComputeThread::Score(const SliceEvaluation& evaluation, const Batch& batch) {
  if (evaluation.parameters != nullptr)
    return evaluation_pass_.Run(batch, {evaluation.number, evaluation.parameters->data(), {}});
  const Version version = evaluation.request.version;
  const auto interrupted = [&] { return trainer_.queue.is_stopping() || evaluation.is_abandoned; };
  PANDO_ASSIGN_OR_RETURN(auto parameters,
                         trainer_.evaluation_parameters.HoldVersion(version, interrupted));
  const auto fetch = [&](const std::vector<ShardId>& shards) {
    trainer_.sink(evaluation.ticket, ParametersWanted{ParameterUse::kEvaluation, version, shards});
  };
  const auto await = [&](const LayerReads& reads) {
    return parameters.Advance(reads.now, reads.next, interrupted, fetch);
  };
  return evaluation_pass_.Run(batch, {parameters.serial(), parameters.values(), await});
}

}  // namespace pando
