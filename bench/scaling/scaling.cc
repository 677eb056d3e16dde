#include "bench/scaling/scaling.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/training/training_points.h"

namespace pando::bench {
namespace {

ScalingPoint PointOf(const ScalingOptions& o, const Workload& workload, const std::string& mode,
                     const std::string& strategy, uint32_t workers) {
  ScalingPoint point;
  const uint32_t weak_batch = workers * workload.worker_batch;
  point.plan = {.workload = workload,
                .strategy = strategy,
                .workers = workers,
                .servers = o.servers,
                .replicas = 1,
                .transport = o.transport,
                .global_batch = mode == kWeak ? weak_batch : workload.worker_batch};
  point.mode = mode;
  point.point = TrainingPoint(point.plan, workers);
  point.point.name += ", " + mode;
  point.point.parameters.emplace_back("scaling", mode);
  return point;
}

Parameters OptionsOf(const ScalingOptions& o) {
  std::vector<std::string> models;
  for (const Workload& w : o.workloads)
    models.push_back(
        fmt::format("{} on {}, batch {} of one worker", w.model, w.DataText(), w.worker_batch));
  return {{"models", fmt::format("{}", fmt::join(models, "; "))},
          {"workers", fmt::format("{} of 1 thread", fmt::join(o.workers, " "))},
          {"scaling", fmt::format("{}", fmt::join(o.modes, " "))},
          {"strategies", fmt::format("{}", fmt::join(o.strategies, " "))},
          {"servers", fmt::format("{}, 1 replica, {}", o.servers, o.transport)},
          {"rounds", fmt::format("{}", o.rounds)},
          {"seconds", fmt::format("{} and {} steps at least, after {} steps", o.window.seconds,
                                  o.window.steps_min, o.window.warm_up_steps)}};
}

Status Measure(const ScalingOptions& o, const TrainPlan& plan, ShutdownSignal& shutdown,
               Point* point) {
  const Result<Throughput> throughput = MeasureOnce(o.program, {plan}, o.window, shutdown);
  if (!throughput.ok()) return throughput.status();
  AddThroughput(*throughput, point);
  return Status();
}

}  // namespace

std::vector<ScalingPoint> ScalingPoints(const ScalingOptions& o, uint32_t cores) {
  std::vector<ScalingPoint> points;
  for (const Workload& workload : o.workloads) {
    for (const std::string& mode : o.modes) {
      for (const std::string& strategy : o.strategies) {
        std::string first;
        for (const uint32_t workers : o.workers) {
          ScalingPoint point = PointOf(o, workload, mode, strategy, workers);
          if (first.empty()) first = point.point.name;
          point.first = first;
          point.point.is_oversubscribed = point.plan.process_count() > cores;
          points.push_back(std::move(point));
        }
      }
    }
  }
  return points;
}

void AddEfficiency(const std::vector<ScalingPoint>& asked, std::vector<Point>* points) {
  const auto find = [&](const std::string& name) {
    return std::ranges::find(*points, name, &Point::name);
  };
  const auto workers_of = [&](const std::string& name) {
    const auto at = std::ranges::find(asked, name, [](const auto& p) { return p.point.name; });
    return static_cast<double>(at->plan.workers);
  };
  for (const ScalingPoint& scaling : asked) {
    const auto point = find(scaling.point.name), first = find(scaling.first);
    if (point == points->end() || first == points->end()) continue;
    const std::vector<double> many = point->SamplesOf(kImagesPerS);
    const std::vector<double> one = first->SamplesOf(kImagesPerS);
    const double factor = workers_of(scaling.first) / workers_of(scaling.point.name);
    for (size_t round = 0; round < std::min(many.size(), one.size()); ++round)
      point->Add(kEfficiency, "1", factor * many[round] / one[round]);
  }
}

Result<ResultSet> RunScaling(const ScalingOptions& options, ShutdownSignal& shutdown,
                             const OnProgress& on_progress) {
  ResultSet set = NewResultSet("scaling", "More workers", OptionsOf(options));
  const std::vector<ScalingPoint> asked = ScalingPoints(options, set.machine.cores);
  std::vector<Variant> variants;
  for (const ScalingPoint& scaling : asked) {
    variants.push_back({scaling.point, [&options, &shutdown, &scaling](Point* point) {
                          return Measure(options, scaling.plan, shutdown, point);
                        }});
  }
  Result<std::vector<Point>> points =
      MeasureInTurns(std::move(variants), options.rounds, on_progress);
  if (!points.ok()) return points.status();
  set.points = *std::move(points);
  AddEfficiency(asked, &set.points);
  AddScalingSummaries(asked, &set);
  return set;
}

}  // namespace pando::bench
