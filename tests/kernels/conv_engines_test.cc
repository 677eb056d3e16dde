// ConvLibrary over a planner and a clock of this test: which engine is chosen, kept and noted
// (P39).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/cuda/libraries.h"
#include "kernels/cuda/runtime.h"
#include "tests/contains.h"

namespace pando::cuda {
namespace {

struct Script {                  // what the planner has, and what was run
  std::vector<double> times_ms;  // of engines 0, 1, ...; < 0: it cannot run
  std::vector<int64_t> runs;     // engines
  std::vector<size_t> proposed;  // how many were asked for
  double now_ms = 0;
};

class ScriptedPlan : public ConvPlan {
 public:
  ScriptedPlan(ConvEngine engine, Script& script) : ConvPlan(std::move(engine)), script_(script) {}
  void Run(const ConvArrays&) override {
    script_.runs.push_back(engine().index);
    script_.now_ms += time_ms();
  }
  bool TryRun(const ConvArrays& arrays) override {
    if (time_ms() < 0) return false;
    Run(arrays);
    return true;
  }

 private:
  double time_ms() const { return script_.times_ms.at(static_cast<size_t>(engine().index)); }

  Script& script_;
};

class ScriptedPlanner : public ConvPlanner {
 public:
  explicit ScriptedPlanner(Script& script) : script_(script) {}
  size_t version() const override { return 91900; }
  std::vector<std::unique_ptr<ConvPlan>> Propose(const ConvProblem& problem,
                                                 size_t count_max) override {
    script_.proposed.push_back(count_max);
    std::vector<std::unique_ptr<ConvPlan>> plans;
    for (size_t i = 0; i < script_.times_ms.size() && i < count_max; ++i)
      plans.push_back(Make(problem, {.index = static_cast<int64_t>(i), .knobs = {{1, 2}}}));
    return plans;
  }
  std::unique_ptr<ConvPlan> Make(const ConvProblem&, const ConvEngine& engine) override {
    return std::make_unique<ScriptedPlan>(engine, script_);
  }

 private:
  Script& script_;
};

struct LibraryFixture {
  explicit LibraryFixture(std::vector<double> times_ms) : script{.times_ms = std::move(times_ms)} {}
  // The engine that computes the problem; -1: none.
  int64_t Run(const ConvProblem& problem) {
    script.runs.clear();
    if (!library.Run(problem, {})) return -1;
    CHECK(script.runs.size() == 1);
    return script.runs.back();
  }

  Script script;
  std::vector<EngineNote> notes;
  Stream stream;
  ConvLibrary library{std::make_unique<ScriptedPlanner>(script), stream.get(),
                      [this](const EngineNote& note) { notes.push_back(note); },
                      [this] { return script.now_ms; }};
};

constexpr ConvProblem kForward{ConvPass::kForward, {.input = {28, 28, 1}, .out_channels = 10}, 32};
constexpr ConvProblem kGradient{
    ConvPass::kWeightGradient, {.input = {28, 28, 1}, .out_channels = 10}, 32};

TEST_CASE("without measuring the first proposal computes, and no other is asked for") {
  LibraryFixture f({5, 0});
  CHECK(f.Run(kForward) == 0);
  CHECK(f.Run(kForward) == 0);
  CHECK(f.script.proposed == std::vector<size_t>{1});
  REQUIRE(f.notes.size() == 1);
  CHECK_FALSE(f.notes[0].is_fallback);
  CHECK(Contains(f.notes[0].text, "forward of 32 x 28 x 28 x 1 to 10 channels"));
  CHECK(Contains(f.notes[0].text, "engine 0 1=2, 0 bytes of workspace, first of cuDNN's"));
}

TEST_CASE("measured engines are the fastest of each problem, and no others are used afterwards") {
  LibraryFixture f({0.6, 0.2, 2.0, -1});
  f.library.StartMeasuring();
  REQUIRE(f.library.Run(kForward, {}));
  CHECK(std::ranges::count(f.script.runs, 2) == 2);  // hopeless
  CHECK(std::ranges::count(f.script.runs, 3) == 0);
  REQUIRE(f.library.Run(kForward, {}));  // measured once
  CHECK(f.script.proposed.size() == 1);
  REQUIRE(f.library.Run(kGradient, {}));
  const EngineChoice measured = f.library.TakeMeasured();
  REQUIRE(measured.size() == 2);
  const ConvEngine& engine = measured.at(ProblemText(kForward));
  CHECK(engine.index == 1);
  CHECK(engine.knobs == std::map<int64_t, int64_t>{{1, 2}});
  CHECK(Contains(engine.reason, "measured "));
  CHECK(Contains(engine.reason, "number 2 of 3 that cuDNN proposes"));
  CHECK(f.notes.empty());  // it has decided nothing yet
  CHECK(f.Run(kForward) == 0);
  f.library.Use(measured);
  f.notes.clear();
  CHECK(f.Run(kForward) == 1);
  CHECK(f.Run(kForward) == 1);
  REQUIRE(f.notes.size() == 1);
  CHECK(Contains(f.notes[0].text, engine.reason));
}

TEST_CASE("engines that were decided elsewhere are used, and other problems follow the rule") {
  LibraryFixture f({0, 0, 0});
  f.library.Use({{ProblemText(kForward), {.index = 2, .reason = "decided"}}});
  CHECK(f.Run(kForward) == 2);
  CHECK(f.Run(kGradient) == 0);
  ConvProblem other = kForward;
  other.sample_count = 31;
  CHECK(f.Run(other) == 0);
  f.library.Use({});
  CHECK(f.Run(kForward) == 0);
}

TEST_CASE("a gradient that adds is another problem than one that does not") {
  LibraryFixture f({5, 0});
  ConvProblem gradient{ConvPass::kDataGradient, kForward.spec, 32};
  CHECK(f.Run(gradient) == 0);
  gradient.adds = true;
  f.library.Use({{ProblemText(gradient), {.index = 1, .knobs = {{1, 2}}}}});
  CHECK(f.Run(gradient) == 1);
  gradient.adds = false;
  CHECK(f.Run(gradient) == 0);
}

TEST_CASE("a problem without an engine makes one note, a warning") {
  LibraryFixture f({});
  CHECK(f.Run(kForward) == -1);
  CHECK(f.Run(kForward) == -1);
  REQUIRE(f.notes.size() == 1);
  CHECK(f.notes[0].is_fallback);
  CHECK(Contains(f.notes[0].text, "cuDNN has no engine that may be used"));
  f.library.StartMeasuring();
  CHECK(f.Run(kForward) == -1);
  CHECK(f.library.TakeMeasured().empty());
  CHECK(f.notes.size() == 1);
}

TEST_CASE("a problem whose proposals all fail when they are run makes a warning too") {
  LibraryFixture f({-1, -1});
  f.library.StartMeasuring();
  CHECK(f.Run(kForward) == -1);
  f.library.Use(f.library.TakeMeasured());
  CHECK(f.Run(kForward) == -1);
  REQUIRE(f.notes.size() == 1);
  CHECK(f.notes[0].is_fallback);
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
