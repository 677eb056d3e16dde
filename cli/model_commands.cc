// The subcommands that show models: models, model.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/model_choice.h"
#include "cli/model_report.h"
#include "common/atomic_file.h"
#include "common/exit_codes.h"
#include "job/batch_check.h"
#include "job/device_choice.h"
#include "models/network.h"
#include "train/evaluation_pass.h"

namespace pando {
namespace {

constexpr uint32_t kBatchDefault = 32;

struct ModelOptions {
  ModelChoice model;
  uint32_t batch = kBatchDefault;
  std::string timeline_path;
  bool is_summary = false;
};

// The CPU, unless a GPU is asked for: none is started for its own sake.
Result<OpenedDevice> DeviceOf(const Job& job) {
  Result<DeviceChoice> choice = ParseDevice("--device", job.device);
  if (!choice.ok()) return choice.status();
  using enum DeviceChoice::Kind;
  if (choice->kind == kAuto || choice->kind == kCpu) return OpenedDevice();  // of any precision
  return OpenDevice(*choice, job);
}

// As a worker's computing thread has it.
struct Memory {
  NetworkMemory network;
  std::optional<GpuMemoryPlan> gpu;
};
Result<Memory> MemoryOf(Job job, const Graph& graph, uint32_t batch) {
  Result<Model> model = Model::Create(job, graph.input(), graph.class_count());
  if (!model.ok()) return model.status();
  const Result<OpenedDevice> device = DeviceOf(job);
  if (!device.ok()) return device.status();
  Memory memory{
      Network::PlanMemory(*model, {.training = batch, .evaluation = kEvaluationChunkSamples},
                          device->device()),
      std::nullopt};
  if (!device->gpu) return memory;
  job.global_batch = uint64_t{batch} * job.micro_batches;
  const JobPlan plan(job,
                     {.train_samples = job.global_batch,
                      .test_samples = 1,
                      .shape = graph.input(),
                      .class_count = graph.class_count()},
                     model->layout());
  if (Status s = CheckGpuSamples(device->device(), plan, *model, batch); !s.ok()) return s;
  memory.gpu = PlanGpuMemory(device->device(), plan, *model, batch);
  return memory;
}

// Writes FILE.csv and FILE.svg. The path may end in either.
Status WriteTimeline(const ModelOptions& options, const Job& job, const Graph& graph,
                     const MemoryPlan& training) {
  std::string stem = options.timeline_path;
  if (stem.ends_with(".csv") || stem.ends_with(".svg")) stem.resize(stem.size() - 4);
  const ModelBytes bytes = BytesOf(job, graph);
  const std::string title = fmt::format("{}, {}, micro-batches of {}: memory over one step",
                                        job.model, ShapeText(graph.input()), options.batch);
  Status status = WriteFileAtomically(stem + ".csv", TimelineCsv(bytes, training));
  if (status.ok()) status = WriteFileAtomically(stem + ".svg", TimelineSvg(title, bytes, training));
  if (status.ok()) fmt::print("{0}.csv, {0}.svg: {1} events\n", stem, training.events.size());
  return status;
}

int ShowModel(const ModelOptions& options) {
  Result<Job> job = JobOf(options.model, "MODEL");
  if (!job.ok()) return Report(job.status());
  Result<Graph> graph = GraphOf(options.model, *job);
  if (!graph.ok()) return Report(graph.status());
  Result<Memory> memory = MemoryOf(*job, *graph, options.batch);
  if (!memory.ok()) return Report(memory.status());
  if (options.is_summary || options.timeline_path.empty()) {
    fmt::print("{}", SummaryText({.job = *job,
                                  .graph = *graph,
                                  .batch = options.batch,
                                  .evaluation_samples = kEvaluationChunkSamples,
                                  .memory = memory->network,
                                  .gpu = memory->gpu ? &*memory->gpu : nullptr}));
  }
  if (options.timeline_path.empty()) return kExitCompleted;
  if (Status s = WriteTimeline(options, *job, *graph, memory->network.training); !s.ok())
    return Report(s);
  return kExitCompleted;
}

}  // namespace

Subcommand AddModelsCommand(CLI::App& app) {
  CLI::App& command = *app.add_subcommand("models", "Lists the models that come with the program.");
  command.footer(std::string("\nExample:\n  pando models\n\n") + kExitCodesHelp);
  return [] {
    fmt::print(
        "{}\nYour own: --model FILE.toml (docs/networks.md). More of one: pando model NAME\n",
        ModelsText());
    return int{kExitCompleted};
  };
}

Subcommand AddModelCommand(CLI::App& app) {
  auto options = std::make_shared<ModelOptions>();
  CLI::App& command = *app.add_subcommand(
      "model", "Shows a model: its layers, shapes, parameters, FLOPs and memory.");
  command.add_option("NAME", options->model.name, "a model of `pando models`, or a network's file")
      ->type_name("NAME|FILE.toml")
      ->required();
  command.add_flag("--summary", options->is_summary,
                   "the table of layers and the sums; goes without saying where nothing else is "
                   "asked for");
  command
      .add_option("--batch", options->batch,
                  fmt::format("samples of a micro-batch [{}]", kBatchDefault))
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20));
  AddModelShapeOptions(command, &options->model);
  command
      .add_option("--memory-timeline", options->timeline_path,
                  "write the memory over one step to FILE.csv and FILE.svg")
      ->type_name("FILE");
  AddCostOptions(command, &options->model.source);
  command.footer(
      std::string("\nExamples:\n  pando model resnet18-cifar --summary --batch 64\n"
                  "  pando model lenet5 --memory-timeline lenet5 --optimizer adam\n"
                  "  pando model resnet50 --batch 256 --device cuda --precision bf16\n\n") +
      kExitCodesHelp);
  return [options] { return ShowModel(*options); };
}

}  // namespace pando
