#include "run/serial_trainer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <utility>
#include <variant>

#include "common/mailbox.h"
#include "plan/tensor_init.h"
#include "run/update_threads.h"
#include "server/aggregator.h"
#include "train/evaluation_pass.h"
#include "train/local_update.h"
#include "train/trainer.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;

// The reports from computing threads to the thread of Run.
using News = std::variant<StepMetrics, EvaluationResult, ComputeFailed>;

// ---- the servers' part --------------------------------------------------------------------------

// SerialServers does the servers' part of a serial run: it sums a step's gradients, makes the next
// version of each shard, and gives it to the trainer. Most updates are made while backward still
// runs: on the computing thread that completes a shard's sum, or with a GPU on separate threads.
// Threads: any may call Take; the other functions as for SerialTrainer's Run. Owns: the optimizer's
// state, and the versions whose encoded form the trainer reads.
class SerialServers {
 public:
  // All arguments outlive it. `parameters` is the trainer's. `news` gets each step's metrics.
  SerialServers(const JobPlan& plan, ParameterStore& parameters, Mailbox<News>& news,
                uint32_t update_thread_count);

  // Make the first version: version 0, or the one with these parameters and states by shard.
  void StartAtZero();
  void StartFrom(Version version, const FloatBuffer& parameters,
                 std::span<const SharedBuffer> states);
  // Takes a gradient of the trainer: a step's sum or, if gradients are encoded, one leaf of it.
  void Take(const GradientReady& gradient);

  // REQUIRES: the version is whole and one of the newest two.
  std::shared_ptr<const FloatBuffer> Open(Version version) { return *versions().Open(version); }
  // The states of the newest version, by shard.
  std::vector<FloatBuffer>& states() { return update_.states(); }
  const Schedule& schedule() const { return update_.schedule(); }

 private:
  // A shard's sum of encoded gradients, which arrive one by one (P34).
  struct Summed {
    Summed(size_t float_count, const ShardCodec* codec) : leaves(float_count, codec) {}
    std::mutex mutex;  // guards:
    std::optional<Step> step;
    Aggregator leaves;  // of this step
  };
  ParameterStore& versions() { return encoded_from_ ? *encoded_from_ : parameters_; }
  void Update(const GradientReady& gradient);
  std::optional<Blob> Sum(const GradientReady& leaf);
  void CountMade(Step step, const FloatBuffer& next);
  void Show(ShardId shard, Version version, const SharedBuffer& values);
  // Makes the version: fill(shard, floats) writes each shard's.
  template <class Fill>
  void ShowAll(Version version, const Fill& fill);

  const JobPlan& plan_;
  ParameterStore& parameters_;
  Mailbox<News>& news_;
  std::atomic<uint64_t> made_shard_count_ = 0;  // in all versions after the first
  HeldBytes held_bytes_;
  // The store in which versions are made if the trainer reads their encoded form (P34). Otherwise
  // the trainer's store has them.
  std::optional<ParameterStore> encoded_from_;
  LocalUpdate update_;
  std::deque<Summed> summed_;             // by shard; empty if gradients are not encoded
  std::optional<UpdateThreads> threads_;  // last: they use all members above
};

std::optional<ParameterStore> MakeStore(const JobPlan& plan, HeldBytes& held_bytes) {
  if (plan.pulls.is_exact()) return std::nullopt;
  return std::optional<ParameterStore>(
      std::in_place, plan.shards, ParameterStore::Options{plan.steps.versions_kept()}, held_bytes);
}

SerialServers::SerialServers(const JobPlan& plan, ParameterStore& parameters, Mailbox<News>& news,
                             uint32_t update_thread_count)
    : plan_(plan),
      parameters_(parameters),
      news_(news),
      encoded_from_(MakeStore(plan, held_bytes_)),
      update_(plan, versions(), LocalUpdate::Timed{}) {
  for (uint32_t s = 0; s < plan.shards.shard_count() && !plan.pushes.is_exact(); ++s)
    summed_.emplace_back(plan.shards.range(ShardId(s)).size(), plan.pushes.codec(ShardId(s)));
  if (update_thread_count > 0)
    threads_.emplace(update_thread_count,
                     [this](const GradientReady& gradient) { Update(gradient); });
}

template <class Fill>
void SerialServers::ShowAll(Version version, const Fill& fill) {
  const SharedBuffer values = versions().Writable(version);
  for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s) {
    const ShardRange& range = plan_.shards.range(ShardId(s));
    fill(ShardId(s), values->span().subspan(range.first, range.size()));
    Show(ShardId(s), version, values);
  }
}

void SerialServers::StartAtZero() {
  ShowAll(Version(0), [&](ShardId shard, std::span<float> floats) {
    FillVersionZero(plan_, plan_.shards.range(shard), floats);
  });
}

void SerialServers::StartFrom(Version version, const FloatBuffer& parameters,
                              std::span<const SharedBuffer> states) {
  for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s) {
    FloatBuffer& state = update_.states()[s];
    PANDO_CHECK(states[s]->size() == state.size());
    std::ranges::copy(states[s]->span(), state.data());
  }
  const Version earlier = plan_.steps.VersionReadBy(StepUpdating(version));
  if (earlier < version) {
    ShowAll(earlier, [&](ShardId shard, std::span<float> floats) {
      const std::span<const float> state = states[shard.value()]->span();
      std::ranges::copy(update_.maker().EarlierParameters(shard, state), floats.begin());
    });
  }
  ShowAll(version, [&](ShardId shard, std::span<float> floats) {
    std::copy_n(parameters.data() + plan_.shards.range(shard).first, floats.size(), floats.data());
  });
}

void SerialServers::Take(const GradientReady& gradient) {
  if (threads_) return threads_->Push(gradient);
  Update(gradient);
}

void SerialServers::Update(const GradientReady& gradient) {
  const std::optional<Blob> root = summed_.empty() ? gradient.payload : Sum(gradient);
  if (!root) return;
  update_.Apply({gradient.step, gradient.shard, *root},
                [this](Step step, ShardId shard, const SharedBuffer& next) {
                  CountMade(step, *next);
                  Show(shard, VersionMadeBy(step), next);
                });
}

// Adds a leaf. Returns the root if this was the last leaf of the step. A step reads what the
// previous step made of all its leaves, so leaves of two steps never mix.
std::optional<Blob> SerialServers::Sum(const GradientReady& leaf) {
  Summed& summed = summed_[leaf.shard.value()];
  std::lock_guard lock(summed.mutex);
  if (summed.step != leaf.step) {
    PANDO_CHECK(!summed.step || (*summed.step < leaf.step && summed.leaves.is_complete()));
    summed.leaves.Begin(plan_.steps.Tree(leaf.step));
  }
  summed.step = leaf.step;
  summed.leaves.Add(leaf.node, leaf.payload);
  if (!summed.leaves.is_complete()) return std::nullopt;
  return summed.leaves.FinishRoot();
}

// Notes that `next` holds one more shard of version step + 1. No gradient of the next step exists
// before it holds all of them.
void SerialServers::CountMade(Step step, const FloatBuffer& next) {
  if (++made_shard_count_ % plan_.shards.shard_count() != 0) return;
  const float* metrics = next.data() + plan_.layout.offset(plan_.layout.tensor_count() - 1);
  (void)news_.Push(
      StepMetrics{.step = step, .loss = metrics[kMetricLoss], .accuracy = metrics[kMetricCorrect]});
}

void SerialServers::Show(ShardId shard, Version version, const SharedBuffer& values) {
  versions().Arrived(shard, version);
  if (!encoded_from_) return;
  const ShardRange& range = plan_.shards.range(shard);
  const auto encoded = std::make_shared<FloatBuffer>(plan_.pulls.PayloadBytes(shard) / 4);
  plan_.pulls.codec(shard)->Encode(values->span().subspan(range.first, range.size()),
                                   std::as_writable_bytes(encoded->span()));
  parameters_.Put(shard, version, ToBlob(encoded));
}

// ---- the other parts ----------------------------------------------------------------------------

// SerialTrainer does the work of the session, the servers and the scheduler of a distributed run,
// all at once. Threads: Run on one; OnEvent on the trainer's.
class SerialTrainer {
 public:
  SerialTrainer(const Job& job, const DataSet& data, const Model& model,
                const SerialCallbacks& callbacks, const SerialStretch& stretch, Device device);
  ~SerialTrainer();
  Result<SerialResult> Run();

 private:
  // The most steps in work beyond the last whole version: threads that have finished a step's
  // micro-batches begin the next step, layer by layer. A step that reads an older version would not
  // wait for the one before, and updates are made in order.
  uint64_t StepsInHandMax() const { return plan_.steps.staleness() > 0 ? 1 : 2; }
  bool IsEvaluated(Version version) const {
    return stretch_.is_evaluated && plan_.IsEvaluationDue(version);
  }
  Status MakeAllVersions();
  void HandOutSteps();
  void FinishStep(const StepMetrics& metrics, double seconds);
  Status Evaluate(Version version);
  void KeepBest(Version version);
  template <class T>
  Result<T> Await();
  void OnEvent(const ComputeEvent& event);

  const JobPlan plan_;
  const SerialCallbacks& callbacks_;
  const SerialStretch& stretch_;
  Version last_;  // the last version to make; lower after an early stop
  SerialResult result_;
  std::vector<EvaluationSummary> evaluations_;
  uint64_t handed_out_count_ = 0;
  Mailbox<News> news_;
  std::optional<SerialServers> servers_;
  Trainer trainer_;  // last: its threads use all members above
};

JobPlan MakePlan(const Job& job, const DataSet& data, const Model& model,
                 const SerialStretch& stretch) {
  JobPlan plan(job, data.facts(), model.layout());
  plan.initial = stretch.initial;
  return plan;
}

// Returns 0 if the trainer's threads make the updates. A small update takes less time than to wake
// a thread: 0.1 ms for 1 MiB.
uint32_t ChooseUpdateThreadCount(const JobPlan& plan, Device device) {
  constexpr size_t kSmallFloatsMax = size_t{1} << 18;
  const bool is_small = plan.layout.float_count() <= kSmallFloatsMax;
  return device.kind == DeviceKind::kCpu || is_small ? 0 : UpdateThreadCount();
}

SerialTrainer::SerialTrainer(const Job& job, const DataSet& data, const Model& model,
                             const SerialCallbacks& callbacks, const SerialStretch& stretch,
                             Device device)
    : plan_(MakePlan(job, data, model, stretch)),
      callbacks_(callbacks),
      stretch_(stretch),
      last_(stretch.last.value_or(plan_.steps.final_version())),
      handed_out_count_(stretch.first.value()),
      trainer_({plan_, model, data, device, callbacks.timeline},
               device.kind == DeviceKind::kCpu ? job.threads : 1,
               [this](ComputeTicket, const ComputeEvent& event) { OnEvent(event); }) {
  result_.version = stretch.first;
  servers_.emplace(plan_, trainer_.parameters(), news_, ChooseUpdateThreadCount(plan_, device));
  if (stretch.parameters == nullptr) {
    servers_->StartAtZero();
  } else {
    servers_->StartFrom(stretch.first, *stretch.parameters, stretch.states);
  }
}

// Ends the updates before the trainer's store, and after the threads that request them.
SerialTrainer::~SerialTrainer() {
  trainer_.Stop();
  servers_.reset();
}

Result<SerialResult> SerialTrainer::Run() {
  PANDO_RETURN_IF_ERROR(MakeAllVersions());
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
    PANDO_ASSIGN_OR_RETURN(StepMetrics metrics, Await<StepMetrics>());
    PANDO_CHECK(metrics.step == StepUpdating(result_.version));
    FinishStep(metrics, std::chrono::duration<double>(Clock::now() - start).count());
    if (!IsEvaluated(result_.version) || result_.was_interrupted) continue;
    PANDO_RETURN_IF_ERROR(Evaluate(result_.version));
  }
  return {};
}

// Hands out steps up to a version that is evaluated, so that training and evaluation times stay
// separate.
void SerialTrainer::HandOutSteps() {
  const uint64_t done = result_.version.value();
  while (handed_out_count_ < std::min(done + StepsInHandMax(), last_.value())) {
    if (handed_out_count_ > done && IsEvaluated(Version(handed_out_count_))) return;
    const Step step(handed_out_count_++);
    trainer_.Compute(step, plan_.steps.Tree(step).PresentLeaves());
  }
}

void SerialTrainer::FinishStep(const StepMetrics& metrics, double seconds) {
  SerialStep& last = result_.last_step;
  last.metrics = metrics;
  last.scalars = servers_->schedule().At(metrics.step);
  last.training_seconds += seconds;
  last.data_stall_seconds = static_cast<double>(trainer_.data_stall_us()) * 1e-6;
  last.exposed_sync_seconds = static_cast<double>(trainer_.exposed_sync_us()) * 1e-6;
  result_.version = VersionMadeBy(metrics.step);
  if (callbacks_.on_step) callbacks_.on_step(last);
  if (callbacks_.interrupted && callbacks_.interrupted()) result_.was_interrupted = true;
}

// Returns the next report of this kind, or a failure. Bad data is a failure of the run, as with a
// scheduler, and not of the command's arguments.
template <class T>
Result<T> SerialTrainer::Await() {
  while (true) {
    const News news = *news_.Pop();
    if (const auto* awaited = std::get_if<T>(&news)) return *awaited;
    const auto* failed = std::get_if<ComputeFailed>(&news);
    if (failed == nullptr) continue;
    const Status& failure = failed->status;
    return failure.code() == StatusCode::kCorrupt ? Internal(failure.message()) : failure;
  }
}

Status SerialTrainer::Evaluate(Version version) {
  const Clock::time_point start = Clock::now();
  std::shared_ptr<const FloatBuffer> values = servers_->Open(version);
  for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s) {
    const ShardRange& range = plan_.shards.range(ShardId(s));
    const Blob blob(std::as_bytes(values->span().subspan(range.first, range.size())), values);
    trainer_.EvaluationParametersArrived(ShardId(s), version, blob);
  }
  trainer_.EvaluateSlice({.version = version, .last_sample = plan_.data.test_samples});
  PANDO_ASSIGN_OR_RETURN(EvaluationResult evaluated, Await<EvaluationResult>());
  result_.last_step.evaluation_seconds +=
      std::chrono::duration<double>(Clock::now() - start).count();
  EvaluationSummary& summary = evaluations_.emplace_back(EvaluationSummary{.version = version});
  AddSlice(evaluated, plan_.data.class_count, &summary);
  if (callbacks_.on_evaluation) callbacks_.on_evaluation(summary);
  result_.last_evaluation = summary;
  summary.DropDetails();
  if (plan_.job.snapshot_best && BestFirst(plan_.job, evaluations_).front() == version)
    KeepBest(version);
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

// Runs on a computing thread. Other events do not concern a serial run: it has no other process
// with which to compare hashes, and all parameters are resident.
void SerialTrainer::OnEvent(const ComputeEvent& event) {
  if (const auto* gradient = std::get_if<GradientReady>(&event)) servers_->Take(*gradient);
  if (const auto* result = std::get_if<EvaluationResult>(&event)) (void)news_.Push(*result);
  if (const auto* failed = std::get_if<ComputeFailed>(&event)) (void)news_.Push(*failed);
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
    PANDO_RETURN_IF_ERROR(ReadTestSamples(data, at, last, &batch));
    PANDO_ASSIGN_OR_RETURN(ChunkScore score, EvaluateChunk(network, batch, values.data()));
    chunks.push_back(std::move(score));
  }
  const EvaluationResult result = CombineScores({.last_sample = plan.data.test_samples}, chunks);
  EvaluationSummary summary;
  AddSlice(result, plan.data.class_count, &summary);
  return summary;
}

}  // namespace pando
