#include "cli/serial_trainer.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "common/job_plan.h"
#include "common/tensor_init.h"
#include "scheduler/schedule.h"
#include "server/aggregator.h"
#include "server/partials.h"
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
                const SerialCallbacks& callbacks, const SerialStretch& stretch, Device device);
  Result<SerialResult> Run();

 private:
  // Steps handed out beyond the last whole version: threads that are done with one step's
  // micro-batches begin the next, layer by layer.
  static constexpr uint64_t kStepsInHandMax = 2;
  static constexpr uint64_t kVersionsKept = 2;  // P4

  void MakeFirstVersion();
  bool IsEvaluated(Version version) const {
    return stretch_.is_evaluated && plan_.IsEvaluationDue(version);
  }
  Status MakeAllVersions();
  void HandOutSteps();
  Result<StepMetrics> AwaitStep(Step step);
  void FinishStep(const StepMetrics& metrics, double seconds);
  Status Evaluate(Version version);
  void KeepBest(Version version);
  void OnEvent(ComputeEvent event);
  void OnEventOf(const GradientReady& root);
  void OnEventOf(const EvaluationResult& result);
  void OnEventOf(const BadPicturesFound& found);
  void OnEventOf(const ComputeFailed& failed);
  void OnEventOf(const StepComputed&) {}
  void OnEventOf(const GradientHashed&) {}    // there is nobody to compare with
  void OnEventOf(const ParametersWanted&) {}  // all are resident: they are made here
  // Where new versions are made: where they are read from too, unless parameters are encoded.
  ParameterStore& versions() { return versions_ ? *versions_ : trainer_.parameters(); }
  void Show(ShardId shard, Version version, const SharedBuffer& values);
  std::optional<GradientReady> Sum(const GradientReady& leaf);
  void OnRoot(const GradientReady& root);
  Optimizer::Update UpdateOf(const GradientReady& root, const FloatBuffer& values) const;
  void Update(const GradientReady& root, std::span<const float> factors);
  void AwaitPartials(const GradientReady& root);
  void CountUpdate(Step step, const FloatBuffer& next);
  void TellBadPictures();
  StepMetrics MetricsOf(Step step, const FloatBuffer& next) const;

  const JobPlan plan_;
  const SerialCallbacks& callbacks_;
  const SerialStretch& stretch_;
  Version last_;  // to make; a lower one after an early stop
  const Schedule schedule_;
  const Optimizer optimizer_;
  const PartialPlan partial_plan_;
  std::vector<FloatBuffer> states_;  // by shard: optimizer state of its newest version
  SerialResult result_;
  std::vector<EvaluationSummary> evaluations_;
  uint64_t handed_out_count_ = 0;

  // P14: complete roots of a step whose shards wait for each other's partial values.
  struct Waiting {
    std::map<ShardId, GradientReady> roots;
    std::map<ShardId, std::vector<float>> partials;
  };
  std::mutex waiting_mutex_;  // guards:
  std::map<Step, Waiting> waiting_;

  // P34. Encoded gradients come one by one, and versions have their encoded form beside them.
  struct Summed {
    explicit Summed(size_t float_count, const ShardCodec* codec) : leaves(float_count, codec) {}
    std::mutex mutex;  // guards:
    std::optional<Step> step;
    Aggregator leaves;  // of this step
  };
  std::deque<Summed> summed_;  // by shard; none where nothing is encoded
  HeldBytes held_bytes_;
  std::optional<ParameterStore> versions_;

  std::mutex mutex_;  // guards what computing threads tell this one:
  std::condition_variable changed_;
  uint32_t updated_shard_count_ = 0;        // of the version in the making
  std::deque<StepMetrics> finished_steps_;  // not yet seen by Run
  std::optional<EvaluationResult> evaluation_;
  BadPictures bad_pictures_;
  std::vector<std::pair<BadPicture, std::string>> untold_pictures_;  // with what to say
  Status failure_;

  Trainer trainer_;  // last: its threads use all of the above
};

SerialTrainer::SerialTrainer(const Job& job, const DataSet& data, const Model& model,
                             const SerialCallbacks& callbacks, const SerialStretch& stretch,
                             Device device)
    : plan_(job, FactsOf(data), model.layout()),
      callbacks_(callbacks),
      stretch_(stretch),
      last_(stretch.last.value_or(plan_.steps.final_version())),
      schedule_(job.optimizer, job.schedule, plan_.steps.step_count()),
      optimizer_(job.optimizer, plan_.layout),
      partial_plan_(job.optimizer, plan_.layout, plan_.shards),
      bad_pictures_(job.bad_pictures_max),
      trainer_({plan_, model, data, device, callbacks.timeline},
               device.kind == DeviceKind::kCpu ? job.threads : 1,
               [this](ComputeTicket, ComputeEvent event) { OnEvent(std::move(event)); }) {
  if (!plan_.pulls.is_exact())
    versions_.emplace(plan_.shards, ParameterStore::Options{kVersionsKept}, held_bytes_);
  for (uint32_t s = 0; s < plan_.shards.shard_count() && !plan_.pushes.is_exact(); ++s)
    summed_.emplace_back(plan_.shards.range(ShardId(s)).size(), plan_.pushes.CodecOf(ShardId(s)));
  for (const ShardRange& range : plan_.shards.ranges()) {
    FloatBuffer& state = states_.emplace_back(optimizer_.state_floats(range));
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
  Status failure = MakeAllVersions();
  TellBadPictures();
  if (!failure.ok()) return failure;
  result_.states = std::move(states_);
  result_.parameters = *versions().Open(result_.version);
  result_.waiting_seconds = static_cast<double>(trainer_.parameters().waited_us()) * 1e-6;
  result_.gradient_buffers = trainer_.gradient_buffers_made();
  return std::move(result_);
}

Status SerialTrainer::MakeAllVersions() {
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
  return {};
}

void SerialTrainer::MakeFirstVersion() {
  SharedBuffer values = versions().Writable(stretch_.first);
  if (stretch_.parameters != nullptr) {
    std::ranges::copy(stretch_.parameters->span(), values->data());
  }
  for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s) {
    const ShardRange& range = plan_.shards.range(ShardId(s));
    if (stretch_.parameters == nullptr) {
      InitRange(plan_.layout, plan_.job.seed, range,
                values->span().subspan(range.first, range.size()));
    }
    Show(ShardId(s), stretch_.first, values);
  }
}

// A shard of a version is made.
void SerialTrainer::Show(ShardId shard, Version version, const SharedBuffer& values) {
  versions().Arrived(shard, version);
  if (!versions_) return;
  const ShardRange& range = plan_.shards.range(shard);
  const auto encoded = std::make_shared<FloatBuffer>(plan_.pulls.PayloadBytes(shard) / 4);
  plan_.pulls.CodecOf(shard)->Encode(values->span().subspan(range.first, range.size()),
                                     std::as_writable_bytes(encoded->span()));
  trainer_.parameters().Put(shard, version, ToBlob(encoded));
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
  last.data_stall_seconds = static_cast<double>(trainer_.data_stall_us()) * 1e-6;
  last.exposed_sync_seconds = static_cast<double>(trainer_.exposed_sync_us()) * 1e-6;
  result_.version = VersionMadeBy(metrics.step);
  TellBadPictures();
  if (callbacks_.on_step) callbacks_.on_step(last);
  if (callbacks_.interrupted && callbacks_.interrupted()) result_.was_interrupted = true;
}

void SerialTrainer::TellBadPictures() {
  std::vector<std::pair<BadPicture, std::string>> untold;
  {
    std::lock_guard lock(mutex_);
    untold.swap(untold_pictures_);
  }
  if (!callbacks_.on_bad_picture) return;
  for (const auto& [picture, text] : untold) callbacks_.on_bad_picture(picture, text);
}

Status SerialTrainer::Evaluate(Version version) {
  std::shared_ptr<const FloatBuffer> values = *versions().Open(version);
  for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s) {
    const ShardRange& range = plan_.shards.range(ShardId(s));
    const Blob blob(std::as_bytes(values->span().subspan(range.first, range.size())), values);
    trainer_.EvaluationParametersArrived(ShardId(s), version, blob);
  }
  trainer_.EvaluateSlice({.version = version, .last_sample = plan_.data.test_samples});
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return evaluation_.has_value() || !failure_.ok(); });
  if (!failure_.ok()) return failure_;
  EvaluationSummary& summary = evaluations_.emplace_back(EvaluationSummary{.version = version});
  AddSlice(*std::exchange(evaluation_, std::nullopt), plan_.data.class_count, &summary);
  if (callbacks_.on_evaluation) callbacks_.on_evaluation(summary);
  result_.last_evaluation = summary;
  summary.DropDetails();
  if (plan_.job.snapshot_best && BestFirst(evaluations_).front() == version) KeepBest(version);
  last_ = std::min(last_, StopVersion(plan_.job, evaluations_).value_or(last_));
  return {};
}

void SerialTrainer::KeepBest(Version version) {
  const std::shared_ptr<const FloatBuffer> values = *versions().Open(version);
  const auto copy = std::make_shared<FloatBuffer>(values->size());
  std::ranges::copy(values->span(), copy->data());
  result_.best_parameters = copy;
  result_.best_version = version;
}

// ---- the trainer's threads ----------------------------------------------------------------------

void SerialTrainer::OnEvent(ComputeEvent event) {
  std::visit([this](const auto& e) { OnEventOf(e); }, event);
}

// The whole tree is ours, so the node is the root, unless each micro-batch's gradient is encoded.
void SerialTrainer::OnEventOf(const GradientReady& gradient) {
  if (summed_.empty()) return OnRoot(gradient);
  if (const std::optional<GradientReady> root = Sum(gradient)) OnRoot(*root);
}

// The root, if this was the last of the step's.
std::optional<GradientReady> SerialTrainer::Sum(const GradientReady& leaf) {
  Summed& summed = summed_[leaf.shard.value()];
  std::lock_guard lock(summed.mutex);
  if (summed.step != leaf.step) {  // a step reads what the one before made of all of its leaves
    PANDO_CHECK(!summed.step || (*summed.step < leaf.step && summed.leaves.is_complete()));
    summed.leaves.Begin(plan_.steps.Tree(leaf.step));
  }
  summed.step = leaf.step;
  summed.leaves.Add(leaf.node, leaf.payload);
  if (!summed.leaves.is_complete()) return std::nullopt;
  return GradientReady{leaf.step, MicroBatchTree::kRoot, leaf.shard, summed.leaves.root()};
}

void SerialTrainer::OnRoot(const GradientReady& root) {
  if (partial_plan_.is_empty()) return Update(root, {});
  AwaitPartials(root);
}

// What makes the shard's next version, but for where it goes and its factors.
Optimizer::Update SerialTrainer::UpdateOf(const GradientReady& root,
                                          const FloatBuffer& values) const {
  const ShardRange& range = plan_.shards.range(root.shard);
  return {.range = range,
          .parameters = values.span().subspan(range.first, range.size()),
          .gradient = root.payload.floats(),
          .gradient_scale = 1.0f / static_cast<float>(plan_.steps.SampleCount(root.step)),
          .scalars = schedule_.At(root.step),
          .is_first_step = root.step == Step(0),
          .state = states_[root.shard.value()].span()};
}

// Makes the shard's partial values and updates every shard whose last missing ones they were.
void SerialTrainer::AwaitPartials(const GradientReady& root) {
  const auto values = *versions().Open(VersionReadBy(root.step));
  std::vector<float> partials(optimizer_.partial_count(plan_.shards.range(root.shard)));
  optimizer_.MakePartials(UpdateOf(root, *values), partials);
  std::ranges::copy(partials, states_[root.shard.value()].span().last(partials.size()).begin());
  std::vector<std::pair<GradientReady, std::vector<float>>> ready;
  {
    std::lock_guard lock(waiting_mutex_);
    Waiting& waiting = waiting_[root.step];
    waiting.roots.emplace(root.shard, root);
    waiting.partials.emplace(root.shard, std::move(partials));
    const ShardPlan::Run needs = partial_plan_.Needs(root.shard);  // who needs ours
    for (uint32_t s = needs.first; s < needs.last; ++s) {
      const auto waits = waiting.roots.find(ShardId(s));
      if (waits == waiting.roots.end()) continue;
      auto factors = partial_plan_.Combine(ShardId(s), [&](ShardId id) {
        const auto at = waiting.partials.find(id);
        return at == waiting.partials.end() ? std::span<const float>() : at->second;
      });
      if (!factors) continue;
      ready.emplace_back(std::move(waits->second), *std::move(factors));
      waiting.roots.erase(waits);
    }
    const bool is_over =
        waiting.roots.empty() && waiting.partials.size() == plan_.shards.shard_count();
    if (is_over) waiting_.erase(root.step);
  }
  for (const auto& [of_shard, factors] : ready) Update(of_shard, factors);
}

// Updates one shard in place of a server.
void SerialTrainer::Update(const GradientReady& root, std::span<const float> factors) {
  const ShardRange& range = plan_.shards.range(root.shard);
  const Version next_version = VersionMadeBy(root.step);
  auto values = *versions().Open(VersionReadBy(root.step));
  SharedBuffer next = versions().Writable(next_version);
  Optimizer::Update update = UpdateOf(root, *values);
  update.factors = factors;
  update.parameters_out = next->span().subspan(range.first, range.size());
  update.state_out = states_[root.shard.value()].span();
  optimizer_.Apply(update);
  CountUpdate(root.step, *next);
  Show(root.shard, next_version, next);  // after the count, or the next step's could overtake it
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

void SerialTrainer::OnEventOf(const BadPicturesFound& found) {
  std::lock_guard lock(mutex_);
  for (const BadPicture& picture : found.pictures) {
    if (bad_pictures_.Add(picture))
      untold_pictures_.emplace_back(picture, bad_pictures_.TextOf(picture));
  }
  const Status verdict = bad_pictures_.Verdict();
  if (!verdict.ok() && failure_.ok()) failure_ = Internal(verdict.message());
  changed_.notify_all();
}

void SerialTrainer::OnEventOf(const ComputeFailed& failed) {
  std::lock_guard lock(mutex_);
  // The run's failure, as the scheduler would call it, and not its invocation's.
  const bool is_bad_data = failed.status.code() == StatusCode::kCorrupt;
  failure_ = is_bad_data ? Internal(failed.status.message()) : failed.status;
  changed_.notify_all();
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
  BadPictures bad(plan.job.bad_pictures_max);
  Batch batch;
  for (uint64_t at = 0; at < plan.data.test_samples; at += kEvaluationChunkSamples) {
    const uint64_t last = std::min(at + kEvaluationChunkSamples, plan.data.test_samples);
    if (Status s = ReadTestSamples(data, at, last, &batch); !s.ok()) return s;
    bad.AddAll(batch.replaced);
    if (Status s = bad.Verdict(); !s.ok()) return s;
    Result<ChunkScore> score = EvaluateChunk(network, batch, values.data());
    if (!score.ok()) return score.status();
    chunks.push_back(*std::move(score));
  }
  const EvaluationResult result = ResultOf({.last_sample = plan.data.test_samples}, chunks);
  EvaluationSummary summary;
  AddSlice(result, plan.data.class_count, &summary);
  return summary;
}

}  // namespace pando
