#include "cli/model_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/text.h"
#include "models/zoo.h"
#include "optim/optimizer.h"

namespace pando {
namespace {

// Returns for example "11,689,512".
std::string Grouped(uint64_t number) {
  std::string digits = std::to_string(number);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

// Returns for example "3.64 G"; a unit follows.
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

// Returns the names of a layer's inputs if they are not simply the layer before.
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

// ---- the memory of one step over its events, as CSV and as a picture ----------------------------

namespace {

// A worker's series: parameters, gradients, the plan's uses. The servers' optimizer state follows.
constexpr size_t kWorkerSeriesCount = 2 + kBufferUseCount;
constexpr size_t kSeriesCount = kWorkerSeriesCount + 1;
using Row = std::array<uint64_t, kSeriesCount>;

std::array<const char*, kSeriesCount> SeriesNames() {
  std::array<const char*, kSeriesCount> names{"parameters", "gradients"};
  for (size_t use = 0; use < kBufferUseCount; ++use) {
    names[2 + use] = EnumName(static_cast<BufferUse>(use));
  }
  names[kWorkerSeriesCount] = "servers_optimizer_state";
  return names;
}

std::vector<Row> MakeRows(const ModelBytes& bytes, const MemoryPlan& plan) {
  std::vector<Row> rows;
  for (const BytesByUse& live : plan.LiveBytes()) {
    Row& row = rows.emplace_back(Row{bytes.parameters, bytes.gradients});
    std::copy(live.begin(), live.end(), row.begin() + 2);
    row[kWorkerSeriesCount] = bytes.optimizer_state;
  }
  return rows;
}

uint64_t WorkerTotal(const Row& row) {
  return std::accumulate(row.begin(), row.begin() + kWorkerSeriesCount, uint64_t{0});
}

const char* PhaseName(const MemoryEvent& event) {
  if (event.is_again) return "again";
  return event.is_backward ? "backward" : "forward";
}

// The picture's dimensions, in its own units.
constexpr double kWidth = 1000, kHeight = 480;
constexpr double kLeft = 90, kTop = 50, kRight = 200, kBottom = 50;
constexpr double kPlotWidth = kWidth - kLeft - kRight, kPlotHeight = kHeight - kTop - kBottom;
constexpr const char* kColours[kSeriesCount] = {"#4e79a7", "#a0cbe8", "#59a14f", "#8cd17d",
                                                "#f28e2b", "#bab0ac", "#b6992d"};

class Picture {
 public:
  Picture(const std::string& title, std::vector<Row> rows) : rows_(std::move(rows)) {
    for (const Row& row : rows_) {
      peak_ = std::max(peak_, WorkerTotal(row) + row[kWorkerSeriesCount]);
    }
    svg_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" "
        "font-family=\"sans-serif\" "
        "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        kWidth, kHeight);
    Text(kLeft, 24, "start", title);
  }

  std::string Draw(const MemoryPlan& plan) {
    for (size_t series = kSeriesCount; series-- > 0;) Area(series);
    for (int tick = 0; tick <= 4; ++tick) {
      const uint64_t bytes = peak_ * static_cast<uint64_t>(tick) / 4;
      Text(kLeft - 8, Y(bytes) + 4, "end", BytesText(bytes));
      svg_ +=
          fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ccc\"/>\n",
                      kLeft, kLeft + kPlotWidth, Y(bytes), Y(bytes));
    }
    const auto first_backward =
        std::find_if(plan.events.begin(), plan.events.end(),
                     [](const MemoryEvent& event) { return event.is_backward; });
    const double middle = X(static_cast<size_t>(first_backward - plan.events.begin()));
    Text((kLeft + middle) / 2, kHeight - 20, "middle", "forward");
    Text((middle + kLeft + kPlotWidth) / 2, kHeight - 20, "middle", "backward");
    Legend();
    return svg_ + "</svg>\n";
  }

 private:
  double X(size_t event) const {
    return kLeft + kPlotWidth * static_cast<double>(event) / static_cast<double>(rows_.size());
  }
  double Y(uint64_t bytes) const {
    return kTop + kPlotHeight * (1 - static_cast<double>(bytes) /
                                         static_cast<double>(std::max<uint64_t>(peak_, 1)));
  }

  // Draws the sum of the series up to this one, over the larger sums drawn before.
  void Area(size_t series) {
    std::string points = fmt::format("{:.1f},{:.1f}", kLeft, Y(0));
    for (size_t event = 0; event < rows_.size(); ++event) {
      uint64_t top = 0;
      for (size_t s = 0; s <= series; ++s) top += rows_[event][s];
      points += fmt::format(" {:.1f},{:.1f} {:.1f},{:.1f}", X(event), Y(top), X(event + 1), Y(top));
    }
    points += fmt::format(" {:.1f},{:.1f}", X(rows_.size()), Y(0));
    svg_ += fmt::format("<polygon fill=\"{}\" points=\"{}\"/>\n", kColours[series], points);
  }

  void Legend() {
    const auto names = SeriesNames();
    const double x = kLeft + kPlotWidth + 12;
    for (size_t series = 0; series < kSeriesCount; ++series) {
      const double y = kTop + 20.0 * static_cast<double>(kSeriesCount - 1 - series);
      svg_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", x,
                          y, kColours[series]);
      Text(x + 18, y + 10, "start", names[series]);
    }
  }

  void Text(double x, double y, const char* anchor, std::string_view text) {
    svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">", x, y, anchor);
    for (char c : text) {
      if (c == '<' || c == '>' || c == '&') {
        svg_ += c == '<' ? "&lt;" : c == '>' ? "&gt;" : "&amp;";
      } else {
        svg_ += c;
      }
    }
    svg_ += "</text>\n";
  }

  std::vector<Row> rows_;
  uint64_t peak_ = 0;
  std::string svg_;
};

}  // namespace

std::string TimelineCsv(const ModelBytes& bytes, const MemoryPlan& plan) {
  std::string text = "event,phase,layers";
  for (const char* name : SeriesNames()) text += fmt::format(",{}_bytes", name);
  text += ",worker_total_bytes\n";
  const std::vector<Row> rows = MakeRows(bytes, plan);
  for (size_t event = 0; event < plan.events.size(); ++event) {
    const Row& row = rows[event];
    text +=
        fmt::format("{},{},{}", event, PhaseName(plan.events[event]), plan.events[event].layers);
    for (uint64_t value : row) text += fmt::format(",{}", value);
    text += fmt::format(",{}\n", WorkerTotal(row));
  }
  return text;
}

std::string TimelineSvg(const std::string& title, const ModelBytes& bytes, const MemoryPlan& plan) {
  return Picture(title, MakeRows(bytes, plan)).Draw(plan);
}

}  // namespace pando
