#include "embed/program_computer.h"

#include <fmt/core.h>

#include <algorithm>

#include "data/permutation.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

// Parameters are copied once, into the program's tensors; until then they stay where they arrived.
ParameterStore::Options KeptInPlace(uint64_t versions_kept, const PayloadPlan* payloads) {
  return {.versions_kept = versions_kept,
          .payloads = payloads,
          .is_read_in_place = [](const Blob&) { return true; }};
}

// The metric tensor does not belong to the program.
Status CheckTensor(const TensorLayout& layout, size_t tensor) {
  if (tensor + 1 < layout.tensor_count()) return Status();
  return InvalidArgument(
      fmt::format("there is no tensor {}: the model has {}", tensor, layout.tensor_count() - 1));
}

void CopyTensor(const JobPlan& plan, const ParameterStore::Hold& hold, size_t tensor, float* to) {
  const size_t first = plan.layout.offset(tensor);
  const size_t last = first + plan.layout.specs()[tensor].size();
  const ShardPlan::Run run = plan.shards.Covering(first, last);
  for (uint32_t s = run.first; s < run.last; ++s) {
    const ShardRange& range = plan.shards.range(ShardId(s));
    const size_t begin = std::max(first, range.first);
    const size_t end = std::min(last, range.last);
    std::copy_n(hold.kept_shard(ShardId(s)) + (begin - range.first), end - begin,
                to + (begin - first));
  }
}

std::vector<uint64_t> TrainingSamples(const JobPlan& plan, Step step, MicroBatch m) {
  const SampleRange range = plan.steps.Samples(step, m);
  const Permutation order(plan.data.train_samples, plan.job.seed, plan.steps.Epoch(step));
  std::vector<uint64_t> samples;
  for (uint64_t at = range.first; at < range.last; ++at) samples.push_back(order.At(at));
  return samples;
}

}  // namespace

ProgramComputer::ProgramComputer(const JobPlan& plan, BufferSource buffers, ComputeSink sink)
    : QueuedComputer({.plan = plan,
                      .sink = std::move(sink),
                      .training = KeptInPlace(plan.steps.versions_kept(), &plan.pulls),
                      .evaluation = KeptInPlace(1, nullptr),
                      .chunk_samples_max = std::max<uint64_t>(1, plan.data.test_samples)}),
      plan_(plan),
      gradients_(plan.layout.float_count(), std::move(buffers)),
      results_(plan, this->sink()) {}

ProgramComputer::~ProgramComputer() {
  Release();
  Tidy();
}

// ---- protocol thread ----------------------------------------------------------------------------

// The program may still own the work, and a hold's end may close a descriptor of this thread.
void ProgramComputer::Tidy() {
  std::vector<std::shared_ptr<CurrentWork>> done;
  {
    std::lock_guard lock(mutex_);
    done.swap(done_);
  }
  for (const std::shared_ptr<CurrentWork>& work : done) work->DropHold();
  std::lock_guard lock(mutex_);
  if (failure_.empty() || failed_with_ == lasting_ticket()) return;
  // A rollback drops events, and the program cannot go on in the next generation either.
  failed_with_ = lasting_ticket();
  sink()(failed_with_, ComputeFailed{Internal(failure_)});
}

void ProgramComputer::Fail(const std::string& text) {
  std::lock_guard lock(mutex_);
  failure_ = text;
  failed_with_ = lasting_ticket();
  sink()(failed_with_, ComputeFailed{Internal(text)});
}

// ---- the program's threads: work ----------------------------------------------------------------

std::shared_ptr<CurrentWork> ProgramComputer::current() const {
  std::lock_guard lock(mutex_);
  return current_;
}

std::shared_ptr<CurrentWork> ProgramComputer::Release() {
  std::lock_guard lock(mutex_);
  if (current_) done_.push_back(current_);
  return std::exchange(current_, nullptr);
}

ParameterStore& ProgramComputer::StoreFor(const CurrentWork& work) {
  return work.is_training() ? parameters() : evaluation_parameters();
}

bool ProgramComputer::IsSuperseded(const CurrentWork& work) {
  return StoreFor(work).IsSuperseded(work.version());
}

// Its parameters may wait for an evaluation's end (P31).
bool ProgramComputer::Yields(const CurrentWork& work) const {
  return work.is_training() && !work.is_partly_out && queue().has_chunks();
}

// Work whose version is superseded is not needed any more, because its step is complete everywhere.
// A verification then reports the hash 0.
void ProgramComputer::GiveBack(CurrentWork& work) {
  if (!work.is_training()) {
    if (!IsSuperseded(work)) queue().GiveBack(ChunkTask{work.evaluation});
    return;
  }
  const ComputeCall& call = *work.micro_batch.call;
  if (!IsSuperseded(work)) return queue().GiveBack(work.micro_batch);
  if (!call.sum && !call.is_abandoned)
    sink()(call.lasting_ticket, GradientHashed{call.step, work.micro_batch.micro_batch, 0});
}

std::shared_ptr<const CurrentWork> ProgramComputer::NextWork(Deadline deadline) {
  EndReading();
  if (const auto unfinished = Release()) GiveBack(*unfinished);
  std::optional<ComputeTask> task = queue().Take(deadline);
  if (!task) return nullptr;
  auto work = std::make_shared<CurrentWork>();
  work->started_at = Clock::now();
  if (auto* chunk = std::get_if<ChunkTask>(&*task)) {
    work->evaluation = std::move(chunk->evaluation);
    const Evaluate& request = work->evaluation->request;
    for (uint64_t s = request.first_sample; s < request.last_sample; ++s)
      work->samples.push_back(s);
  } else {
    work->micro_batch = std::get<MicroBatchTask>(std::move(*task));
    const MicroBatch m = work->micro_batch.micro_batch;
    work->samples = TrainingSamples(plan_, work->step(), m);
    if (plan_.IsVerified(work->step(), m)) work->shard_hashes.resize(plan_.shards.shard_count());
    work->gradient.emplace(plan_, gradients_.Take());
    work->is_partly_out = results_.IsPartlyOut(work->micro_batch);
    reading_since_ = NowNs();
  }
  std::lock_guard lock(mutex_);
  return current_ = work;
}

void ProgramComputer::EndReading() {
  if (reading_since_ == 0) return;
  if (const int64_t since = reading_since_.exchange(0); since != 0) read_ns_ += NowNs() - since;
}

void ProgramComputer::AddTimes(Heartbeat* heartbeat) const {
  const int64_t since = reading_since_;
  heartbeat->samples_wait_ms =
      since == 0 ? 0 : static_cast<uint64_t>((NowNs() - since) / 1'000'000);
  heartbeat->data_stall_us =
      static_cast<uint64_t>(read_ns_ / 1000) + 1000 * heartbeat->samples_wait_ms;
  heartbeat->exposed_sync_us = parameters().waited_us();
  heartbeat->micro_batch_us = results_.micro_batch_us();
}

std::optional<ProgramComputer::Guess> ProgramComputer::PeekWork(uint32_t ahead) const {
  const std::vector<TaskQueue::StepPart> expected = queue().Expected(ahead, 1);
  if (expected.empty()) return std::nullopt;
  const auto [step, m] = expected.front();
  if (step.value() >= plan_.steps.step_count()) return std::nullopt;
  std::vector<uint64_t> samples = TrainingSamples(plan_, step, m);
  if (samples.empty()) return std::nullopt;  // in a short last batch
  return Guess{step, m, std::move(samples)};
}

// ---- the program's threads: parameters ----------------------------------------------------------

Result<ProgramComputer::Outcome> ProgramComputer::Hold(
    CurrentWork& work, std::shared_ptr<ParameterStore::Hold>* hold) {
  std::lock_guard lock(work.hold_mutex);
  if (!work.hold) {
    auto held = StoreFor(work).HoldVersion(work.version(), [&] { return work.is_abandoned(); });
    if (!held.ok()) return Outcome::kAbandoned;
    work.hold = std::make_shared<ParameterStore::Hold>(*std::move(held));
  }
  *hold = work.hold;
  return Outcome::kDone;
}

// The program may hold a version of either store, so the serial says which one.
Result<ProgramComputer::Outcome> ProgramComputer::LoadTensor(size_t tensor, float* to,
                                                             uint64_t* holds, Deadline deadline) {
  EndReading();
  const std::shared_ptr<CurrentWork> work = current();
  if (!work) return Outcome::kAbandoned;
  const TensorLayout& layout = plan_.layout;
  PANDO_RETURN_IF_ERROR(CheckTensor(plan_.layout, tensor));
  std::shared_ptr<ParameterStore::Hold> hold;
  PANDO_ASSIGN_OR_RETURN(const Outcome held, Hold(*work, &hold));
  if (held != Outcome::kDone) return held;
  const uint64_t serial = 2 * hold->serial() + (work->is_training() ? 0 : 1);
  if (*holds == serial && !work->is_dropped()) return Outcome::kDone;
  const size_t end = layout.offset(tensor) + layout.specs()[tensor].size();
  const auto start = Clock::now();
  const auto is_interrupted = [&] {
    return work->is_abandoned() || Yields(*work) || Clock::now() >= deadline;
  };
  const Status arrived =
      hold->Advance(plan_.shards.Covering(layout.offset(tensor), end), {}, is_interrupted, nullptr);
  work->waited_ns += (Clock::now() - start).count();
  if (arrived.ok()) {
    CopyTensor(plan_, *hold, tensor, to);
    *holds = serial;
    return Outcome::kDone;
  }
  const bool is_over = work->is_abandoned() || IsSuperseded(*work) || Yields(*work);
  return is_over ? Outcome::kAbandoned : Outcome::kAgain;
}

// ---- the program's threads: gradients -----------------------------------------------------------

Result<ProgramComputer::Outcome> ProgramComputer::GiveGradient(size_t tensor, const float* values,
                                                               double weight) {
  EndReading();
  const std::shared_ptr<CurrentWork> work = current();
  if (!work || work->is_dropped()) return Outcome::kAbandoned;
  if (!work->is_training())
    return InvalidArgument("the current work is an evaluation, which has no gradients");
  PANDO_RETURN_IF_ERROR(CheckTensor(plan_.layout, tensor));
  return results_.Give(*work, tensor, values, weight);
}

// ---- the program's threads: the end of a work ---------------------------------------------------

Result<ProgramComputer::Outcome> ProgramComputer::Finish(std::span<const double> sums) {
  EndReading();
  const std::shared_ptr<CurrentWork> work = current();
  if (!work || work->is_dropped()) return Outcome::kAbandoned;
  Result<Outcome> outcome = results_.Finish(*work, sums);
  if (outcome.ok()) Release();
  return outcome;
}

Status ProgramComputer::StopRun(const std::string& text) {
  const std::shared_ptr<CurrentWork> work = current();
  const bool may_stop = plan_.job.eval_report == ReportUse::kDecides;
  if (!may_stop || text.empty() || (work && !work->is_report()))
    return InvalidArgument(
        "only a report of an evaluation may end the run, with eval.report = \"decides\" and a "
        "text");
  if (work) work->stop_text = text;
  return Status();
}

}  // namespace pando
