// Plans of cuDNN for the zoo's convolutions on GPUs that files describe, without a GPU. The first
// form prints a table in Markdown, the second the first engine of each problem.
//   cudnn_plans GPU.json...
//   cudnn_plans --engines PRECISION GPU.json MODEL...
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "tests/cudnn_real/real_plans.h"

namespace pando::cuda {
namespace {

// "4/15/201/0", as PrintTable says.
std::string MakeCell(const Gpu& gpu, const RealPrecision& precision) {
  size_t refused_count = 0, without_engine_count = 0;
  std::set<int64_t> engines;
  uint64_t workspace_bytes = 0;
  RealPlanner planner(gpu, precision, ConvWorkspaceBytes(gpu.memory_bytes));
  for (const ConvProblem& problem : ZooProblems(kModels, kBatches, precision.element)) {
    const Planning found = planner.Plan(problem);
    if (found.plan == nullptr) {
      ++without_engine_count;
      continue;
    }
    const ConvEngine& engine = found.plan->engine();
    // Forbidden by its notes; or it has no plan, or needs a larger workspace.
    refused_count += IsForbidden(found.proposed.front(), precision) || found.planned.size() > 1;
    engines.insert(engine.index);
    workspace_bytes = std::max(workspace_bytes, engine.workspace_bytes);
  }
  return fmt::format("{}/{}/{}/{}", refused_count, engines.size(), workspace_bytes >> 20,
                     without_engine_count);
}

void PrintTable(const std::vector<std::string>& gpu_paths) {
  fmt::print(
      "{} problems: first engine refused / distinct engines / largest workspace in MiB / without "
      "an "
      "engine\n\n| GPU |",
      ZooProblems(kModels, kBatches, ElementType::kFloat32).size());
  for (const RealPrecision& precision : kPrecisions) fmt::print(" {} |", precision.name);
  fmt::print("\n|---|---|---|---|---|\n");
  for (const std::string& path : gpu_paths) {
    const Gpu gpu = ReadGpu(path);
    fmt::print("| {} |", gpu.name);
    for (const RealPrecision& precision : kPrecisions) {
      fmt::print(" {} |", IsSupported(gpu, precision) ? MakeCell(gpu, precision) : "refused");
      std::fflush(stdout);
    }
    fmt::print("\n");
  }
}

// For a process that has another environment than its caller.
int PrintEngines(const std::string& precision_name, const Gpu& gpu,
                 const std::vector<std::string>& models) {
  const auto* precision = std::ranges::find(kPrecisions, precision_name, &RealPrecision::name);
  if (precision == std::end(kPrecisions)) return 1;
  const FirstEngines first =
      FindFirstEngines(gpu, *precision, ZooProblems(models, kBatches, precision->element));
  fmt::print("{}\n{}", first.run_time_compiled_count, first.text);
  return 0;
}

int Main(const std::vector<std::string>& arguments) {
  constexpr int kSkipped = 77;
  const std::string obstacle = FindObstacle();
  if (!obstacle.empty()) {
    fmt::print("skipped: {}\n", obstacle);
    return kSkipped;
  }
  if (arguments.size() > 3 && arguments[0] == "--engines")
    return PrintEngines(arguments[1], ReadGpu(arguments[2]),
                        {arguments.begin() + 3, arguments.end()});
  PrintTable(arguments);
  return 0;
}

}  // namespace
}  // namespace pando::cuda

int main(int argc, char** argv) { return pando::cuda::Main({argv + 1, argv + argc}); }
