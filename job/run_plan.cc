#include "job/run_plan.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "common/text.h"
#include "job/batch_check.h"
#include "plan/external_model.h"
#include "plan/rate_table.h"

namespace pando {
namespace {

constexpr uint32_t kMicroBatchRowsMax = 16;
constexpr const char* kSynthetic = "synthetic-digits";

std::string FindFolder(const std::string& name) {
  for (const char* parent : {"data/", "../shared/data/"}) {
    const std::string folder = FindDataFolder(name, parent);
    if (!folder.empty()) return folder;
  }
  return "";
}

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

// Lists the samples of each micro-batch in a whole batch and in an epoch's last one.
std::string MicroBatchTable(const Job& job, const StepPlan& plan) {
  const Step last_of_epoch(std::min(plan.steps_per_epoch(), plan.step_count()) - 1);
  std::string text =
      fmt::format("#   {:>5} {:>14} {:>16}\n", "index", "samples", "in the last step");
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

std::string ChooseData(JobDraft* draft) {
  if (!draft->job().data_path.empty()) return "";
  const std::string name = draft->job().dataset;
  const std::string folder = name == kSynthetic ? "" : FindFolder(name);
  if (!folder.empty()) {
    draft->SetDefault("data.path", folder);
    return fmt::format("training on {} from {}", name, folder);
  }
  if (draft->IsGiven("data.name")) return "";
  draft->SetDefault("data.name", kSynthetic);
  return fmt::format(
      "no {} in data/{} or ../shared/data/{}: training on synthetic-digits, drawn by pando itself "
      "(--data FOLDER takes {} from elsewhere)",
      name, name, name, name);
}

namespace {

// Returns whether the outer optimizer moves away from a point that all rounds reach, if each
// round's difference is applied one version late (train.staleness).
bool LateRoundsDiverge(const OptimizerOptions& o) {
  if (o.kind != OptimizerKind::kSgd) return false;
  constexpr int kSteps = 1000;
  double read = 1.0, updated = 1.0, buffer = 0.0;  // distances from the point
  for (int step = 0; step < kSteps; ++step) {
    buffer = o.momentum * buffer + read;
    const double moved = o.nesterov ? read + o.momentum * buffer : buffer;
    read = std::exchange(updated, updated - o.lr * moved);
  }
  return !(std::abs(updated) < 1.0);
}

}  // namespace

Result<OpenedJob> OpenedJob::Open(const Job& job, const DataWarning& warn) {
  if (IsExternal(job)) {
    return InvalidArgument(
        "the model and the data are a program's, so only that program can compute with them: load "
        "the weights (final.safetensors in the run folder) there");
  }
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<DataSet> data, OpenDataSet(job, warn));
  PANDO_ASSIGN_OR_RETURN(Model model, Model::Create(job, (data)->shape(), (data)->class_count()));
  JobPlan plan(job, (data)->facts(), model.layout());
  std::vector<std::string> notices = data->notices();
  if (job.staleness > 0 && job.local_steps > 1 && LateRoundsDiverge(job.optimizer)) {
    notices.push_back(fmt::format(
        "with train.staleness rounds of many local steps diverge at optimizer.lr {} and momentum "
        "{}: lr 0.5 and momentum 0.3 do not (docs/modes.md)",
        job.optimizer.lr, job.optimizer.momentum));
  }
  return OpenedJob{std::move(data), std::move(model), std::move(plan), std::move(notices)};
}

Result<OpenedJob> MakeRunPlan(const Job& job) {
  Result<OpenedJob> opened = OpenedJob::Open(job);
  if (!opened.ok()) return opened;
  PANDO_RETURN_IF_ERROR(CheckMicroBatches(job, opened->model, opened->plan.steps));
  PANDO_RETURN_IF_ERROR(CheckRates(job.schedule, opened->plan.steps.step_count()));
  opened->data.reset();
  return opened;
}

std::vector<std::string> DataLines(const OpenedJob& planned) {
  constexpr size_t kNamesMax = 10;
  const DataFacts& data = planned.plan.data;
  std::vector<std::string> names = data.preprocessing.class_names;
  if (names.size() > kNamesMax) {
    names.resize(kNamesMax);
    names.emplace_back("...");
  }
  std::vector<std::string> lines{
      fmt::format("{}: {} training samples, {} {} samples, {} classes: {}",
                  planned.plan.job.dataset, data.train_samples, data.test_samples,
                  planned.plan.job.evaluated_on(), data.class_count, Joined(names))};
  if (planned.plan.job.dataset == "imagefolder")
    lines[0] += fmt::format("; a part of each picture is resized to {} x {} (--resize)",
                            data.shape.height, data.shape.width);
  lines.insert(lines.end(), planned.notices.begin(), planned.notices.end());
  for (std::string& line : lines) line = AsUtf8(line);
  return lines;
}

std::string RunPlanText(const OpenedJob& planned) {
  const JobPlan& plan = planned.plan;
  const Job& job = plan.job;
  const TensorLayout& layout = plan.layout;
  const uint32_t shard_count = plan.shards.shard_count();
  std::string text = "\n# The plan\n";
  text += fmt::format("# {} on these data:\n", job.model);
  for (const std::string& line : DataLines(planned)) text += "# " + line + "\n";
  text += fmt::format("# {} steps of {} samples, {} steps per epoch\n", plan.steps.step_count(),
                      job.global_batch, plan.steps.steps_per_epoch());
  text += fmt::format("# {} parameters, {}, in {} shards of about {} over {} servers\n",
                      layout.parameter_count(), BytesText(layout.float_count() * sizeof(float)),
                      shard_count, BytesText(layout.float_count() * sizeof(float) / shard_count),
                      job.servers);
  text += "# tensors:\n" + TensorTable(layout);
  text += fmt::format("# {} micro-batches per step, shared by {} workers (threads of each: {}):\n",
                      job.micro_batches, job.workers, job.threads);
  return text + MicroBatchTable(job, plan.steps);
}

}  // namespace pando
