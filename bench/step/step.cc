#include "bench/step/step.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/training/training_points.h"

namespace pando::bench {
namespace {

constexpr const char* kLocal = "local update";

// As many processes as there are workers, at once: the trainer, the batch and the threads of a
// worker, with the update made where the gradient is. Each has data of its own.
StepPoint LocalPoint(const Workload& workload, uint32_t workers) {
  StepPoint point;
  for (uint32_t rank = 0; rank < workers; ++rank) {
    point.plans.push_back({.workload = workload,
                           .strategy = "single",
                           .global_batch = workload.worker_batch,
                           .seed = rank + 1});
  }
  point.point = TrainingPoint(point.plans.front(), workers);
  point.point.name = fmt::format("{}, {} workers, {}", workload.model, workers, kLocal);
  return point;
}

StepPoint ExchangePoint(const TrainPlan& plan, const std::string& baseline) {
  return {.point = TrainingPoint(plan, plan.workers), .plans = {plan}, .baseline = baseline};
}

void AddPointsOf(const StepOptions& o, const Workload& workload, uint32_t workers,
                 std::vector<StepPoint>* points) {
  points->push_back(LocalPoint(workload, workers));
  const std::string baseline = points->back().point.name;
  TrainPlan plan{.workload = workload,
                 .strategy = "",
                 .workers = workers,
                 .global_batch = workers * workload.worker_batch};
  for (const std::string& strategy : o.strategies) {
    plan.strategy = strategy;
    const bool has_servers = strategy == "ps";
    // gloo has a transport of its own.
    const auto transports = has_servers ? o.transports : std::vector<std::string>{"tcp"};
    for (const std::string& transport : transports) {
      plan.transport = transport;
      for (const uint32_t replicas : has_servers ? o.replicas : std::vector<uint32_t>{1}) {
        plan.replicas = replicas;
        plan.servers = std::max(o.servers, replicas);
        points->push_back(ExchangePoint(plan, baseline));
      }
    }
  }
}

Parameters OptionsOf(const StepOptions& o) {
  std::vector<std::string> models;
  for (const Workload& w : o.workloads)
    models.push_back(
        fmt::format("{} on {}, batch {} a worker", w.model, w.DataText(), w.worker_batch));
  return {{"models", fmt::format("{}", fmt::join(models, "; "))},
          {"workers", fmt::format("{} of 1 thread", fmt::join(o.workers, " "))},
          {"strategies", fmt::format("{}", fmt::join(o.strategies, " "))},
          {"transports", fmt::format("{}", fmt::join(o.transports, " "))},
          {"replicas", fmt::format("{}", fmt::join(o.replicas, " "))},
          {"servers", fmt::format("{}", o.servers)},
          {"rounds", fmt::format("{}", o.rounds)},
          {"seconds", fmt::format("{} and {} steps at least, after {} steps", o.window.seconds,
                                  o.window.steps_min, o.window.warm_up_steps)}};
}

Status Measure(const StepOptions& o, const std::vector<TrainPlan>& plans, ShutdownSignal& shutdown,
               Point* point) {
  const Result<Throughput> throughput = MeasureOnce(o.program, plans, o.window, shutdown);
  if (!throughput.ok()) return throughput.status();
  AddThroughput(*throughput, point);
  return Status();
}

}  // namespace

std::vector<StepPoint> StepPoints(const StepOptions& options, uint32_t cores) {
  std::vector<StepPoint> points;
  for (const Workload& workload : options.workloads) {
    for (const uint32_t workers : options.workers) AddPointsOf(options, workload, workers, &points);
  }
  for (StepPoint& point : points) {
    uint32_t processes = 0;
    for (const TrainPlan& plan : point.plans) processes += plan.process_count();
    point.point.is_oversubscribed = processes > cores;
  }
  return points;
}

void AddExposed(const std::vector<StepPoint>& asked, std::vector<Point>* points) {
  for (const StepPoint& step_point : asked) {
    if (step_point.baseline.empty()) continue;
    const auto local = std::ranges::find(*points, step_point.baseline, &Point::name);
    const auto point = std::ranges::find(*points, step_point.point.name, &Point::name);
    if (local == points->end() || point == points->end()) continue;
    const std::vector<double> with = point->SamplesOf(kImagesPerS);
    const std::vector<double> without = local->SamplesOf(kImagesPerS);
    for (size_t round = 0; round < std::min(with.size(), without.size()); ++round)
      point->Add(kExposed, "%", 100.0 * (1.0 - with[round] / without[round]));
  }
}

Result<ResultSet> RunStep(const StepOptions& options, ShutdownSignal& shutdown,
                          const OnProgress& on_progress) {
  ResultSet set = NewResultSet("step", "A training step, and what it loses to the exchange",
                               OptionsOf(options));
  const std::vector<StepPoint> asked = StepPoints(options, set.machine.cores);
  std::vector<Variant> variants;
  for (const StepPoint& step_point : asked) {
    variants.push_back({step_point.point, [&options, &shutdown, &step_point](Point* point) {
                          return Measure(options, step_point.plans, shutdown, point);
                        }});
  }
  Result<std::vector<Point>> points =
      MeasureInTurns(std::move(variants), options.rounds, on_progress);
  if (!points.ok()) return points.status();
  set.points = *std::move(points);
  AddExposed(asked, &set.points);
  AddStepSummaries(options, asked, &set);
  return set;
}

}  // namespace pando::bench
