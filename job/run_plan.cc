#include "job/run_plan.h"

#include <fmt/format.h>

#include <memory>

#include "common/text.h"
#include "data/dataset.h"
#include "job/batch_check.h"

namespace pando {
namespace {

constexpr uint32_t kMicroBatchRowsMax = 16;

std::string TensorTable(const TensorLayout& layout) {
  std::string text;
  for (const TensorSpec& spec : layout.specs()) {
    if (spec.kind == TensorKind::kMetric) continue;
    text += fmt::format("#   {:<24} {:<20} {:>10}{}\n", spec.name,
                        fmt::format("[{}]", Joined(spec.shape)), spec.size(),
                        spec.kind == TensorKind::kStatistic ? "  statistic" : "");
  }
  return text;
}

// The samples of each micro-batch in a whole batch and in an epoch's last one.
std::string MicroBatchTable(const Job& job, const StepPlan& plan) {
  const Step last_of_epoch(std::min(plan.steps_per_epoch(), plan.step_count()) - 1);
  std::string text = fmt::format("#   {:>5} {:>14} {:>16}\n", "index", "samples",
                                 fmt::format("in step {}", last_of_epoch.value()));
  for (uint32_t m = 0; m < std::min(job.micro_batches, kMicroBatchRowsMax); ++m) {
    text +=
        fmt::format("#   {:>5} {:>14} {:>16}\n", m, plan.Samples(Step(0), MicroBatch(m)).count(),
                    plan.Samples(last_of_epoch, MicroBatch(m)).count());
  }
  if (job.micro_batches > kMicroBatchRowsMax) {
    text += fmt::format("#   ... {} more\n", job.micro_batches - kMicroBatchRowsMax);
  }
  return text;
}

}  // namespace

StepPlan MakeStepPlan(const Job& job, uint64_t train_sample_count) {
  return StepPlan({.sample_count = train_sample_count,
                   .global_batch = job.global_batch,
                   .micro_batch_count = job.micro_batches,
                   .last_batch = job.last_batch,
                   .step_count = job.steps,
                   .epoch_count = job.epochs});
}

Result<RunPlan> MakeRunPlan(const Job& job) {
  Result<std::unique_ptr<DataSet>> data = OpenDataSet(job);
  if (!data.ok()) return data.status();
  Result<Model> model = Model::Create(job, (*data)->shape(), (*data)->class_count());
  if (!model.ok()) return model.status();
  const uint64_t train_samples = (*data)->sample_count(Split::kTrain);
  const StepPlan steps = MakeStepPlan(job, train_samples);
  if (Status s = CheckMicroBatches(job, *model, steps); !s.ok()) return s;
  return RunPlan{.model = std::move(*model),
                 .steps = steps,
                 .train_samples = train_samples,
                 .test_samples = (*data)->sample_count(Split::kTest)};
}

std::string RunPlanText(const Job& job, const RunPlan& plan) {
  const TensorLayout& layout = plan.model.layout();
  const ShardPlan shards(layout);
  std::string text = "\n# The plan\n";
  text += fmt::format("# {} on {}: {} training samples, {} test samples\n", job.model, job.dataset,
                      plan.train_samples, plan.test_samples);
  text += fmt::format("# {} steps of {} samples, {} steps per epoch\n", plan.steps.step_count(),
                      job.global_batch, plan.steps.steps_per_epoch());
  text += fmt::format(
      "# {} parameters, {}, in {} shards of about {} over {} servers\n", layout.parameter_count(),
      BytesText(layout.float_count() * sizeof(float)), shards.shard_count(),
      BytesText(layout.float_count() * sizeof(float) / shards.shard_count()), job.servers);
  text += "# tensors:\n" + TensorTable(layout);
  text += fmt::format("# {} micro-batches per step, shared by {} workers (threads of each: {}):\n",
                      job.micro_batches, job.workers, job.threads);
  return text + MicroBatchTable(job, plan.steps);
}

}  // namespace pando
