#include "cli/serial_trainer.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "common/job_plan.h"
#include "common/tensor_init.h"
#include "scheduler/schedule.h"
#include "server/optimizer.h"
#include "worker/evaluate_chunk.h"
#include "worker/trainer.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;

// Plays every part at once: what the session, the shards and the scheduler do in a distributed run.
// Whichever computing thread completes a shard's root updates that shard, so most updates are made
// while backward still runs.
// Threads: Run on one; OnEvent on the trainer's.
class SerialTrainer {
 public:
  SerialTrainer(const Job& job, const DataSet& data, const Model& model,
                const SerialCallbacks& callbacks, const SerialStretch& stretch);
  Result<SerialResult> Run();

 private:
  // Steps handed out beyond the last whole version: threads that are done with one step's
  // micro-batches begin the next, layer by layer.
  static constexpr uint64_t kStepsInHandMax = 2;

  void MakeFirstVersion();
  bool IsEvaluated(Version version) const {
    return stretch_.is_evaluated && plan_.IsEvaluationDue(version);
  }
  void HandOutSteps();
  Result<StepMetrics> AwaitStep(Step step);
  void FinishStep(const StepMetrics& metrics, double seconds);
  Status Evaluate(Version version);
  void OnEvent(ComputeEvent event);
  void OnEventOf(const GradientReady& root);
  void OnEventOf(const EvaluationResult& result);
  void OnEventOf(const ComputeFailed& failed);
  void OnEventOf(const StepComputed&) {}
  void OnEventOf(const GradientHashed&) {}  // there is nobody to compare with
  void CountUpdate(Step step, const FloatBuffer& next);
  StepMetrics MetricsOf(Step step, const FloatBuffer& next) const;

  const JobPlan plan_;
  const SerialCallbacks& callbacks_;
  const SerialStretch& stretch_;
  const Version last_;  // to make
  const Schedule schedule_;
  const Optimizer optimizer_;
  std::vector<FloatBuffer> states_;  // by shard: optimizer state of its newest version
  SerialResult result_;
  uint64_t handed_out_count_ = 0;

  std::mutex mutex_;  // guards what computing threads tell this one:
  std::condition_variable changed_;
  uint32_t updated_shard_count_ = 0;        // of the version in the making
  std::deque<StepMetrics> finished_steps_;  // not yet seen by Run
  std::optional<EvaluationResult> evaluation_;
  Status failure_;

  Trainer trainer_;  // last: its threads use all of the above
};

SerialTrainer::SerialTrainer(const Job& job, const DataSet& data, const Model& model,
                             const SerialCallbacks& callbacks, const SerialStretch& stretch)
    : plan_(job, FactsOf(data), model.layout()),
      callbacks_(callbacks),
      stretch_(stretch),
      last_(stretch.last.value_or(plan_.steps.final_version())),
      schedule_(job.optimizer, job.schedule, plan_.steps.step_count()),
      optimizer_(job.optimizer, plan_.layout),
      trainer_({plan_, model, data}, job.threads,
               [this](ComputeTicket, ComputeEvent event) { OnEvent(std::move(event)); }) {
  for (const ShardRange& range : plan_.shards.ranges()) {
    FloatBuffer& state = states_.emplace_back(range.size() * optimizer_.state_count());
    if (stretch.parameters == nullptr) continue;
    const FloatBuffer& given = *stretch.states[states_.size() - 1];
    PANDO_CHECK(given.size() == state.size());
    std::ranges::copy(given.span(), state.data());
  }
  result_.version = stretch.first;
  handed_out_count_ = stretch.first.value();
}

Result<SerialResult> SerialTrainer::Run() {
  MakeFirstVersion();
  while (result_.version < last_) {
    const Clock::time_point start = Clock::now();
    if (!result_.was_interrupted) HandOutSteps();
    if (result_.version.value() == handed_out_count_) break;
    Result<StepMetrics> metrics = AwaitStep(StepReading(result_.version));
    if (!metrics.ok()) return metrics.status();
    FinishStep(*metrics, std::chrono::duration<double>(Clock::now() - start).count());
    if (!IsEvaluated(result_.version) || result_.was_interrupted) continue;
    if (Status s = Evaluate(result_.version); !s.ok()) return s;
  }
  result_.states = std::move(states_);
  result_.parameters = *trainer_.parameters().Open(result_.version);
  result_.waiting_seconds = static_cast<double>(trainer_.parameters().waited_us()) * 1e-6;
  result_.gradient_buffers = trainer_.gradient_buffers_made();
  return std::move(result_);
}

void SerialTrainer::MakeFirstVersion() {
  ParameterStore& store = trainer_.parameters();
  SharedBuffer values = store.Writable(stretch_.first);
  if (stretch_.parameters != nullptr) {
    std::ranges::copy(stretch_.parameters->span(), values->data());
  }
  for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s) {
    const ShardRange& range = plan_.shards.range(ShardId(s));
    if (stretch_.parameters == nullptr) {
      InitRange(plan_.layout, plan_.job.seed, range,
                values->span().subspan(range.first, range.size()));
    }
    store.Arrived(ShardId(s), stretch_.first);
  }
}

// Stops short of a version that is evaluated first: training time and evaluation time stay apart.
void SerialTrainer::HandOutSteps() {
  const uint64_t done = result_.version.value();
  while (handed_out_count_ < std::min(done + kStepsInHandMax, last_.value())) {
    if (handed_out_count_ > done && IsEvaluated(Version(handed_out_count_))) return;
    const Step step(handed_out_count_++);
    trainer_.Compute(step, plan_.steps.Tree(step).PresentLeaves());
  }
}

Result<StepMetrics> SerialTrainer::AwaitStep(Step step) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !finished_steps_.empty() || !failure_.ok(); });
  if (!failure_.ok()) return failure_;
  const StepMetrics metrics = finished_steps_.front();
  finished_steps_.pop_front();
  PANDO_CHECK(metrics.step == step);
  return metrics;
}

void SerialTrainer::FinishStep(const StepMetrics& metrics, double seconds) {
  SerialStep& last = result_.last_step;
  last.metrics = metrics;
  last.scalars = schedule_.At(metrics.step);
  last.sample_count += plan_.steps.SampleCount(metrics.step);
  last.training_seconds += seconds;
  result_.version = VersionMadeBy(metrics.step);
  if (callbacks_.on_step) callbacks_.on_step(last);
  if (callbacks_.interrupted && callbacks_.interrupted()) result_.was_interrupted = true;
}

Status SerialTrainer::Evaluate(Version version) {
  std::shared_ptr<const FloatBuffer> values = *trainer_.parameters().Open(version);
  for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s) {
    const ShardRange& range = plan_.shards.range(ShardId(s));
    const Blob blob(std::as_bytes(values->span().subspan(range.first, range.size())), values);
    trainer_.EvaluationParametersArrived(ShardId(s), version, blob);
  }
  trainer_.EvaluateSlice({.version = version, .last_sample = plan_.data.test_samples});
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return evaluation_.has_value() || !failure_.ok(); });
  if (!failure_.ok()) return failure_;
  result_.last_evaluation = std::exchange(evaluation_, std::nullopt);
  if (callbacks_.on_evaluation) callbacks_.on_evaluation(*result_.last_evaluation);
  return {};
}

// ---- the trainer's threads ----------------------------------------------------------------------

void SerialTrainer::OnEvent(ComputeEvent event) {
  std::visit([this](const auto& e) { OnEventOf(e); }, event);
}

// The whole tree is ours, so the node is the root. Updates one shard in place of a server.
void SerialTrainer::OnEventOf(const GradientReady& root) {
  ParameterStore& store = trainer_.parameters();
  const ShardRange& range = plan_.shards.range(root.shard);
  const Version next_version = VersionMadeBy(root.step);
  auto values = *store.Open(VersionReadBy(root.step));
  SharedBuffer next = store.Writable(next_version);
  FloatBuffer& state = states_[root.shard.value()];
  optimizer_.Apply({.range = range,
                    .parameters = values->span().subspan(range.first, range.size()),
                    .gradient = root.payload.floats(),
                    .gradient_scale = 1.0f / static_cast<float>(plan_.steps.SampleCount(root.step)),
                    .scalars = schedule_.At(root.step),
                    .is_first_step = root.step == Step(0),
                    .state = std::as_const(state).span(),
                    .parameters_out = next->span().subspan(range.first, range.size()),
                    .state_out = state.span()});
  CountUpdate(root.step, *next);
  store.Arrived(root.shard, next_version);  // after the count, or the next step's could overtake it
}

void SerialTrainer::CountUpdate(Step step, const FloatBuffer& next) {
  std::lock_guard lock(mutex_);
  if (++updated_shard_count_ < plan_.shards.shard_count()) return;
  updated_shard_count_ = 0;
  finished_steps_.push_back(MetricsOf(step, next));
  changed_.notify_all();
}

StepMetrics SerialTrainer::MetricsOf(Step step, const FloatBuffer& next) const {
  const float* metrics = next.data() + plan_.layout.offset(plan_.layout.tensor_count() - 1);
  return {.step = step, .loss = metrics[kMetricLoss], .accuracy = metrics[kMetricCorrect]};
}

void SerialTrainer::OnEventOf(const EvaluationResult& result) {
  std::lock_guard lock(mutex_);
  evaluation_ = result;
  changed_.notify_all();
}

void SerialTrainer::OnEventOf(const ComputeFailed& failed) {
  std::lock_guard lock(mutex_);
  failure_ = failed.status;
  changed_.notify_all();
}

}  // namespace

Result<SerialResult> TrainSerially(const Job& job, const DataSet& data, const Model& model,
                                   const SerialCallbacks& callbacks, const SerialStretch& stretch) {
  PANDO_CHECK((stretch.parameters != nullptr) == (stretch.first != Version(0)));
  return SerialTrainer(job, data, model, callbacks, stretch).Run();
}

Result<EvaluationSummary> EvaluateSerially(const JobPlan& plan, const DataSet& data,
                                           const Model& model, const FloatBuffer& parameters) {
  Network network(model, kEvaluationChunkSamples);
  EvaluationSummary summary{.sample_count = plan.data.test_samples};
  for (uint64_t first = 0; first < summary.sample_count; first += kEvaluationSliceSamples) {
    const uint64_t last = std::min(first + kEvaluationSliceSamples, summary.sample_count);
    double slice_loss = 0;
    for (uint64_t at = first; at < last; at += kEvaluationChunkSamples) {
      const TestSamples samples{at, std::min(at + kEvaluationChunkSamples, last)};
      Result<BatchScore> score = EvaluateChunk(network, data, samples, parameters.data());
      if (!score.ok()) return score.status();
      summary.correct_count += score->correct_count;
      slice_loss += score->loss_sum;
    }
    summary.loss_sum += slice_loss;
  }
  return summary;
}

}  // namespace pando
