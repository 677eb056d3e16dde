#include "train/evaluations.h"

#include <utility>

namespace pando {

Evaluations::Evaluations(const ShardPlan& shards, const ParameterStore::Options& options,
                         HeldBytes& held_bytes, const ComputeTickets& tickets, TaskQueue& queue,
                         const ComputeSink& sink)
    : parameters_(shards, options, held_bytes), tickets_(tickets), queue_(queue), sink_(sink) {}

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
