#include "cli/model_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/check.h"
#include "common/text.h"
#include "job/device_choice.h"
#include "models/graph.h"
#include "models/zoo.h"
#include "optim/optimizer.h"

namespace pando {
namespace {

// "11,689,512".
std::string Grouped(uint64_t number) {
  std::string digits = std::to_string(number);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

// "3.64 G", for a unit to follow.
std::string Scaled(double number) {
  constexpr const char* kUnits[] = {" ", " k", " M", " G", " T", " P"};
  size_t unit = 0;
  for (; number >= 1000 && unit + 1 < std::size(kUnits); ++unit) number /= 1000;
  return fmt::format("{:.{}f}{}", number, unit == 0 ? 0 : 2, kUnits[unit]);
}

uint64_t StatisticCount(const TensorLayout& layout) {
  uint64_t count = 0;
  for (const TensorSpec& spec : layout.specs()) {
    if (spec.kind == TensorKind::kStatistic) count += spec.size();
  }
  return count;
}

uint64_t ParameterCount(const Graph& graph, const Layer& layer) {
  uint64_t count = 0;
  for (size_t t = layer.first_tensor; t < layer.last_tensor; ++t) {
    const TensorSpec& spec = graph.layout().specs()[t];
    if (spec.kind == TensorKind::kParameter) count += spec.size();
  }
  return count;
}

// What a layer reads, where that is not simply the layer before.
std::string InputNames(const Graph& graph, size_t index) {
  const std::vector<int>& inputs = graph.layers()[index].inputs;
  if (inputs == std::vector<int>{static_cast<int>(index) - 1}) return "";
  std::vector<std::string> names;
  for (int input : inputs) {
    names.push_back(input == kGraphInput ? kInputName : graph.layers()[input].spec.name);
  }
  return "  reads " + Joined(names);
}

std::string LayerTable(const Graph& graph) {
  size_t width = 5;
  for (const Layer& layer : graph.layers()) width = std::max(width, layer.spec.name.size());
  std::string text = fmt::format("{:<{}} {:<18} {:<18} {:>12} {:>10}\n", "layer", width, "type",
                                 "output", "parameters", "FLOP");
  for (size_t i = 0; i < graph.layers().size(); ++i) {
    const Layer& layer = graph.layers()[i];
    text += fmt::format("{:<{}} {:<18} {:<18} {:>12} {:>10}{}\n", layer.spec.name, width,
                        LayerKindName(layer.spec.kind), ShapeText(layer.out),
                        Grouped(ParameterCount(graph, layer)),
                        Scaled(static_cast<double>(ForwardFlops(layer))), InputNames(graph, i));
  }
  return text;
}

std::string ActivationLines(const ModelReport& report) {
  const NetworkMemory& memory = report.memory;
  std::string text = fmt::format(
      "  activations      {:>10}   in training; {} of it is in use at the peak\n",
      BytesText(memory.training.allocated_bytes), BytesText(memory.training.PeakLiveBytes()));
  text += fmt::format("  evaluation       {:>10}   for the activations of {} samples\n",
                      BytesText(memory.evaluation_bytes), report.evaluation_samples);
  return text + fmt::format(
                    "  allocated        {:>10}   by a computing thread: the larger of the "
                    "two, which share it\n",
                    BytesText(memory.allocated_bytes()));
}

std::string GpuLines(const Job& job, const GpuMemoryPlan& plan) {
  return fmt::format(
      "\nbytes of the GPU's memory, {} micro-batch{} a step, {}:\n"
      "  parameters       {:>10}   of the version at work, and of the one evaluated\n"
      "  gradients        {:>10}   of micro-batches that wait to be added up\n"
      "  network          {:>10}   activations, their gradients, scratch\n"
      "  batches          {:>10}   samples on their way\n"
      "  a worker         {:>10}   beside CUDA's context and NVIDIA's libraries\n",
      job.micro_batches, job.micro_batches == 1 ? "" : "es", EnumName(job.precision),
      BytesText(plan.parameters), BytesText(plan.gradients), BytesText(plan.network),
      BytesText(plan.batches), BytesText(plan.total()));
}

}  // namespace

std::string ModelsText() {
  std::string text =
      fmt::format("{:<20} {:>12}  {:<14} {:>7}  {}\n", "model", "parameters", "for", "classes", "");
  for (const ZooModel& model : ZooModels()) {
    Job job;
    job.model = model.name;
    const Result<Graph> graph = BuildModelGraph(job, model.input, model.class_count);
    PANDO_CHECK(graph.ok());
    text += fmt::format("{:<20} {:>12}  {:<14} {:>7}  {}\n", model.name,
                        Grouped(graph->layout().parameter_count()), ShapeText(model.input),
                        model.class_count, model.description);
  }
  return text;
}

ModelBytes CountBytes(const Job& job, const Graph& graph) {
  const uint64_t bytes = graph.layout().float_count() * sizeof(float);
  return {.parameters = bytes,
          .gradients = bytes,
          .optimizer_state = bytes * OptimizerStateCount(job.optimizer)};
}

std::string SummaryText(const ModelReport& report) {
  const Graph& graph = report.graph;
  const TensorLayout& layout = graph.layout();
  const ModelCost cost = CountCost(graph);
  const ModelBytes bytes = CountBytes(report.job, graph);
  const auto forward = static_cast<double>(cost.forward_flops);
  const double both = forward + static_cast<double>(cost.backward_flops);
  std::string text = fmt::format("{} on {} (height x width x channels), {} classes\n\n",
                                 report.job.model, ShapeText(graph.input()), graph.class_count());
  text += LayerTable(graph);
  text += fmt::format("\n{} layers, {} parameters, {} statistics\n", graph.layers().size(),
                      Grouped(layout.parameter_count()), Grouped(StatisticCount(layout)));
  text += fmt::format("{}FLOP forward, {}FLOP forward and backward, of one sample; {}FLOP of {}\n",
                      Scaled(forward), Scaled(both), Scaled(both * report.batch), report.batch);
  text += fmt::format("\nbytes, micro-batches of {} samples:\n", report.batch);
  text += fmt::format("  parameters       {:>10}\n", BytesText(bytes.parameters));
  text += fmt::format("  gradients        {:>10}   of each micro-batch in work\n",
                      BytesText(bytes.gradients));
  text +=
      fmt::format("  optimizer state  {:>10}   on the servers\n", BytesText(bytes.optimizer_state));
  text += ActivationLines(report);
  return report.gpu == nullptr ? text : text + GpuLines(report.job, *report.gpu);
}

}  // namespace pando
