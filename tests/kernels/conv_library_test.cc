// ConvLibrary over a planner of this test: which plan is kept and noted.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/cuda/conv_library.h"
#include "tests/contains.h"

namespace pando::cuda {
namespace {

struct Script {  // what the planner has, and what was run
  bool has_engine = true;
  std::vector<std::string> planned;
  std::vector<std::string> runs;
};

class ScriptedPlan : public ConvPlan {
 public:
  ScriptedPlan(const ConvProblem& problem, Script& script)
      : name_(ProblemText(problem)), script_(script) {}
  const ConvEngine& engine() const override { return engine_; }
  void Run(const ConvArrays&) override { script_.runs.push_back(name_); }

 private:
  const ConvEngine engine_{.index = 5, .knobs = {{1, 2}}};
  const std::string name_;
  Script& script_;
};

class ScriptedPlanner : public ConvPlanner {
 public:
  explicit ScriptedPlanner(Script& script) : script_(script) {}
  size_t version() const override { return 91900; }
  std::unique_ptr<ConvPlan> Plan(const ConvProblem& problem) override {
    script_.planned.push_back(ProblemText(problem));
    if (!script_.has_engine) return nullptr;
    return std::make_unique<ScriptedPlan>(problem, script_);
  }

 private:
  Script& script_;
};

struct LibraryFixture {
  explicit LibraryFixture(bool has_engine = true) : script{.has_engine = has_engine} {}

  Script script;
  std::vector<EngineNote> notes;
  ConvLibrary library{std::make_unique<ScriptedPlanner>(script),
                      [this](const EngineNote& note) { notes.push_back(note); }};
};

constexpr ConvProblem kForward{ConvPass::kForward, {.input = {28, 28, 1}, .out_channels = 10}, 32};
constexpr ConvProblem kGradient{
    ConvPass::kWeightGradient, {.input = {28, 28, 1}, .out_channels = 10}, 32};

TEST_CASE("a problem is planned once, noted once and computed each time") {
  LibraryFixture f;
  CHECK(f.library.Run(kForward, {}));
  CHECK(f.library.Run(kForward, {}));
  const std::string name = ProblemText(kForward);
  CHECK(f.script.planned == std::vector{name});
  CHECK(f.script.runs == std::vector{name, name});
  REQUIRE(f.notes.size() == 1);
  CHECK_FALSE(f.notes[0].is_fallback);
  CHECK(Contains(f.notes[0].text, "forward of 32 x 28 x 28 x 1 to 10 channels"));
  CHECK(Contains(f.notes[0].text, "engine 5 1=2, 0 bytes of workspace"));
}

TEST_CASE("problems that differ have different plans, also where only a gradient is added") {
  LibraryFixture f;
  ConvProblem other = kForward;
  other.sample_count = 31;
  const ConvProblem writing{ConvPass::kDataGradient, kForward.spec, 32};
  ConvProblem adding = writing;
  adding.adds = true;
  for (const ConvProblem& problem : {kForward, other, kGradient, writing, adding}) {
    CHECK(f.library.Run(problem, {}));
    CHECK(f.script.runs.back() == ProblemText(problem));
  }
  CHECK(f.script.planned.size() == 5);
}

TEST_CASE("a problem without an engine makes one note, a warning") {
  LibraryFixture f(false);
  CHECK_FALSE(f.library.Run(kForward, {}));
  CHECK_FALSE(f.library.Run(kForward, {}));
  REQUIRE(f.notes.size() == 1);
  CHECK(f.notes[0].is_fallback);
  CHECK(Contains(f.notes[0].text, "cuDNN has no engine that may be used"));
}

TEST_CASE("the workspace follows the GPU's memory, and not the last byte of it") {
  constexpr size_t kMiB = size_t{1} << 20;
  for (const auto& [total_mib, expected_mib] : std::vector<std::pair<size_t, size_t>>{
           {1024, 256}, {4096, 512}, {8192, 1024}, {15360, 1024}, {81559, 1024}, {143771, 1024}}) {
    CHECK(ConvWorkspaceBytes(total_mib * kMiB) == expected_mib * kMiB);
    CHECK(ConvWorkspaceBytes(total_mib * kMiB + 1) == expected_mib * kMiB);
  }
}

// How a GPU is refused where the variable has this value.
std::string RefusalWith(const char* variable, const char* value, const CudaOptions& options) {
  setenv(variable, value, 1);
  const Result<OpenedGpu> gpu = OpenCuda(options);
  unsetenv(variable);
  return gpu.ok() ? "" : gpu.status().message();
}

TEST_CASE("a GPU without fast bf16 refuses it and names fp16") {
  const char* const variable = "CUDA_ON_HOST_CAPABILITY";
  const std::string text = RefusalWith(variable, "75", {.element = ElementType::kBfloat16});
  CHECK(Contains(text, "is of compute capability 7.5, and bf16 needs 8.0: use --precision fp16"));
  CHECK(RefusalWith(variable, "75", {.element = ElementType::kFloat16}).empty());
  CHECK(RefusalWith(variable, "80", {.element = ElementType::kBfloat16}).empty());
}

TEST_CASE("problems that differ anywhere have different texts") {
  std::vector<std::string> texts{ProblemText(kForward), ProblemText(kGradient)};
  for (uint32_t Conv2dSpec::*member :
       {&Conv2dSpec::out_channels, &Conv2dSpec::kernel, &Conv2dSpec::stride, &Conv2dSpec::padding,
        &Conv2dSpec::groups}) {
    ConvProblem changed = kForward;
    ++(changed.spec.*member);
    texts.push_back(ProblemText(changed));
  }
  for (uint32_t SampleShape::*member :
       {&SampleShape::height, &SampleShape::width, &SampleShape::channels}) {
    ConvProblem changed = kForward;
    ++(changed.spec.input.*member);
    texts.push_back(ProblemText(changed));
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    for (size_t k = 0; k < i; ++k) CHECK(texts[i] != texts[k]);
  }
}

}  // namespace
}  // namespace pando::cuda
