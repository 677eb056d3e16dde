#include "bench/training/training_points.h"

#include <fmt/format.h>

#include "bench/harness/scratch_folder.h"

namespace pando::bench {
namespace {

std::string Count(uint32_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

std::string ExchangeText(const TrainPlan& plan) {
  if (plan.strategy != "ps") return plan.strategy;
  return fmt::format("ps {}, {}, {}", plan.transport, Count(plan.servers, "server"),
                     Count(plan.replicas, "replica"));
}

Point TrainingPoint(const TrainPlan& plan, uint32_t workers) {
  const auto text = [](uint32_t value) { return fmt::format("{}", value); };
  Point point{.name = fmt::format("{}, {}, {}", plan.workload.model, Count(workers, "worker"),
                                  ExchangeText(plan)),
              .parameters = {{"model", plan.workload.model},
                             {"data", plan.workload.DataText()},
                             {"strategy", plan.strategy},
                             {"workers", text(workers)},
                             {"batch of a run", text(plan.global_batch)}},
              .is_oversubscribed = false,
              .measurements = {}};
  if (plan.strategy == "ps") {
    point.parameters.insert(point.parameters.end(), {{"transport", plan.transport},
                                                     {"servers", text(plan.servers)},
                                                     {"replicas", text(plan.replicas)}});
  }
  return point;
}

void AddThroughput(const Throughput& throughput, Point* point) {
  point->Add(kImagesPerS, "1/s", throughput.images_per_s);
  point->Add(kWait, "ms/step", throughput.exposed_sync_ms);
}

Result<Throughput> MeasureOnce(const std::string& program, const std::vector<TrainPlan>& plans,
                               const Window& window, ShutdownSignal& shutdown) {
  Result<ScratchFolder> folder = ScratchFolder::Create();
  if (!folder.ok()) return folder.status();
  TrainingRuns runs(program, folder->path(), shutdown);
  return MeasureThroughput(runs, plans, window);
}

}  // namespace pando::bench
