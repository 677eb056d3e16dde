#include "train/queued_computer.h"

#include <utility>

#include "common/check.h"

namespace pando {

QueuedComputer::QueuedComputer(const Options& options)
    : options_(options),
      pull_(options.timeline != nullptr ? options.timeline->Name({"pull", "pull", "shard"})
                                        : TimelineNameId()),
      parameters_(options.plan.shards, options.training, held_bytes_),
      evaluation_parameters_(options.plan.shards, options.evaluation, held_bytes_),
      queue_(parameters_),
      tickets_(options.plan.steps.versions_kept()) {}

// ---- micro-batches ------------------------------------------------------------------------------

void QueuedComputer::Compute(Step step, std::vector<MicroBatch> micro_batches) {
  PANDO_CHECK(!micro_batches.empty());
  const JobPlan& plan = options_.plan;
  auto call = std::make_shared<ComputeCall>(tickets_.ForCall(step), tickets_.lasting(), step,
                                            plan.steps.VersionReadBy(step));
  call->sum.emplace(plan.steps.Tree(step), plan.NodesToPush(step, micro_batches), plan.shards,
                    options_.device);
  queue_.Push(call, micro_batches);
  options_.on_queued();
}

void QueuedComputer::Verify(Step step, MicroBatch micro_batch) {
  queue_.Push(std::make_shared<ComputeCall>(tickets_.Next(), tickets_.lasting(), step,
                                            options_.plan.steps.VersionReadBy(step)),
              {micro_batch});
  options_.on_queued();
}

void QueuedComputer::Abandon(Step from) {
  tickets_.Abandon(from);
  queue_.Abandon([&](const ComputeCall& call) { return call.sum && call.step >= from; });
}

void QueuedComputer::Forget() {
  tickets_.Forget();
  unstarted_.clear();
  AbandonEvaluations([](Version) { return true; });
  running_.clear();
  queue_.DropChunks();
  evaluation_parameters_.Clear();
  queue_.Abandon([](ComputeCall& call) { return call.is_forgotten = true; });
  parameters_.Clear();
  options_.on_forgotten();
}

// ---- parameters ---------------------------------------------------------------------------------

void QueuedComputer::ParametersArrived(ShardId shard, Version version, const Blob& payload) {
  const TimelineTrack::Span span = PullSpan(shard, version);
  parameters_.Put(shard, version, payload);
}

void QueuedComputer::ParametersGone(ParameterUse use, Version version) {
  if (use == ParameterUse::kTraining) return parameters_.Supersede(version);
  AbandonEvaluations([&](Version other) { return other <= version; });
}

void QueuedComputer::EvaluationParametersArrived(ShardId shard, Version version,
                                                 const Blob& payload) {
  const TimelineTrack::Span span = PullSpan(shard, version);
  evaluation_parameters_.Put(shard, version, payload);
  StartEvaluations();
}

TimelineTrack::Span QueuedComputer::PullSpan(ShardId shard, Version version) const {
  const Step step = StepUpdating(version);
  const bool is_wanted = options_.protocol != nullptr && options_.timeline->Wants(step);
  return {is_wanted ? options_.protocol : nullptr, pull_, step, shard.value()};
}

// ---- evaluations --------------------------------------------------------------------------------

void QueuedComputer::EvaluateSlice(const Evaluate& request) {
  std::erase_if(unstarted_, [&](const Evaluate& e) { return e.version != request.version; });
  AbandonEvaluations([&](Version version) { return version != request.version; });
  unstarted_.push_back(request);
  StartEvaluations();
}

// A thread that waits for training parameters computes the chunks first, since these parameters may
// wait for the evaluation's end (P31).
void QueuedComputer::StartEvaluations() {
  if (unstarted_.empty()) return;
  const bool is_whole = evaluation_parameters_.IsWhole(unstarted_.front().version);
  if (!is_whole && !evaluation_parameters_.is_layered()) return;
  for (const Evaluate& request : std::exchange(unstarted_, {})) Start(request);
}

void QueuedComputer::Start(const Evaluate& request) {
  const uint64_t sample_count = request.last_sample - request.first_sample;
  const bool is_report = request.part == EvaluationPart::kReport;
  if (sample_count == 0 && !is_report) {
    return options_.sink(tickets_.lasting(),
                         EvaluationResult{.version = request.version, .slice = request.slice});
  }
  auto evaluation = std::make_shared<SliceEvaluation>();
  evaluation->number = ++started_count_;
  evaluation->ticket = tickets_.lasting();
  evaluation->request = request;
  evaluation->chunk_samples_max = options_.chunk_samples_max;
  if (evaluation_parameters_.is_copied_whole())
    evaluation->parameters = *evaluation_parameters_.Open(request.version);
  evaluation->scores.resize(is_report ? 1 : (sample_count - 1) / options_.chunk_samples_max + 1);
  evaluation->unfinished_count = evaluation->scores.size();
  std::erase_if(running_, [](const auto& other) { return other.expired(); });
  running_.push_back(evaluation);
  queue_.Push(evaluation);
  options_.on_queued();
}

void QueuedComputer::AbandonEvaluations(const std::function<bool(Version)>& is_abandoned) {
  for (const std::weak_ptr<SliceEvaluation>& entry : running_) {
    auto evaluation = entry.lock();
    if (evaluation != nullptr && is_abandoned(evaluation->request.version))
      evaluation->is_abandoned = true;
  }
  evaluation_parameters_.Wake();
}

}  // namespace pando
