// kernels/cuda/cudnn.cc over a cuDNN that needs no GPU (fake_cudnn.cc), found by LD_LIBRARY_PATH.
#include <cudnn.h>
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/conv_library.h"
#include "kernels/cuda/runtime.h"
#include "tests/kernels/fake_cudnn.h"

// In place of CUDA's runtime, which is not linked.
extern "C" {
cudaError_t cudaMalloc(void** memory, size_t size_bytes) {
  *memory = std::malloc(size_bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) { return "an error of CUDA"; }
}

// In place of kernels/ops.cc: the library's stand-in does not look at shapes.
pando::SampleShape pando::Conv2dSpec::conv_output() const { return input; }

namespace pando::cuda {

void CudaFailed(const char* call, const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, what);
  std::abort();
}

namespace {

using Failure = FakeCudnn::Failure;

FakeCudnn& Fake() {
  void* library = dlopen("libcudnn.so.9", RTLD_NOW);
  REQUIRE_MESSAGE(library != nullptr, dlerror());
  const auto get = reinterpret_cast<FakeCudnn* (*)()>(dlsym(library, "PandoFakeCudnn"));
  const bool is_fake = get != nullptr;
  REQUIRE_MESSAGE(is_fake, "this is not the fake cuDNN");
  return *get();
}

constexpr ConvSetting kSetting{.workspace_bytes = size_t{1} << 30, .cublas_major = 13};

struct PlannerFixture {
  explicit PlannerFixture(const CudaOptions& options = {}) {
    fake = {};
    fake.proposals = {{CUDNN_HEUR_MODE_B, {{7, {{2, 1}, {24, 3}}}, {7, {{2, 2}}}}},
                      {CUDNN_HEUR_MODE_A, {{9, {}}, {7, {{2, 2}}}}},
                      {CUDNN_HEUR_MODE_FALLBACK, {{0, {}}}}};
    Result<std::unique_ptr<ConvPlanner>> opened = OpenConvPlanner(options, kSetting, nullptr);
    REQUIRE_MESSAGE(opened.ok(), opened.status().message());
    planner = *std::move(opened);
  }
  // All engines that may be used, in the planner's order.
  std::vector<FakeEngine> Candidates() {
    fake.without_plan = {0, 7, 9};
    fake.planned.clear();
    CHECK(planner->Plan(problem) == nullptr);
    return fake.planned;
  }

  FakeCudnn& fake = Fake();
  std::unique_ptr<ConvPlanner> planner;
  const ConvProblem problem{ConvPass::kForward, {.input = {28, 28, 1}, .out_channels = 10}, 32};
};

const FakeEngine kFirst{7, {{2, 1}, {24, 3}}}, kSecond{7, {{2, 2}}}, kThird{9, {}}, kLast{0, {}};
using Engines = std::vector<FakeEngine>;

TEST_CASE("a part of cuDNN that cannot be loaded is named" * doctest::test_suite("broken")) {
  const Result<std::unique_ptr<ConvPlanner>> opened = OpenConvPlanner({}, kSetting, nullptr);
  REQUIRE_FALSE(opened.ok());
  CHECK(opened.status().message().starts_with("cannot load libcudnn_heuristic.so.9: "));
  CHECK(opened.status().message().ends_with(
      "file too short. Install all libraries of one version of cuDNN; or use --device cpu"));
}

TEST_CASE("a cuBLASLt of another CUDA than cuDNN's is named before it ends the process") {
  const auto opened = OpenConvPlanner({}, {.workspace_bytes = 1, .cublas_major = 12}, nullptr);
  REQUIRE_FALSE(opened.ok());
  for (const char* part : {"is built for CUDA 13", "is of CUDA 12", "install libcublasLt.so.13"})
    CHECK(opened.status().message().find(part) != std::string::npos);
}

TEST_CASE("engines are tried in the order of cuDNN's heuristics, until one can be planned") {
  PlannerFixture f;
  CHECK(f.planner->version() == 91900);
  const std::unique_ptr<ConvPlan> plan = f.planner->Plan(f.problem);
  REQUIRE(plan != nullptr);
  CHECK(f.fake.planned == Engines{kFirst});
  CHECK(plan->engine().index == kFirst.index);
  CHECK(plan->engine().knobs == kFirst.knobs);
  plan->Run({});
  CHECK(f.fake.executed == Engines{kFirst});
  CHECK(f.Candidates() == Engines{kFirst, kSecond, kThird, kSecond, kLast});
}

TEST_CASE("a heuristic that fails at any point has no engine, and the others have theirs") {
  for (const Failure failure : {Failure::kFinalize, Failure::kCount, Failure::kResults}) {
    PlannerFixture f;
    f.fake.failures[CUDNN_HEUR_MODE_B] = failure;
    CHECK(f.Candidates() == Engines{kThird, kSecond, kLast});
    f.fake.failures[CUDNN_HEUR_MODE_A] = failure;
    CHECK(f.Candidates() == Engines{kLast});
    f.fake.failures[CUDNN_HEUR_MODE_FALLBACK] = failure;
    CHECK(f.Candidates().empty());
  }
}

TEST_CASE("a data gradient that adds is asked for with beta 1") {
  PlannerFixture f;
  ConvProblem gradient{.pass = ConvPass::kDataGradient, .spec = f.problem.spec};
  f.planner->Plan(gradient);
  gradient.adds = true;
  f.planner->Plan(gradient);
  CHECK(f.fake.betas == std::vector<float>{0, 1});
}

TEST_CASE("engines without a plan, or with a workspace that is too large, are not used") {
  PlannerFixture f;
  f.fake.without_plan = {7};
  f.fake.workspace_bytes = {{9, kSetting.workspace_bytes + 1}, {0, 4096}};
  const std::unique_ptr<ConvPlan> plan = f.planner->Plan(f.problem);
  REQUIRE(plan != nullptr);
  CHECK(plan->engine() == ConvEngine{.index = 0, .knobs = {}, .workspace_bytes = 4096});
}

TEST_CASE("engines whose bits differ between runs, or that are less precise, are not used") {
  PlannerFixture f;
  f.fake.notes = {{7, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}},
                  {9, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}}};
  CHECK(f.Candidates() == Engines{kLast});
  PlannerFixture allowed({.allow_tf32 = true, .allow_nondeterministic = true});
  allowed.fake.notes = {{7, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}},
                        {9, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}}};
  CHECK(allowed.Candidates().size() == 5);
}

TEST_CASE("engines that add in half precision are not used in any precision") {
  for (const ElementType element :
       {ElementType::kFloat32, ElementType::kBfloat16, ElementType::kFloat16}) {
    PlannerFixture f({.element = element, .allow_tf32 = true});
    f.fake.notes[7] = {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION};
    CHECK(f.Candidates() == Engines{kThird, kLast});
  }
}

// Where libnvrtc is missing, cuDNN does not propose them: two workers of a kind would differ.
TEST_CASE("engines that are compiled when they run are not used") {
  PlannerFixture f;
  f.fake.behavior_notes[7] = {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION};
  f.fake.behavior_notes[9] = {CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API};
  CHECK(f.Candidates() == Engines{kThird, kLast});
}

TEST_CASE("an engine that cannot tell its notes is passed over") {
  PlannerFixture f;
  f.fake.without_notes = {7};
  CHECK(f.Candidates() == Engines{kThird, kLast});
}

}  // namespace
}  // namespace pando::cuda
