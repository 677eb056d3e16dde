#include "worker/trainer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/float_env.h"
#include "common/time_slice.h"
#include "kernels/batch_block.h"

namespace pando {
namespace {

constexpr uint64_t kTrainingVersionsKept = 2;    // P4: nobody needs more
constexpr uint32_t kReadAheadPerThread = 2;      // micro-batches: the bound of what waits in memory
constexpr uint64_t kEvaluationVersionsKept = 1;  // P31: one pin at a time
constexpr int64_t kTimeMemory = 8;               // micro-batches that the average time looks back
// A process that was stopped, or lost its core for a while, is not slow: one micro-batch does not
// count as more than so many of the average.
constexpr int64_t kTimeOutlier = 4;

SampleCounts NetworkSamples(const JobPlan& plan) {
  return {.training = static_cast<uint32_t>(plan.steps.micro_batch_samples_max()),
          .evaluation = kEvaluationChunkSamples};
}

BufferPool::Make PinnedFor(Device device) {
  return [device](size_t count) { return PinnedFloats(device, count); };
}

BufferSource GradientsOf(const Trainer::Parts& parts) {
  if (parts.device.kind == DeviceKind::kCpu) return parts.buffers;
  return {.make = [device = parts.device](size_t count) { return DeviceFloats(device, count); }};
}

BatchSource::Finish FinishFor(Device device) {
  if (device.kind == DeviceKind::kCpu) return {};
  return [device](Batch* batch) { PinBatch(device, batch); };
}

// [first, last) of a chunk.
std::pair<uint64_t, uint64_t> SamplesOf(const Evaluate& request, size_t chunk) {
  const uint64_t first = request.first_sample + chunk * kEvaluationChunkSamples;
  return {first, std::min(first + kEvaluationChunkSamples, request.last_sample)};
}

}  // namespace

Trainer::Trainer(const Parts& parts, uint32_t thread_count, Sink sink, ParameterResidency residency)
    : parts_(parts),
      sink_(std::move(sink)),
      samples_(NetworkSamples(parts.plan)),
      batches_(parts.data, parts.plan.steps, parts.plan.job.seed,
               /*prefetch_max=*/kReadAheadPerThread * thread_count, parts.plan.job.reader_threads,
               FinishFor(parts.device)),
      parameters_(parts.plan.shards,
                  {kTrainingVersionsKept, residency, PinnedFor(parts.device), &parts.plan.pulls},
                  held_bytes_),
      evaluation_parameters_(parts.plan.shards,
                             {kEvaluationVersionsKept, residency, PinnedFor(parts.device)},
                             held_bytes_),
      gradients_(parts.plan.layout.float_count(), GradientsOf(parts)),
      host_gradients_(parts.plan.layout.float_count(), PinnedFor(parts.device)),
      encoded_gradients_(parts.plan.pushes.float_count(), parts.buffers),
      feedback_(parts.plan) {
  PANDO_CHECK(thread_count >= 1);
  PANDO_CHECK(parts.device.kind == DeviceKind::kCpu || thread_count == 1);
  if (parts.timeline != nullptr) pull_ = parts.timeline->Name({"pull", "pull", "shard"});
  for (uint32_t i = 0; i < thread_count; ++i) threads_.emplace_back([this, i] { ThreadMain(i); });
}

Trainer::~Trainer() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  has_task_.notify_all();
  parameters_.Wake();
  evaluation_parameters_.Wake();
  for (std::thread& thread : threads_) thread.join();
}

// ---- the protocol thread ------------------------------------------------------------------------

ComputeTicket Trainer::NextTicket() {
  return last_ticket_ = ComputeTicket(last_ticket_.value() + 1);
}

void Trainer::Compute(Step step, std::vector<MicroBatch> micro_batches) {
  PANDO_CHECK(!micro_batches.empty());
  // The parameters of older steps than the one before are gone, and so is the use of their events.
  std::erase_if(current_calls_, [&](const auto& call) {
    return call.second.value() + kTrainingVersionsKept <= step.value();
  });
  const ComputeTicket ticket = NextTicket();
  current_calls_[ticket] = step;
  auto call = std::make_shared<ComputeCall>(ticket, lasting_ticket_, step);
  const JobPlan& plan = parts_.plan;
  call->sum.emplace(plan.steps.Tree(step), plan.NodesToPush(step, micro_batches), plan.shards,
                    parts_.device);
  Enqueue(call, micro_batches);
}

void Trainer::Verify(Step step, MicroBatch micro_batch) {
  Enqueue(std::make_shared<ComputeCall>(NextTicket(), lasting_ticket_, step), {micro_batch});
}

void Trainer::Enqueue(const std::shared_ptr<ComputeCall>& call,
                      const std::vector<MicroBatch>& micro_batches) {
  call->unfinished_count = micro_batches.size();
  {
    std::lock_guard lock(mutex_);
    std::erase_if(running_, [](const auto& other) { return other.expired(); });
    running_.push_back(call);
    for (MicroBatch m : micro_batches) {
      micro_batches_.emplace(MicroBatchKey(call->step, call->ticket, m), MicroBatchTask{call, m});
    }
    if (call->sum) {
      guessed_step_ = NextStep(call->step);
      guessed_share_ = micro_batches;
    }
  }
  has_task_.notify_all();
  ReadAhead();
}

// Hints what the threads will take next: what is queued, then the same share of the next step,
// which is handed out only when this one is done.
void Trainer::ReadAhead() {
  const size_t wanted = kReadAheadPerThread * threads_.size();
  std::vector<std::pair<Step, MicroBatch>> hints;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, task] : micro_batches_) {
      if (hints.size() == wanted) break;
      hints.emplace_back(task.call->step, task.micro_batch);
    }
    const bool has_next = guessed_step_.value() < parts_.plan.steps.step_count();
    for (MicroBatch m : has_next ? guessed_share_ : std::vector<MicroBatch>()) {
      if (hints.size() == wanted) break;
      hints.emplace_back(guessed_step_, m);
    }
  }
  for (const auto& [step, m] : hints) batches_.Expect(step, m);
}

std::optional<TrainStep::MicroBatchOfStep> Trainer::NextMicroBatch() {
  std::lock_guard lock(mutex_);
  if (!micro_batches_.empty()) {
    const MicroBatchTask& task = micro_batches_.begin()->second;
    return {{task.call->step, task.micro_batch}};
  }
  if (guessed_share_.empty()) return std::nullopt;
  return {{guessed_step_, guessed_share_.front()}};
}

void Trainer::Abandon(Step from) {
  std::erase_if(current_calls_, [&](const auto& call) { return call.second >= from; });
  DropCalls([&](const ComputeCall& call) { return call.sum && call.step >= from; });
}

void Trainer::Forget() {
  current_calls_.clear();
  unstarted_evaluations_.clear();
  lasting_ticket_ = NextTicket();
  {
    std::lock_guard lock(mutex_);
    chunks_.clear();
    chunk_count_ = 0;
  }
  for (const std::weak_ptr<Evaluation>& entry : std::exchange(evaluations_, {})) {
    if (auto evaluation = entry.lock()) evaluation->abandoned = true;
  }
  DropCalls([](const ComputeCall&) { return true; });
  parameters_.Clear();
  evaluation_parameters_.Clear();
  feedback_.Forget();
}

template <class Wanted>
void Trainer::DropCalls(const Wanted& is_dropped) {
  {
    std::lock_guard lock(mutex_);
    std::erase_if(micro_batches_,
                  [&](const auto& entry) { return is_dropped(*entry.second.call); });
    for (const std::weak_ptr<ComputeCall>& running : running_) {
      if (auto call = running.lock(); call != nullptr && is_dropped(*call)) call->abandoned = true;
    }
  }
  parameters_.Wake();
}

bool Trainer::IsCurrent(ComputeTicket ticket, const ComputeEvent& event) {
  if (ticket == lasting_ticket_) return true;
  if (std::holds_alternative<StepComputed>(event)) return current_calls_.erase(ticket) == 1;
  return current_calls_.contains(ticket);
}

uint64_t Trainer::micro_batch_us() const {
  const auto thread_count = static_cast<int64_t>(threads_.size());
  return static_cast<uint64_t>((micro_batch_ns_ / thread_count + 999) / 1000);
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

void Trainer::ParametersArrived(ShardId shard, Version version, const Blob& payload) {
  const TimelineSpan span = PullSpan(shard, version);
  parameters_.Put(shard, version, payload);
}

void Trainer::ParametersGone(ParameterUse use, Version version) {
  if (use == ParameterUse::kTraining) return parameters_.Supersede(version);
  for (const std::weak_ptr<Evaluation>& entry : evaluations_) {
    auto evaluation = entry.lock();
    if (evaluation != nullptr && evaluation->request.version <= version)
      evaluation->abandoned = true;
  }
  evaluation_parameters_.Wake();
}

void Trainer::EvaluateSlice(const Evaluate& request) {
  std::erase_if(unstarted_evaluations_,
                [&](const Evaluate& other) { return other.version != request.version; });
  unstarted_evaluations_.push_back(request);
  StartWholeEvaluations();
}

void Trainer::EvaluationParametersArrived(ShardId shard, Version version, const Blob& payload) {
  {
    const TimelineSpan span = PullSpan(shard, version);
    evaluation_parameters_.Put(shard, version, payload);
  }
  StartWholeEvaluations();
}

void Trainer::StartWholeEvaluations() {
  if (unstarted_evaluations_.empty()) return;
  if (!evaluation_parameters_.is_layered() &&
      !evaluation_parameters_.IsWhole(unstarted_evaluations_.front().version)) {
    return;
  }
  for (const Evaluate& request : std::exchange(unstarted_evaluations_, {}))
    StartEvaluation(request);
}

void Trainer::StartEvaluation(const Evaluate& request) {
  const uint64_t sample_count = request.last_sample - request.first_sample;
  const size_t chunk_count = (sample_count + kEvaluationChunkSamples - 1) / kEvaluationChunkSamples;
  auto evaluation = std::make_shared<Evaluation>();
  evaluation->number = ++evaluation_count_;
  evaluation->ticket = lasting_ticket_;
  evaluation->request = request;
  if (!evaluation_parameters_.is_layered()) {
    evaluation->parameters = *evaluation_parameters_.Open(request.version);
  }
  evaluation->scores.resize(chunk_count);
  evaluation->unfinished_count = chunk_count;
  if (chunk_count == 0) return FinishEvaluation(*evaluation);
  std::erase_if(evaluations_, [](const auto& other) { return other.expired(); });
  evaluations_.push_back(evaluation);
  {
    std::lock_guard lock(mutex_);
    for (size_t chunk = 0; chunk < chunk_count; ++chunk) chunks_.push_back({evaluation, chunk});
    chunk_count_ = chunks_.size();
  }
  has_task_.notify_all();
  parameters_.Wake();
  ExpectChunks();
}

// Hints the chunks that the threads will take next.
void Trainer::ExpectChunks() {
  std::vector<std::pair<uint64_t, uint64_t>> hints;
  {
    std::lock_guard lock(mutex_);
    const size_t count = std::min(chunks_.size(), kReadAheadPerThread * threads_.size());
    for (size_t i = 0; i < count; ++i)
      hints.push_back(SamplesOf(chunks_[i].evaluation->request, chunks_[i].chunk));
  }
  for (const auto& [first, last] : hints) batches_.ExpectTest(first, last);
}

// ---- the computing threads ----------------------------------------------------------------------

void Trainer::ThreadMain(uint32_t index) {
  SetFloatEnvironment();
  if (parts_.device.kind == DeviceKind::kCpu) TakeBatchTimeSlices();
  UseOnThisThread(parts_.device);
  StepTimeline timeline(parts_.timeline, "compute " + std::to_string(index));
  TrainStep train_step(parts_.model, samples_, parts_.device,
                       {parts_.plan, batches_, parameters_, gradients_, host_gradients_,
                        encoded_gradients_, feedback_, timeline});
  while (std::optional<Task> task = NextTask()) {
    std::visit([&](auto& t) { RunTask(train_step, timeline, t); }, *task);
    timeline.Did(StepTimeline::What::kFinish);
  }
}

std::optional<Trainer::Task> Trainer::NextTask() {
  std::unique_lock lock(mutex_);
  has_task_.wait(lock, [&] { return stopping_ || !chunks_.empty() || !micro_batches_.empty(); });
  if (stopping_) return std::nullopt;
  if (!chunks_.empty()) {  // first: servers hold a version back for it (P31)
    Task task = std::move(chunks_.front());
    chunks_.pop_front();
    chunk_count_ = chunks_.size();
    return task;
  }
  return std::move(micro_batches_.extract(micro_batches_.begin()).mapped());
}

void Trainer::RunTask(TrainStep& train_step, StepTimeline& timeline, MicroBatchTask& task) {
  ComputeCall& call = *task.call;
  timeline.Begin(call.step, task.micro_batch.value());
  timeline.Did(StepTimeline::What::kAwaitWork);
  const bool is_hashed = parts_.plan.IsVerified(call.step, task.micro_batch);
  uint64_t hash = 0;
  Status status = train_step.Run(
      {.step = call.step,
       .micro_batch = task.micro_batch,
       .sum = call.sum ? &*call.sum : nullptr,
       .hash = is_hashed ? &hash : nullptr,
       .emit =
           [&](TreeNode node, ShardId shard, Blob sum) {
             sink_(call.ticket, GradientReady{call.step, node, shard, std::move(sum)});
           },
       .replaced =
           [&](const std::vector<BadPicture>& pictures) {
             sink_(call.hash_ticket, BadPicturesFound{pictures});
           },
       // A wait also ends for evaluation: the parameters may wait for a pin (P31).
       .interrupted = [&] { return stopping_ || call.abandoned || chunk_count_ > 0; },
       .fetch =
           [&](const std::vector<ShardId>& shards) {
             sink_(call.hash_ticket,
                   ParametersWanted{ParameterUse::kTraining, VersionReadBy(call.step), shards});
           },
       // What has left may count: if it is hashed, it is hashed to its end (P41).
       .is_abandoned =
           [&](bool is_partly_out) {
             return stopping_ || (call.abandoned && !(is_partly_out && is_hashed));
           },
       .next = [this] { return NextMicroBatch(); }});
  if (hash != 0) sink_(call.hash_ticket, GradientHashed{call.step, task.micro_batch, hash});
  if (call.abandoned) return;
  if (status.code() == StatusCode::kInterrupted) return GiveBack(task);
  if (!status.ok()) return AbandonCall(call, std::move(status));
  TakeTime(train_step.computing_time());
  ReadAhead();
  if (--call.unfinished_count == 0 && call.sum) sink_(call.ticket, StepComputed{call.step});
}

// Two threads at once may lose one of the two times, which an average can spare.
void Trainer::TakeTime(std::chrono::nanoseconds time) {
  const int64_t average = micro_batch_ns_;
  const int64_t sample = std::max<int64_t>(1, time.count());
  micro_batch_ns_ =
      average == 0 ? sample
                   : average + (std::min(sample, kTimeOutlier * average) - average) / kTimeMemory;
}

void Trainer::GiveBack(const MicroBatchTask& task) {
  const ComputeCall& call = *task.call;
  if (parameters_.IsSuperseded(VersionReadBy(call.step))) {  // nobody needs the sum
    if (!call.sum) sink_(call.hash_ticket, GradientHashed{call.step, task.micro_batch, 0});
    return;
  }
  std::lock_guard lock(mutex_);
  if (call.abandoned) return;  // set under the same lock
  micro_batches_.emplace(MicroBatchKey(call.step, call.ticket, task.micro_batch), task);
}

void Trainer::AbandonCall(ComputeCall& call, Status failure) {
  {
    std::lock_guard lock(mutex_);
    if (call.abandoned.exchange(true)) return;
    std::erase_if(micro_batches_,
                  [&](const auto& entry) { return entry.second.call.get() == &call; });
  }
  parameters_.Wake();
  sink_(call.sum ? call.ticket : call.hash_ticket, ComputeFailed{std::move(failure)});
}

void Trainer::RunTask(TrainStep& train_step, StepTimeline& timeline, ChunkTask& task) {
  Evaluation& evaluation = *task.evaluation;
  if (evaluation.abandoned) return;
  const Evaluate& request = evaluation.request;
  timeline.Begin(StepReading(request.version), static_cast<uint32_t>(task.chunk));
  timeline.Did(StepTimeline::What::kAwaitWork);
  const auto [first, last] = SamplesOf(request, task.chunk);
  auto batch = batches_.TakeTest(first, last);
  timeline.Did(StepTimeline::What::kAwaitSamples);
  ExpectChunks();
  if (!batch.ok()) return sink_(evaluation.ticket, ComputeFailed{batch.status()});
  if (!(*batch)->replaced.empty()) sink_(evaluation.ticket, BadPicturesFound{(*batch)->replaced});
  Result<ChunkScore> score = Score(train_step, evaluation, **batch);
  timeline.Did(StepTimeline::What::kEvaluate);
  if (score.status().code() == StatusCode::kInterrupted) return;
  if (!score.ok()) return sink_(evaluation.ticket, ComputeFailed{score.status()});
  evaluation.scores[task.chunk] = *std::move(score);
  if (--evaluation.unfinished_count == 0) FinishEvaluation(evaluation);
}

Result<ChunkScore> Trainer::Score(TrainStep& train_step, const Evaluation& evaluation,
                                  const Batch& batch) {
  if (evaluation.parameters != nullptr)
    return train_step.Evaluate(batch, {evaluation.number, evaluation.parameters->data(), {}});
  const Version version = evaluation.request.version;
  const auto interrupted = [&] { return stopping_ || evaluation.abandoned; };
  auto parameters = evaluation_parameters_.HoldVersion(version, interrupted);
  if (!parameters.ok()) return parameters.status();
  const auto fetch = [&](const std::vector<ShardId>& shards) {
    sink_(evaluation.ticket, ParametersWanted{ParameterUse::kEvaluation, version, shards});
  };
  const auto await = [&](const LayerReads& reads) {
    return parameters->Advance(reads.now, reads.next, interrupted, fetch);
  };
  return train_step.Evaluate(batch, {parameters->serial(), parameters->values(), await});
}

void Trainer::FinishEvaluation(const Evaluation& evaluation) {
  sink_(evaluation.ticket, ResultOf(evaluation.request, evaluation.scores));
}

}  // namespace pando
