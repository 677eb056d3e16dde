// The tables and plots of scaling.
#include <fmt/format.h>

#include <algorithm>

#include "bench/harness/writers.h"
#include "bench/scaling/scaling.h"
#include "bench/training/training_points.h"

namespace pando::bench {
namespace {

std::vector<std::string> RowOf(const ScalingPoint& asked, const Point& point) {
  const Statistics efficiency = StatisticsOf(point.SamplesOf(kEfficiency));
  return {asked.plan.workload.model,
          asked.mode,
          ExchangeText(asked.plan),
          fmt::format("{}{}", asked.plan.workers, point.is_oversubscribed ? " *" : ""),
          fmt::format("{}", asked.plan.global_batch),
          NumberText(point.MedianOf(kImagesPerS)),
          fmt::format("{:.2f}", efficiency.p50),
          fmt::format("{:.2f}", efficiency.min),
          fmt::format("{:.2f}", efficiency.max)};
}

// A plot for each model, a line for each curve.
void AddToPlot(const ScalingPoint& asked, const Point& point, std::vector<Plot>* plots) {
  const std::string name = "scaling-" + asked.plan.workload.model;
  auto plot = std::ranges::find(*plots, name, &Plot::name);
  if (plot == plots->end()) {
    plot = plots->insert(plot, {.name = name,
                                .title = "Efficiency by workers, " + asked.plan.workload.model,
                                .y_label = "images/s of a worker over the first's",
                                .series = {},
                                .x_axis = PlotAxis::kCount});
  }
  const std::string line = fmt::format("{}, {}", asked.mode, ExchangeText(asked.plan));
  auto series = std::ranges::find(plot->series, line, &Series::name);
  if (series == plot->series.end()) series = plot->series.insert(series, {line, {}});
  series->points.emplace_back(asked.plan.workers, point.MedianOf(kEfficiency));
}

}  // namespace

void AddScalingSummaries(const std::vector<ScalingPoint>& asked, ResultSet* set) {
  Table table{.title = "Efficiency against the fewest workers",
              .note =
                  "Efficiency: images/s of a worker over those of a worker where there are fewest, "
                  "of the same round; medians, and the extremes of the rounds. weak: each worker "
                  "has the same batch; strong: they share it. * more processes at work than cores: "
                  "they share those, and no more workers can bring more images.",
              .header = {"model", "scaling", "exchange", "workers", "global batch", "images/s",
                         "efficiency", "min", "max"},
              .rows = {}};
  for (const ScalingPoint& scaling : asked) {
    const Point* point = set->Find(scaling.point.name);
    if (point == nullptr) continue;
    table.rows.push_back(RowOf(scaling, *point));
    AddToPlot(scaling, *point, &set->plots);
  }
  set->tables.push_back(std::move(table));
}

}  // namespace pando::bench
