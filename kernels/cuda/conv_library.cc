#include "kernels/cuda/conv_library.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

namespace pando::cuda {
namespace {

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

Result<std::unique_ptr<ConvLibrary>> ConvLibrary::Open(const CudaOptions& options,
                                                       const ConvSetting& setting,
                                                       cudaStream_t stream) {
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<ConvPlanner> planner,
                         OpenConvPlanner(options, setting, stream));
  return std::make_unique<ConvLibrary>(std::move(planner), options.on_engine);
}

bool ConvLibrary::Run(const ConvProblem& problem, const ConvArrays& arrays) {
  ConvPlan* plan = FindPlan(problem);
  if (plan == nullptr) return false;
  plan->Run(arrays);
  return true;
}

ConvPlan* ConvLibrary::FindPlan(const ConvProblem& problem) {
  const auto [found, is_new] = plans_.try_emplace(KeyFor(problem));
  if (is_new) {
    found->second = planner_->Plan(problem);
    Note(problem, found->second.get());
  }
  return found->second.get();
}

void ConvLibrary::Note(const ConvProblem& problem, const ConvPlan* plan) const {
  if (!on_note_) return;
  const std::string text =
      plan ? EngineText(plan->engine())
           : "cuDNN has no engine that may be used; our own kernel computes it, slowly";
  on_note_({.text = fmt::format("convolution, {}: {}", ProblemText(problem), text),
            .is_fallback = plan == nullptr});
}

}  // namespace pando::cuda
