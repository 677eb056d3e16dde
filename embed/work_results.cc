#include "embed/work_results.h"

#include <fmt/core.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <ranges>
#include <utility>

#include "common/hash.h"
#include "embed/pando_worker.h"
#include "plan/unlogged_metric.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Result<WorkOutcome> WorkResults::Give(CurrentWork& work, size_t tensor, const float* values,
                                      double weight) {
  Result<std::vector<ShardId>> complete =
      work.gradient->Give(tensor, values, static_cast<float>(weight));
  if (complete.status().code() == StatusCode::kInternal)
    return Diverge(work, complete.status().message());
  if (!complete.ok()) return complete.status();
  AddToSum(work, *complete);
  return WorkOutcome::kDone;
}

// The hash comes first, because TreeSum adds into the gradients. The last shard is first, as in
// backward.
void WorkResults::AddToSum(CurrentWork& work, const std::vector<ShardId>& shards) {
  ComputeCall& call = *work.micro_batch.call;
  const MicroBatch m = work.micro_batch.micro_batch;
  for (const ShardId shard : shards | std::views::reverse) {
    const ShardRange& range = plan_.shards.range(shard);
    if (work.is_hashed()) {
      const auto floats = work.gradient->buffer()->span().subspan(range.first, range.size());
      work.shard_hashes[shard.value()] = Hash64(std::as_bytes(floats));
    }
    if (!call.sum || !IsNew(work.micro_batch, shard)) continue;
    work.is_partly_out = true;
    std::optional<CompleteSum> sum = call.sum->Add(m, shard, work.gradient->buffer());
    if (sum)
      sink_(call.ticket, GradientReady{call.step, sum->node, shard, std::move(sum->payload)});
  }
}

// So work that was dropped half-way and computed again adds no shard twice.
bool WorkResults::IsNew(const MicroBatchTask& work, ShardId shard) {
  std::lock_guard lock(mutex_);
  std::vector<bool>& added = work.call->added[work.micro_batch];
  added.resize(plan_.shards.shard_count());
  if (added[shard.value()]) return false;
  return added[shard.value()] = true;
}

bool WorkResults::IsPartlyOut(const MicroBatchTask& work) {
  std::lock_guard lock(mutex_);
  const auto added = work.call->added.find(work.micro_batch);
  return added != work.call->added.end() && std::ranges::count(added->second, true) > 0;
}

Result<WorkOutcome> WorkResults::Finish(CurrentWork& work, std::span<const double> sums) {
  return work.is_training() ? FinishTraining(work, sums) : FinishEvaluation(work, sums);
}

// Gives tensors without a gradient, and the metrics.
Result<WorkOutcome> WorkResults::GiveRest(CurrentWork& work, std::span<const double> sums) {
  const bool is_weighted = plan_.job.optimizer.is_weighted;
  const size_t log_count = plan_.job.train_logs.size();
  const size_t sum_count = 2 + log_count + (is_weighted ? 1 : 0);
  if (is_weighted ? sums.size() != sum_count : sums.size() > sum_count)
    return InvalidArgument(
        fmt::format("a micro-batch gave {} sums, and has {}: of the loss, of right answers, those "
                    "of train.logs, and with train.weighted its weight",
                    sums.size(), sum_count));
  if (is_weighted && !(sums.back() >= 0 && sums.back() <= FLT_MAX))
    return InvalidArgument(
        fmt::format("the weight of a micro-batch is {}: expected a number from 0 on", sums.back()));
  const size_t metric = plan_.layout.tensor_count() - 1;
  const std::vector<size_t> missing = work.gradient->Missing();
  for (size_t tensor : missing) {
    const TensorSpec& spec = plan_.layout.specs()[tensor];
    if (spec.kind != TensorKind::kStatistic) continue;
    return InvalidArgument(fmt::format(
        "the statistic '{}' was not given: each micro-batch has one of each", spec.name));
  }
  for (size_t tensor : missing) {
    if (tensor != metric) AddToSum(work, work.gradient->GiveZeros(tensor));
  }
  const double weight = is_weighted ? sums.back() : static_cast<double>(work.samples.size());
  const auto metric_sum = [&](size_t i) {
    const bool is_logged = i < sums.size() && sums[i] != PANDO_NOT_LOGGED;
    return is_logged ? static_cast<float>(sums[i]) : UnloggedSum(weight);
  };
  std::vector<float> metrics(kMetricSlotCount + log_count);
  metrics[kMetricLoss] = metric_sum(0);
  metrics[kMetricCorrect] = metric_sum(1);
  for (size_t i = 0; i < log_count; ++i) metrics[kMetricSlotCount + i] = metric_sum(2 + i);
  if (is_weighted) metrics[kMetricWeight] = static_cast<float>(weight);
  Result<std::vector<ShardId>> complete = work.gradient->Give(metric, metrics.data(), 1);
  if (complete.status().code() == StatusCode::kInternal)
    return Diverge(work, "the loss is not a finite number");
  if (!complete.ok()) return complete.status();
  AddToSum(work, *complete);
  return WorkOutcome::kDone;
}

Result<WorkOutcome> WorkResults::FinishTraining(CurrentWork& work, std::span<const double> sums) {
  PANDO_ASSIGN_OR_RETURN(const WorkOutcome given, GiveRest(work, sums));
  if (given != WorkOutcome::kDone) return given;
  ComputeCall& call = *work.micro_batch.call;
  if (work.is_hashed()) {
    const uint64_t hash =
        std::max<uint64_t>(1, Hash64(std::as_bytes(std::span(work.shard_hashes))));
    sink_(call.lasting_ticket, GradientHashed{call.step, work.micro_batch.micro_batch, hash});
  }
  if (call.is_abandoned) return WorkOutcome::kAbandoned;
  time_.Add(Clock::now() - work.started_at - std::chrono::nanoseconds(work.waited_ns));
  if (--call.unfinished_count == 0 && call.sum) sink_(call.ticket, StepComputed{call.step});
  return WorkOutcome::kDone;
}

Result<WorkOutcome> WorkResults::FinishEvaluation(const CurrentWork& work,
                                                  std::span<const double> sums) {
  const Evaluate& request = work.evaluation->request;
  if (work.is_report()) {
    sink_(work.evaluation->ticket,
          EvaluationResult{
              .version = request.version, .slice = request.slice, .stop_text = work.stop_text});
    return WorkOutcome::kDone;
  }
  const std::vector<std::string>& names = plan_.job.eval_sums;
  if (sums.size() != names.size())
    return InvalidArgument(fmt::format("an evaluation gives {} sums, and eval.sums names {}",
                                       sums.size(), names.size()));
  const uint64_t count = request.last_sample - request.first_sample;
  EvaluationResult result{.version = request.version,
                          .slice = request.slice,
                          .sample_count = count,
                          .confusion = {{0, 0, static_cast<uint32_t>(count)}},
                          .sums = {sums.begin(), sums.end()}};
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == "loss_sum") result.loss_sum = sums[i];
    if (names[i] != "correct") continue;
    if (sums[i] < 0 || sums[i] > static_cast<double>(count) || sums[i] != std::floor(sums[i]))
      return InvalidArgument(
          fmt::format("'correct' of {} test samples is {}: expected a whole number from 0 to {}",
                      count, sums[i], count));
    result.correct_count = static_cast<uint64_t>(sums[i]);
  }
  sink_(work.evaluation->ticket, std::move(result));
  return WorkOutcome::kDone;
}

// Work that does not count must not end the run.
Result<WorkOutcome> WorkResults::Diverge(const CurrentWork& work, const std::string& what) {
  const ComputeCall& call = *work.micro_batch.call;
  if (call.is_abandoned) return WorkOutcome::kAbandoned;
  Status failed = Internal(fmt::format(
      "{} in step {}, micro-batch {}: training has diverged. Try a lower learning rate "
      "([optimizer] lr is {:g}) or a warm-up ([schedule] warmup_steps)",
      what, work.step().value(), work.micro_batch.micro_batch.value(), plan_.job.optimizer.lr));
  sink_(call.sum ? call.ticket : call.lasting_ticket, ComputeFailed{failed});
  return failed;
}

}  // namespace pando
