#include "run/serial_trainer.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "plan/job_plan.h"
#include "run/serial_servers.h"
#include "train/evaluation_pass.h"
#include "train/trainer.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;

// What computing threads report to the thread of Run. Threads: any.
class SerialNews {
 public:
  explicit SerialNews(const JobPlan& plan) : plan_(plan) {}

  // ---- computing threads ----
  // One more shard of version step + 1 is made.
  void OnMade(Step step, const FloatBuffer& next);
  void OnEvaluation(const EvaluationResult& result);
  void OnFailed(const Status& failure);

  // ---- the thread of Run ----
  // Block until there is one, or a failure.
  Result<StepMetrics> AwaitStep(Step step);
  Result<EvaluationResult> AwaitEvaluation();

 private:
  const JobPlan& plan_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  uint32_t made_shard_count_ = 0;           // of the next version
  std::deque<StepMetrics> finished_steps_;  // not yet taken
  std::optional<EvaluationResult> evaluation_;
  Status failure_;
};

void SerialNews::OnMade(Step step, const FloatBuffer& next) {
  std::lock_guard lock(mutex_);
  if (++made_shard_count_ < plan_.shards.shard_count()) return;
  made_shard_count_ = 0;
  const float* metrics = next.data() + plan_.layout.offset(plan_.layout.tensor_count() - 1);
  finished_steps_.push_back(
      {.step = step, .loss = metrics[kMetricLoss], .accuracy = metrics[kMetricCorrect]});
  changed_.notify_all();
}

void SerialNews::OnEvaluation(const EvaluationResult& result) {
  std::lock_guard lock(mutex_);
  evaluation_ = result;
  changed_.notify_all();
}

// Bad data is a failure of the run, as with a scheduler, and not of the command's arguments.
void SerialNews::OnFailed(const Status& failure) {
  std::lock_guard lock(mutex_);
  failure_ = failure.code() == StatusCode::kCorrupt ? Internal(failure.message()) : failure;
  changed_.notify_all();
}

Result<StepMetrics> SerialNews::AwaitStep(Step step) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !finished_steps_.empty() || !failure_.ok(); });
  if (!failure_.ok()) return failure_;
  const StepMetrics metrics = finished_steps_.front();
  finished_steps_.pop_front();
  PANDO_CHECK(metrics.step == step);
  return metrics;
}

Result<EvaluationResult> SerialNews::AwaitEvaluation() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return evaluation_.has_value() || !failure_.ok(); });
  if (!failure_.ok()) return failure_;
  return *std::exchange(evaluation_, std::nullopt);
}

// Plays every part at once: what the session, the servers and the scheduler do in a distributed
// run.
// Threads: Run on one; OnEvent on the trainer's.
class SerialTrainer {
 public:
  SerialTrainer(const Job& job, const DataSet& data, const Model& model,
                const SerialCallbacks& callbacks, const SerialStretch& stretch, Device device);
  Result<SerialResult> Run();

 private:
  // Steps handed out beyond the last whole version: threads that are done with one step's
  // micro-batches begin the next, layer by layer.
  static constexpr uint64_t kStepsInHandMax = 2;

  bool IsEvaluated(Version version) const {
    return stretch_.is_evaluated && plan_.IsEvaluationDue(version);
  }
  Status MakeAllVersions();
  void HandOutSteps();
  void FinishStep(const StepMetrics& metrics, double seconds);
  Status Evaluate(Version version);
  void KeepBest(Version version);
  void OnEvent(const ComputeEvent& event);

  const JobPlan plan_;
  const SerialCallbacks& callbacks_;
  const SerialStretch& stretch_;
  Version last_;  // to make; a lower one after an early stop
  SerialResult result_;
  std::vector<EvaluationSummary> evaluations_;
  uint64_t handed_out_count_ = 0;
  SerialNews news_;
  std::optional<SerialServers> servers_;
  Trainer trainer_;  // last: its threads use all of the above
};

SerialTrainer::SerialTrainer(const Job& job, const DataSet& data, const Model& model,
                             const SerialCallbacks& callbacks, const SerialStretch& stretch,
                             Device device)
    : plan_(job, FactsOf(data), model.layout()),
      callbacks_(callbacks),
      stretch_(stretch),
      last_(stretch.last.value_or(plan_.steps.final_version())),
      handed_out_count_(stretch.first.value()),
      news_(plan_),
      trainer_({plan_, model, data, device, callbacks.timeline},
               device.kind == DeviceKind::kCpu ? job.threads : 1,
               [this](ComputeTicket, const ComputeEvent& event) { OnEvent(event); }) {
  result_.version = stretch.first;
  servers_.emplace(plan_, trainer_.parameters(),
                   [this](Step step, const FloatBuffer& next) { news_.OnMade(step, next); });
  if (stretch.parameters == nullptr) {
    servers_->StartFromSeed();
  } else {
    servers_->StartFrom(stretch.first, *stretch.parameters, stretch.states);
  }
}

Result<SerialResult> SerialTrainer::Run() {
  if (Status failure = MakeAllVersions(); !failure.ok()) return failure;
  result_.states = std::move(servers_->states());
  result_.parameters = servers_->Open(result_.version);
  result_.waiting_seconds = static_cast<double>(trainer_.parameters().waited_us()) * 1e-6;
  result_.gradient_buffers = trainer_.gradient_buffers_made();
  return std::move(result_);
}

Status SerialTrainer::MakeAllVersions() {
  while (result_.version < last_) {
    const Clock::time_point start = Clock::now();
    if (!result_.was_interrupted) HandOutSteps();
    if (result_.version.value() == handed_out_count_) break;
    Result<StepMetrics> metrics = news_.AwaitStep(StepReading(result_.version));
    if (!metrics.ok()) return metrics.status();
    FinishStep(*metrics, std::chrono::duration<double>(Clock::now() - start).count());
    if (!IsEvaluated(result_.version) || result_.was_interrupted) continue;
    if (Status s = Evaluate(result_.version); !s.ok()) return s;
  }
  return {};
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

void SerialTrainer::FinishStep(const StepMetrics& metrics, double seconds) {
  SerialStep& last = result_.last_step;
  last.metrics = metrics;
  last.scalars = servers_->schedule().At(metrics.step);
  last.sample_count += plan_.steps.SampleCount(metrics.step);
  last.training_seconds += seconds;
  last.data_stall_seconds = static_cast<double>(trainer_.data_stall_us()) * 1e-6;
  last.exposed_sync_seconds = static_cast<double>(trainer_.exposed_sync_us()) * 1e-6;
  result_.version = VersionMadeBy(metrics.step);
  if (callbacks_.on_step) callbacks_.on_step(last);
  if (callbacks_.interrupted && callbacks_.interrupted()) result_.was_interrupted = true;
}

Status SerialTrainer::Evaluate(Version version) {
  std::shared_ptr<const FloatBuffer> values = servers_->Open(version);
  for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s) {
    const ShardRange& range = plan_.shards.range(ShardId(s));
    const Blob blob(std::as_bytes(values->span().subspan(range.first, range.size())), values);
    trainer_.EvaluationParametersArrived(ShardId(s), version, blob);
  }
  trainer_.EvaluateSlice({.version = version, .last_sample = plan_.data.test_samples});
  Result<EvaluationResult> evaluated = news_.AwaitEvaluation();
  if (!evaluated.ok()) return evaluated.status();
  EvaluationSummary& summary = evaluations_.emplace_back(EvaluationSummary{.version = version});
  AddSlice(*evaluated, plan_.data.class_count, &summary);
  if (callbacks_.on_evaluation) callbacks_.on_evaluation(summary);
  result_.last_evaluation = summary;
  summary.DropDetails();
  if (plan_.job.snapshot_best && BestFirst(evaluations_).front() == version) KeepBest(version);
  last_ = std::min(last_, StopVersion(plan_.job, evaluations_).value_or(last_));
  return {};
}

void SerialTrainer::KeepBest(Version version) {
  const std::shared_ptr<const FloatBuffer> values = servers_->Open(version);
  const auto copy = std::make_shared<FloatBuffer>(values->size());
  std::ranges::copy(values->span(), copy->data());
  result_.best_parameters = copy;
  result_.best_version = version;
}

// On the trainer's threads. Other events do not concern a serial run: it has no other process to
// compare hashes with, and all parameters are resident.
void SerialTrainer::OnEvent(const ComputeEvent& event) {
  if (const auto* gradient = std::get_if<GradientReady>(&event)) servers_->Take(*gradient);
  if (const auto* result = std::get_if<EvaluationResult>(&event)) news_.OnEvaluation(*result);
  if (const auto* failed = std::get_if<ComputeFailed>(&event)) news_.OnFailed(failed->status);
}

}  // namespace

Result<SerialResult> TrainSerially(const Job& job, const DataSet& data, const Model& model,
                                   const SerialCallbacks& callbacks, const SerialStretch& stretch,
                                   Device device) {
  PANDO_CHECK((stretch.parameters != nullptr) == (stretch.first != Version(0)));
  return SerialTrainer(job, data, model, callbacks, stretch, device).Run();
}

Result<EvaluationSummary> EvaluateSerially(const JobPlan& plan, const DataSet& data,
                                           const Model& model, const FloatBuffer& parameters,
                                           Device device) {
  Network network(model, {.training = 1, .evaluation = kEvaluationChunkSamples}, device);
  FloatBuffer values = DeviceFloats(device, parameters.size());
  Upload(device, std::as_bytes(parameters.span()), values.data());
  std::vector<ChunkScore> chunks;
  Batch batch;
  for (uint64_t at = 0; at < plan.data.test_samples; at += kEvaluationChunkSamples) {
    const uint64_t last = std::min(at + kEvaluationChunkSamples, plan.data.test_samples);
    if (Status s = ReadTestSamples(data, at, last, &batch); !s.ok()) return s;
    Result<ChunkScore> score = EvaluateChunk(network, batch, values.data());
    if (!score.ok()) return score.status();
    chunks.push_back(*std::move(score));
  }
  const EvaluationResult result = CombineScores({.last_sample = plan.data.test_samples}, chunks);
  EvaluationSummary summary;
  AddSlice(result, plan.data.class_count, &summary);
  return summary;
}

}  // namespace pando
