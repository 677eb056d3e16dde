// The tables and plots of step.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bench/harness/writers.h"
#include "bench/step/step.h"
#include "bench/training/training_points.h"

namespace pando::bench {
namespace {

// The most that a model may lose, with 2 workers, in percent.
const std::map<std::string, double> kAims{{"resnet18-cifar", 5.0}, {"mnist-cnn", 8.0}};
constexpr uint32_t kAimWorkers = 2;

std::string AimText(const StepPoint& asked) {
  const TrainPlan& plan = asked.plans.front();
  const auto aim = kAims.find(plan.workload.model);
  const bool has_aim = plan.strategy == "ps" && plan.workers == kAimWorkers && aim != kAims.end();
  return has_aim ? fmt::format("{:.0f}", aim->second) : "-";
}

std::vector<std::string> RowOf(const StepPoint& asked, const Point& point) {
  const bool is_local = asked.baseline.empty();
  const Statistics exposed = StatisticsOf(point.SamplesOf(kExposed));
  const auto percent = [&](double value) {
    return is_local ? std::string("-") : fmt::format("{:.1f}", value);
  };
  const TrainPlan& plan = asked.plans.front();
  return {plan.workload.model,
          fmt::format("{}", is_local ? asked.plans.size() : plan.workers),
          (is_local ? "local update" : ExchangeText(plan)) + (point.is_oversubscribed ? " *" : ""),
          NumberText(point.MedianOf(kImagesPerS)),
          percent(exposed.p50),
          percent(exposed.min),
          percent(exposed.max),
          AimText(asked),
          NumberText(point.MedianOf(kWait))};
}

// Over the number of workers, a line for each way.
Plot ExposedPlot(const std::string& model, const std::vector<StepPoint>& asked,
                 const ResultSet& set) {
  Plot plot{.name = "step-" + model,
            .title = fmt::format("Exposed synchronisation, {}", model),
            .y_label = "% of the step",
            .series = {},
            .x_axis = PlotAxis::kCount};
  for (const StepPoint& step_point : asked) {
    const TrainPlan& plan = step_point.plans.front();
    const Point* point = set.Find(step_point.point.name);
    if (plan.workload.model != model || step_point.baseline.empty() || point == nullptr) continue;
    const std::string name = ExchangeText(plan);
    auto series = std::ranges::find(plot.series, name, &Series::name);
    if (series == plot.series.end()) series = plot.series.insert(series, {name, {}});
    series->points.emplace_back(plan.workers, point->MedianOf(kExposed));
  }
  return plot;
}

}  // namespace

void AddStepSummaries(const StepOptions& options, const std::vector<StepPoint>& asked,
                      ResultSet* set) {
  Table table{.title = "Exposed synchronisation",
              .note =
                  "1 - images/s over those of as many workers at once that exchange nothing (local "
                  "update), of the same round; medians, and the extremes of the rounds. Waits are "
                  "what the workers themselves say. * more processes at work than cores.",
              .header = {"model", "workers", "exchange", "images/s", "exposed %", "min", "max",
                         "aim, at most", "wait ms/step"},
              .rows = {}};
  for (const StepPoint& step_point : asked) {
    const Point* point = set->Find(step_point.point.name);
    if (point != nullptr) table.rows.push_back(RowOf(step_point, *point));
  }
  set->tables.push_back(std::move(table));
  for (const Workload& workload : options.workloads)
    set->plots.push_back(ExposedPlot(workload.model, asked, *set));
}

}  // namespace pando::bench
