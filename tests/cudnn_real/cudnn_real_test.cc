// Tests of kernels/cuda/cudnn.cc with the real cuDNN, on GPUs that files describe. Exits with 77
// where there is no such cuDNN.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/cudnn_real/real_plans.h"

namespace pando::cuda {
namespace {

Gpu FindGpu(const std::string& name) {
  const char* folder = std::getenv("PANDO_GOLDEN_DIR");
  REQUIRE(folder != nullptr);
  return ReadGpu(fmt::format("{}/devices/{}.json", folder, name));
}

// Counts broken promises, and keeps the text of the first ones.
class Faults {
 public:
  void Expect(bool is_kept, const std::string& promise, const ConvProblem& problem) {
    if (is_kept) return;
    if (++count_ <= kShownMax)
      shown_ += fmt::format("\n  {}: not {}", ProblemText(problem), promise);
  }
  std::string Text() const {
    return count_ == 0 ? "" : fmt::format("{} faults, among them{}", count_, shown_);
  }

 private:
  static constexpr size_t kShownMax = 5;
  size_t count_ = 0;
  std::string shown_;
};

bool HasForbidden(const std::vector<RealPlan>& planned, const RealPrecision& precision) {
  return std::ranges::any_of(
      planned, [&](const RealPlan& plan) { return IsForbidden(plan.engine, precision); });
}

// The rule of P39: cuDNN's first proposal that is permitted is tried first.
bool TriesFirstPermitted(const Planning& found, const RealPrecision& precision) {
  const auto permitted = std::ranges::find_if(
      found.proposed, [&](const RealEngine& engine) { return !IsForbidden(engine, precision); });
  return permitted != found.proposed.end() && !found.planned.empty() &&
         found.planned.front().engine.index == permitted->index;
}

// Whether the plan is the last one that cuDNN made, as cuDNN itself has described it.
bool IsRecorded(const Planning& found) {
  const RealPlan& last = found.planned.back();
  const ConvEngine& engine = found.plan->engine();
  return last.is_made && last.engine.index == engine.index &&
         last.workspace_bytes == static_cast<int64_t>(engine.workspace_bytes);
}

void CheckProblem(RealPlanner& planner, const RealPrecision& precision, size_t workspace_bytes,
                  const ConvProblem& problem, Faults* faults) {
  const Planning found = planner.Plan(problem);
  faults->Expect(TriesFirstPermitted(found, precision), "the first permitted engine", problem);
  faults->Expect(!HasForbidden(found.planned, precision), "without forbidden notes", problem);
  faults->Expect(found.plan != nullptr, "an engine", problem);
  if (found.plan == nullptr) return;
  faults->Expect(IsRecorded(found), "described by cuDNN", problem);
  faults->Expect(found.plan->engine().workspace_bytes <= workspace_bytes, "within the workspace",
                 problem);
}

void CheckPlans(const Gpu& gpu, const RealPrecision& precision,
                const std::vector<ConvProblem>& problems) {
  INFO(gpu.name);
  INFO(std::string(precision.name));
  const size_t workspace_bytes = ConvWorkspaceBytes(gpu.memory_bytes);
  RealPlanner planner(gpu, precision, workspace_bytes);
  Faults faults;
  for (const ConvProblem& problem : problems)
    CheckProblem(planner, precision, workspace_bytes, problem, &faults);
  CHECK(faults.Text() == "");
}

void CheckZoo(const std::string& gpu_name) {
  const Gpu gpu = FindGpu(gpu_name);
  for (const RealPrecision& precision : kPrecisions) {
    if (!IsSupported(gpu, precision)) continue;  // the T4 in bf16
    std::vector<ConvProblem> problems = ZooProblems(kModels, kBatches, precision.element);
    std::ranges::move(OtherProblems(precision.element), std::back_inserter(problems));
    CheckPlans(gpu, precision, problems);
  }
}

std::vector<ConvProblem> ResNet50Problems(uint32_t batch, const RealPrecision& precision) {
  return ZooProblems(std::array{std::string("resnet50")}, std::array{batch}, precision.element);
}

// The first engines' workspaces for the first layer, all its passes together.
uint64_t FirstLayerWorkspaceBytes(const Gpu& gpu, const RealPrecision& precision,
                                  uint32_t channels) {
  RealPlanner planner(gpu, precision, ConvWorkspaceBytes(gpu.memory_bytes));
  uint64_t sum = 0;
  for (ConvProblem problem : ResNet50Problems(256, precision)) {
    if (problem.spec.kernel != 7) continue;
    problem.spec.input.channels = channels;
    const std::unique_ptr<ConvPlan> plan = planner.Plan(problem).plan;
    REQUIRE(plan != nullptr);
    sum += plan->engine().workspace_bytes;
  }
  return sum;
}

// With 3 channels cuDNN copies the pictures forward and backward. An array with 8 has 196 MiB.
TEST_CASE("the first layer's engines copy no pictures in bf16") {
  constexpr uint64_t kSmall = uint64_t{8} << 20, kCopy = uint64_t{196} << 20;
  REQUIRE(StoredChannels({DeviceKind::kCuda, ElementType::kBfloat16}, 3) == 8);
  for (const char* name : {"h100", "a100", "rtx4090"}) {
    CAPTURE(name);
    CHECK(FirstLayerWorkspaceBytes(FindGpu(name), kBf16, 3) >= 2 * kCopy);
    CHECK(FirstLayerWorkspaceBytes(FindGpu(name), kBf16, 8) < kSmall);
  }
}

TEST_CASE("H100: engines in bf16 and strict fp32 exist and are permitted") {
  const std::array models{std::string("mnist-cnn"), std::string("resnet18-cifar")};
  for (const RealPrecision& precision : {kBf16, kFp32})
    CheckPlans(FindGpu("h100"), precision, ZooProblems(models, std::array{32u}, precision.element));
}

TEST_CASE("H100: a data gradient that adds has the first engine of one that writes") {
  const Gpu gpu = FindGpu("h100");
  size_t adding_count = 0;
  for (const RealPrecision& precision : {kBf16, kFp32}) {
    RealPlanner planner(gpu, precision, ConvWorkspaceBytes(gpu.memory_bytes));
    for (ConvProblem problem : ResNet50Problems(256, precision)) {
      if (!problem.adds) continue;
      ++adding_count;
      CAPTURE(ProblemText(problem));
      const std::unique_ptr<ConvPlan> adding = planner.Plan(problem).plan;
      problem.adds = false;
      const std::unique_ptr<ConvPlan> writing = planner.Plan(problem).plan;
      REQUIRE(adding != nullptr);
      REQUIRE(writing != nullptr);
      CHECK(adding->engine() == writing->engine());
    }
  }
  CHECK(adding_count > 0);
}

// Engine 0 needs no workspace and is the slowest one. It computes 2 of 68 problems with 1 GiB,
// and would compute 13 with 256 MiB.
TEST_CASE("the workspace is large enough for the engines of ResNet-50 in strict fp32") {
  constexpr size_t kSlowMax = 2;
  const Gpu gpu = FindGpu("h100");
  RealPlanner planner(gpu, kFp32, ConvWorkspaceBytes(gpu.memory_bytes));
  size_t slow_count = 0;
  for (const ConvProblem& problem : ResNet50Problems(256, kFp32)) {
    const std::unique_ptr<ConvPlan> plan = planner.Plan(problem).plan;
    slow_count += plan == nullptr || plan->engine().index == 0;
  }
  CHECK(slow_count <= kSlowMax);
}

// This is why OpenCuda refuses bf16 there. None of 68 problems has one.
TEST_CASE("cuDNN has no bf16 engine on a T4 for most of ResNet-50") {
  const Gpu gpu = FindGpu("t4");
  REQUIRE_FALSE(IsSupported(gpu, kBf16));
  RealPlanner planner(gpu, kBf16, ConvWorkspaceBytes(gpu.memory_bytes));
  const std::vector<ConvProblem> problems = ResNet50Problems(32, kBf16);
  const auto without = std::ranges::count_if(
      problems, [&](const ConvProblem& problem) { return planner.Plan(problem).plan == nullptr; });
  CHECK(static_cast<size_t>(without) > problems.size() / 2);
}

// Returns cudnn_plans' output with this library path.
FirstEngines RunPlans(const std::string& library_path, const RealPrecision& precision,
                      const std::string& gpu_name, const std::string& models) {
  const std::string command =
      fmt::format("LD_LIBRARY_PATH='{}' '{}' --engines {} '{}/devices/{}.json' {}", library_path,
                  std::getenv("PANDO_CUDNN_PLANS"), precision.name, std::getenv("PANDO_GOLDEN_DIR"),
                  gpu_name, models);
  FILE* pipe = popen(command.c_str(), "r");  // NOLINT(cert-env33-c): our own words
  REQUIRE(pipe != nullptr);
  std::string output;
  std::array<char, 4096> part{};
  while (const size_t size = std::fread(part.data(), 1, part.size(), pipe))
    output.append(part.data(), size);
  REQUIRE(pclose(pipe) == 0);
  const size_t end = output.find('\n');
  REQUIRE(end != std::string::npos);
  return {output.substr(end + 1), std::stoul(output.substr(0, end))};
}

// Workers of one kind may differ in libnvrtc, which their kind does not name (P39).
void CheckWithoutNvrtc(const std::string& gpu_name, const RealPrecision& precision,
                       const std::string& models) {
  INFO(gpu_name);
  INFO(std::string(precision.name));
  const std::string path = std::getenv("LD_LIBRARY_PATH");
  const FirstEngines with = RunPlans(path, precision, gpu_name, models);
  const FirstEngines without =
      RunPlans(std::getenv("PANDO_WITHOUT_NVRTC") + (":" + path), precision, gpu_name, models);
  // Otherwise cuDNN has not found the stand-in for the driver. For the T4 it has none in floats.
  if (gpu_name != "t4") CHECK(with.run_time_compiled_count > 0);
  CHECK(without.run_time_compiled_count == 0);
  CHECK(with.text.find(": engine ") != std::string::npos);
  CHECK(with.text == without.text);
}

TEST_CASE("H100: the first engines do not depend on libnvrtc") {
  CheckWithoutNvrtc("h100", kBf16, "mnist-cnn");
}

TEST_CASE("H100: all models" * doctest::test_suite("thorough 1")) { CheckZoo("h100"); }
TEST_CASE("A100: all models" * doctest::test_suite("thorough 2")) { CheckZoo("a100"); }
TEST_CASE("RTX 4090: all models" * doctest::test_suite("thorough 3")) { CheckZoo("rtx4090"); }
TEST_CASE("T4: all models" * doctest::test_suite("thorough 4")) { CheckZoo("t4"); }

TEST_CASE("no GPU's first engines depend on libnvrtc" * doctest::test_suite("thorough 5")) {
  for (const char* gpu_name : {"h100", "a100", "rtx4090", "t4"}) {
    for (const RealPrecision& precision : kPrecisions) {
      if (IsSupported(FindGpu(gpu_name), precision))
        CheckWithoutNvrtc(gpu_name, precision, "resnet18-cifar mnist-cnn");
    }
  }
}

}  // namespace
}  // namespace pando::cuda

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  const std::string obstacle = pando::cuda::FindObstacle();
  if (!obstacle.empty()) {
    std::printf("skipped: %s\n", obstacle.c_str());
    return kSkipped;
  }
  return doctest::Context(argc, argv).run();
}
