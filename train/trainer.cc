#include "train/trainer.h"

#include <utility>

#include "common/check.h"

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

Trainer::~Trainer() {
  state_.queue.Stop();
  state_.evaluation_parameters.Wake();
  for (std::thread& thread : threads_) thread.join();
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
  const TimelineSpan span = PullSpan(shard, version);
  state_.parameters.Put(shard, version, payload);
}

void Trainer::ParametersGone(ParameterUse use, Version version) {
  if (use == ParameterUse::kTraining) return state_.parameters.Supersede(version);
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
  return static_cast<uint64_t>((state_.time.average_ns() / thread_count + 999) / 1000);
}

uint64_t Trainer::exposed_sync_us() const {
  return state_.parameters.waited_us() / threads_.size();
}

uint64_t Trainer::data_stall_us() const {
  return static_cast<uint64_t>(state_.batches.stalled().count() / 1000);
}

TimelineSpan Trainer::PullSpan(ShardId shard, Version version) const {
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
      evaluation->abandoned = true;
  }
  parameters_.Wake();
}

void Evaluations::Forget() {
  unstarted_.clear();
  queue_.DropChunks();
  for (const std::weak_ptr<SliceEvaluation>& entry : std::exchange(running_, {})) {
    if (auto evaluation = entry.lock()) evaluation->abandoned = true;
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

}  // namespace pando
