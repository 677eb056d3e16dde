// The subcommands that show models: models, model.
#include <fmt/core.h>

#include <array>
#include <charconv>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/model_report.h"
#include "common/atomic_file.h"
#include "common/exit_codes.h"
#include "common/output.h"
#include "common/text.h"
#include "job/batch_check.h"
#include "job/device_choice.h"
#include "job/job_file.h"
#include "models/network.h"
#include "models/zoo.h"
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

// Opens the CPU, unless a GPU is requested: no GPU is started without need.
Result<OpenedDevice> OpenAskedDevice(const Job& job) {
  PANDO_ASSIGN_OR_RETURN(DeviceChoice choice, ParseDevice("--device", job.device));
  using enum DeviceChoice::Kind;
  if (choice.kind == kAuto || choice.kind == kCpu) return OpenedDevice();  // for any precision
  return OpenDevice(choice, job);
}

// The memory of one of a worker's computing threads.
struct Memory {
  NetworkMemory network;
  std::optional<GpuMemoryPlan> gpu;
};
Result<Memory> PlanMemory(Job job, const Graph& graph, uint32_t batch) {
  PANDO_ASSIGN_OR_RETURN(Model model, Model::Create(job, graph.input(), graph.class_count()));
  PANDO_ASSIGN_OR_RETURN(const OpenedDevice device, OpenAskedDevice(job));
  Memory memory{
      Network::PlanMemory(model, {.training = batch, .evaluation = kEvaluationChunkSamples},
                          device.device()),
      std::nullopt};
  if (!device.gpu) return memory;
  job.global_batch = uint64_t{batch} * job.micro_batches;
  const JobPlan plan(job,
                     {.train_samples = job.global_batch,
                      .test_samples = 1,
                      .shape = graph.input(),
                      .class_count = graph.class_count()},
                     model.layout());
  PANDO_RETURN_IF_ERROR(CheckGpuSamples(device.device(), plan, model, batch));
  memory.gpu = PlanGpuMemory(device.device(), plan, model, batch);
  return memory;
}

// Writes FILE.csv and FILE.svg. The path may end in either one.
Status WriteTimeline(const ModelOptions& options, const Job& job, const Graph& graph,
                     const MemoryPlan& training) {
  std::string stem = options.timeline_path;
  if (stem.ends_with(".csv") || stem.ends_with(".svg")) stem.resize(stem.size() - 4);
  const ModelBytes bytes = CountBytes(job, graph);
  const std::string title = fmt::format("{}, {}, micro-batches of {}: memory over one step",
                                        job.model, ShapeText(graph.input()), options.batch);
  Status status = WriteFileAtomically(stem + ".csv", TimelineCsv(bytes, training));
  if (status.ok()) status = WriteFileAtomically(stem + ".svg", TimelineSvg(title, bytes, training));
  if (status.ok()) Print("{0}.csv, {0}.svg: {1} events\n", stem, training.events.size());
  return status;
}

Result<int> ShowModel(const ModelOptions& options) {
  PANDO_ASSIGN_OR_RETURN(Job job, MakeJob(options.model, "MODEL"));
  PANDO_ASSIGN_OR_RETURN(Graph graph, BuildGraph(options.model, job));
  PANDO_ASSIGN_OR_RETURN(Memory memory, PlanMemory(job, graph, options.batch));
  if (options.is_summary || options.timeline_path.empty()) {
    Print("{}", SummaryText({.job = job,
                             .graph = graph,
                             .batch = options.batch,
                             .evaluation_samples = kEvaluationChunkSamples,
                             .memory = memory.network,
                             .gpu = memory.gpu ? &*memory.gpu : nullptr}));
  }
  if (options.timeline_path.empty()) return kExitCompleted;
  PANDO_RETURN_IF_ERROR(WriteTimeline(options, job, graph, memory.network.training));
  return kExitCompleted;
}

}  // namespace

Result<SampleShape> ParseShape(const std::string& where, const std::string& text) {
  constexpr uint32_t kSideMax = 99999;
  std::array<uint32_t, 3> sides{};
  const char* at = text.data();
  const char* const end = at + text.size();
  bool is_shape = true;
  for (size_t i = 0; i < sides.size() && is_shape; ++i) {
    if (i > 0) is_shape = at != end && *at++ == 'x';
    const auto [next, error] = std::from_chars(at, end, sides[i]);
    is_shape = is_shape && error == std::errc{} && sides[i] >= 1 && sides[i] <= kSideMax;
    at = next;
  }
  if (is_shape && at == end) return SampleShape{sides[0], sides[1], sides[2]};
  return InvalidArgument(
      fmt::format("{} {}: expected HEIGHTxWIDTHxCHANNELS, each 1 to {}, as 224x224x3", where,
                  Printable(text), kSideMax));
}

void AddModelShapeOptions(CLI::App& command, ModelChoice* choice) {
  AddOption(command, "--input HxWxC", &choice->input,
            "shape of a sample [what the model was made for]");
  AddOption(command, "--classes N", &choice->class_count, "classes [what the model was made for]",
            InRange(1, 1 << 20));
}

Result<Job> MakeJob(const ModelChoice& choice, const std::string& where) {
  JobDraft draft;
  std::vector<JobDraft::Override> overrides{
      {.key = "model.name", .text = choice.name, .where = where}};
  overrides.insert(overrides.end(), choice.source.overrides.begin(), choice.source.overrides.end());
  PANDO_RETURN_IF_ERROR(draft.AddOverrides(overrides));
  PANDO_ASSIGN_OR_RETURN(Job job, draft.Finish());
  PANDO_RETURN_IF_ERROR(LoadNetwork(&job));
  return job;
}

Result<Graph> BuildGraph(const ModelChoice& choice, const Job& job) {
  const ZooModel* zoo_model = FindZooModel(job.model);
  SampleShape shape = zoo_model != nullptr ? zoo_model->input : SampleShape{32, 32, 3};
  uint32_t class_count = zoo_model != nullptr ? zoo_model->class_count : 10;
  if (!choice.input.empty()) {
    PANDO_ASSIGN_OR_RETURN(shape, ParseShape("--input", choice.input));
  }
  if (choice.class_count > 0) class_count = choice.class_count;
  return BuildModelGraph(job, shape, class_count);
}

Subcommand AddModelsCommand(CLI::App& app) {
  DeclareCommand(app, "models", "Lists the models that come with the program.",
                 "Example:\n  pando models\n");
  return [] {
    Print("{}\nYour own: --model FILE.toml (docs/networks.md). More of one: pando model NAME\n",
          ModelsText());
    return int{kExitCompleted};
  };
}

Subcommand AddModelCommand(CLI::App& app) {
  auto options = std::make_shared<ModelOptions>();
  CLI::App& command = DeclareCommand(
      app, "model", "Shows a model: its layers, shapes, parameters, FLOPs and memory.",
      "Examples:\n  pando model resnet18-cifar --summary --batch 64\n"
      "  pando model lenet5 --memory-timeline lenet5 --optimizer adam\n"
      "  pando model resnet50 --batch 256 --device cuda --precision bf16\n");
  AddOption(command, "NAME NAME|FILE.toml", &options->model.name,
            "a model of `pando models`, or a network's file")
      .Required();
  AddFlag(command, "--summary", &options->is_summary,
          "the table of layers and the sums; goes without saying where nothing else is "
          "asked for");
  AddOption(command, "--batch N", &options->batch,
            fmt::format("samples of a micro-batch [{}]", kBatchDefault), InRange(1, 1 << 20));
  AddModelShapeOptions(command, &options->model);
  AddOption(command, "--memory-timeline FILE", &options->timeline_path,
            "write the memory over one step to FILE.csv and FILE.svg");
  AddCostOptions(command, &options->model.source);
  return [options] { return ShowModel(*options); };
}

}  // namespace pando
