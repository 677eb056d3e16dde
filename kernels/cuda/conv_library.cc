#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>

#include "kernels/cuda/libraries.h"
#include "kernels/cuda/runtime.h"

namespace pando::cuda {
namespace {

// Of a problem, in the order of expected speed. The heuristics' first few are the fastest ones, and
// each takes some milliseconds to measure.
constexpr size_t kProposalsMax = 12;
constexpr size_t kSamples = 5;  // the median counts
// Runs of a sample are back to back and take about this long, so that its end is a small part.
constexpr double kSampleMs = 1;
constexpr double kRunsMax = 100;
constexpr int64_t kNoEngine = -1;  // of a choice: our own kernel computes the problem
constexpr double kGain = 0.98;     // less is noise: the earlier proposal stays
// A proposal whose second run takes this many times the best one's is not measured further.
constexpr double kHopeless = 2;

std::string EngineText(const ConvEngine& engine) {
  std::string text = fmt::format("engine {}", engine.index);
  for (const auto& [type, value] : engine.knobs) text += fmt::format(" {}={}", type, value);
  return text + fmt::format(", {} bytes of workspace", engine.workspace_bytes);
}

}  // namespace

std::string ProblemText(const ConvProblem& p) {
  constexpr std::array kPasses{"forward", "data gradient", "weight gradient"};
  const Conv2dSpec& s = p.spec;
  return fmt::format(
      "{} of {} x {} x {} x {} to {} channels, kernel {}, stride {}, padding {}, groups {}{}",
      kPasses.at(static_cast<size_t>(p.pass)), p.sample_count, s.input.height, s.input.width,
      s.input.channels, s.out_channels, s.kernel, s.stride, s.padding, s.groups,
      p.adds ? ", added" : "");
}

size_t ConvWorkspaceBytes(size_t total_bytes) {
  constexpr size_t kMin = size_t{256} << 20, kMax = size_t{1} << 30;
  return std::clamp(std::bit_floor(total_bytes / 8), kMin, kMax);
}

ConvLibrary::Key ConvLibrary::KeyFor(const ConvProblem& p) {
  const Conv2dSpec& s = p.spec;
  return {static_cast<uint32_t>(p.pass),
          s.input.height,
          s.input.width,
          s.input.channels,
          s.out_channels,
          s.kernel,
          s.stride,
          s.padding,
          s.groups,
          p.sample_count,
          p.adds};
}

ConvLibrary::ConvLibrary(std::unique_ptr<ConvPlanner> planner, cudaStream_t stream,
                         OnEngineNote on_note, Clock clock)
    : planner_(std::move(planner)),
      stream_(stream),
      on_note_(std::move(on_note)),
      clock_(std::move(clock)) {}

Result<std::unique_ptr<ConvLibrary>> ConvLibrary::Open(const CudaOptions& options,
                                                       const ConvSetting& setting,
                                                       cudaStream_t stream) {
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<ConvPlanner> planner,
                         OpenConvPlanner(options, setting, stream));
  return std::make_unique<ConvLibrary>(std::move(planner), stream, options.on_engine);
}

bool ConvLibrary::Run(const ConvProblem& problem, const ConvArrays& arrays) {
  ConvPlan* plan = FindPlan(problem, arrays);
  if (plan == nullptr) return false;
  plan->Run(arrays);
  return true;
}

ConvPlan* ConvLibrary::FindPlan(const ConvProblem& problem, const ConvArrays& arrays) {
  const Key key = KeyFor(problem);
  const auto found = plans_.find(key);
  if (found != plans_.end()) return found->second.get();
  const std::string name = ProblemText(problem);
  return plans_.emplace(key, measured_ ? Measure(problem, name, arrays) : MakePlan(problem, name))
      .first->second.get();
}

std::unique_ptr<ConvPlan> ConvLibrary::MakePlan(const ConvProblem& problem,
                                                const std::string& name) {
  const auto chosen = choice_.find(name);
  std::unique_ptr<ConvPlan> plan;
  if (chosen == choice_.end()) {
    std::vector<std::unique_ptr<ConvPlan>> first = planner_->Propose(problem, 1);
    if (!first.empty()) plan = std::move(first.front());
    Note(name, plan.get(), "first of cuDNN's heuristics");
    return plan;
  }
  const bool is_none = chosen->second.index == kNoEngine;
  if (!is_none) plan = planner_->Make(problem, chosen->second);
  if (plan == nullptr && !is_none) {
    const std::string text =
        fmt::format("{}: {} was decided for this kind of GPU, and cannot be made here", name,
                    EngineText(chosen->second));
    CudaFailed("convolution", text.c_str(), __FILE__, __LINE__);
  }
  Note(name, plan.get(), chosen->second.reason);
  return plan;
}

void ConvLibrary::Note(const std::string& name, const ConvPlan* plan,
                       const std::string& reason) const {
  if (!on_note_) return;
  if (plan == nullptr)
    return on_note_({.text = fmt::format("convolution, {}: cuDNN has no engine that may be used; "
                                         "our own kernel computes it, slowly",
                                         name),
                     .is_fallback = true});
  on_note_(
      {.text = fmt::format("convolution, {}: {}, {}", name, EngineText(plan->engine()), reason)});
}

// ---- measuring ----------------------------------------------------------------------------------

void ConvLibrary::StartMeasuring() {
  plans_.clear();
  measured_.emplace();
}

EngineChoice ConvLibrary::TakeMeasured() {
  plans_.clear();
  return *std::exchange(measured_, std::nullopt);
}

void ConvLibrary::Use(EngineChoice choice) {
  plans_.clear();
  choice_ = std::move(choice);
}

// The result is computed again and again, from the same arrays.
std::unique_ptr<ConvPlan> ConvLibrary::Measure(const ConvProblem& problem, const std::string& name,
                                               const ConvArrays& arrays) {
  std::vector<std::unique_ptr<ConvPlan>> proposals = planner_->Propose(problem, kProposalsMax);
  const bool has_any = !proposals.empty();
  std::erase_if(proposals, [&](const auto& plan) { return !plan->TryRun(arrays); });
  if (proposals.empty()) {
    // The rule would take the first one, which would end the process.
    if (has_any) (*measured_)[name] = {.index = kNoEngine, .reason = "no proposal runs"};
    return nullptr;
  }
  size_t best = 0;
  double best_ms = TimeMs(*proposals[0], arrays, std::numeric_limits<double>::infinity());
  for (size_t i = 1; i < proposals.size(); ++i) {
    const double ms = TimeMs(*proposals[i], arrays, kHopeless * best_ms);
    if (ms >= kGain * best_ms) continue;
    best = i;
    best_ms = ms;
  }
  ConvEngine& engine = (*measured_)[name] = proposals[best]->engine();
  engine.reason = fmt::format("measured {:.3f} ms, number {} of {} that cuDNN proposes", best_ms,
                              best + 1, proposals.size());
  return std::move(proposals[best]);
}

double ConvLibrary::TimeMs(ConvPlan& plan, const ConvArrays& arrays, double enough_ms) const {
  const double once_ms = TimeOnceMs(plan, arrays, 1);  // TryRun was the first run
  if (once_ms > enough_ms) return once_ms;
  const auto runs = static_cast<int>(std::clamp(kSampleMs / (once_ms + 1e-6), 1.0, kRunsMax));
  std::array<double, kSamples> times{};
  for (double& ms : times) ms = TimeOnceMs(plan, arrays, runs);
  std::ranges::sort(times);
  return times[kSamples / 2];
}

// Of a run, on average.
double ConvLibrary::TimeOnceMs(ConvPlan& plan, const ConvArrays& arrays, int run_count) const {
  PANDO_CUDA_CHECK(cudaStreamSynchronize(stream_));
  const double start = clock_();
  for (int i = 0; i < run_count; ++i) plan.Run(arrays);
  PANDO_CUDA_CHECK(cudaStreamSynchronize(stream_));
  return (clock_() - start) / run_count;
}

double ConvLibrary::SteadyMs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

}  // namespace pando::cuda
