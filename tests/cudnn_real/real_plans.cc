#include "tests/cudnn_real/real_plans.h"

#include <cudnn.h>
#include <fmt/core.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/check.h"
#include "kernels/cuda/own_conv.h"
#include "kernels/cuda/runtime.h"
#include "kernels/runtime_library.h"
#include "models/graph.h"
#include "models/zoo.h"

// In place of CUDA's runtime, which is not linked. No plan is run, so no memory is needed.
extern "C" {
cudaError_t cudaMalloc(void** memory, size_t) {
  *memory = nullptr;
  return cudaSuccess;
}
cudaError_t cudaFree(void*) { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error of CUDA"; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
}

namespace pando::cuda {

void CudaFailed(const char* call, const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, what);
  std::abort();
}

std::string FindObstacle() {
  const ForwardCudnn& cudnn = *PandoForwardCudnn();
  if (!cudnn.error.empty()) return "the real cuDNN is not installed: " + cudnn.error;
  if (cudnn.version < kCudnnMin)
    return fmt::format("cuDNN {} is installed, and {} or later is needed", Dotted(cudnn.version),
                       Dotted(kCudnnMin));
  return "";
}

Gpu ReadGpu(const std::string& path) {
  std::ifstream file(path);
  const std::string json(std::istreambuf_iterator<char>(file), {});
  const auto properties = nlohmann::json::parse(json);
  const size_t slash = path.rfind('/') + 1;  // 0 without one
  return {.name = path.substr(slash, path.rfind('.') - slash),
          .json = json,
          .memory_bytes = properties.at("totalGlobalMem"),
          .has_bf16 = properties.at("deviceVer") >= 800};
}

namespace {

struct Convolution {
  Layer layer;
  bool adds_gradient;  // a later layer reads its input too, and wrote the gradient
};

std::vector<Convolution> Convolutions(const std::string& name) {
  const ZooModel* model = FindZooModel(name);
  PANDO_CHECK(model != nullptr && model->layers != nullptr);
  const Result<Graph> graph =
      Graph::Build(name, model->layers(name, model->class_count), model->input, model->class_count);
  PANDO_CHECK(graph.ok());
  std::map<int, const Layer*> last_readers;
  for (const Layer& layer : graph->layers()) {
    for (const int input : layer.inputs) last_readers[input] = &layer;
  }
  std::vector<Convolution> found;
  for (const Layer& layer : graph->layers()) {
    if (layer.spec.kind == LayerKind::kConv2d)
      found.push_back({layer, last_readers[layer.inputs[0]] != &layer});
  }
  return found;
}

Conv2dSpec SpecFor(const Layer& layer, ElementType element) {
  SampleShape input = layer.in;
  if (layer.inputs[0] == kGraphInput)
    input.channels = StoredChannels({DeviceKind::kCuda, element}, input.channels);
  return {.input = input,
          .out_channels = layer.spec.out_units,
          .kernel = layer.spec.window,
          .stride = layer.spec.stride,
          .padding = layer.spec.padding,
          .groups = layer.spec.groups};
}

}  // namespace

std::vector<ConvProblem> ZooProblems(std::span<const std::string> models,
                                     std::span<const uint32_t> batches, ElementType element) {
  std::vector<ConvProblem> problems;
  std::set<std::string> seen;
  const auto add = [&](const ConvProblem& problem) {
    if (seen.insert(ProblemText(problem)).second) problems.push_back(problem);
  };
  for (const std::string& model : models) {
    for (const auto& [layer, adds_gradient] : Convolutions(model)) {
      const Conv2dSpec spec = SpecFor(layer, element);
      if (IsDepthwise(spec)) continue;  // our own kernels compute it
      for (const uint32_t batch : batches) {
        add({ConvPass::kForward, spec, batch});
        if (layer.has_input_gradient) add({ConvPass::kDataGradient, spec, batch, adds_gradient});
        add({ConvPass::kWeightGradient, spec, batch});
      }
    }
  }
  return problems;
}

std::vector<ConvProblem> OtherProblems(ElementType element) {
  constexpr std::array<uint32_t, 1> kBatch{32};
  std::set<std::string> known;
  for (const ConvProblem& problem : ZooProblems(kModels, kBatch, element))
    known.insert(ProblemText(problem));
  std::vector<std::string> names;
  for (const ZooModel& model : ZooModels()) {
    // Those with options of the job, the mlp, have no convolutions.
    if (model.layers != nullptr) names.emplace_back(model.name);
  }
  std::vector<ConvProblem> problems = ZooProblems(names, kBatch, element);
  std::erase_if(problems, [&](const ConvProblem& p) { return known.contains(ProblemText(p)); });
  return problems;
}

RealPlanner::RealPlanner(const Gpu& gpu, const RealPrecision& precision, size_t workspace_bytes) {
  ForwardCudnn& cudnn = *PandoForwardCudnn();
  cudnn.gpu_json = gpu.json;
  Result<std::unique_ptr<ConvPlanner>> opened = OpenConvPlanner(
      {.element = precision.element, .allow_tf32 = precision.allow_tf32},
      {.workspace_bytes = workspace_bytes, .cublas_major = cudnn.cuda_major}, nullptr);
  if (!opened.ok())
    CudaFailed("OpenConvPlanner", opened.status().message().c_str(), __FILE__, __LINE__);
  planner_ = *std::move(opened);
}

Planning RealPlanner::Plan(const ConvProblem& problem) {
  ForwardCudnn& cudnn = *PandoForwardCudnn();
  cudnn.proposed.clear();
  cudnn.planned.clear();
  std::unique_ptr<ConvPlan> plan = planner_->Plan(problem);
  return {std::move(plan), cudnn.proposed, cudnn.planned};
}

bool IsForbidden(const RealEngine& engine, const RealPrecision& precision) {
  const auto has = [&](cudnnBackendNumericalNote_t note) { return engine.notes.contains(note); };
  const bool is_float = precision.element == ElementType::kFloat32;
  const bool is_strict = is_float && !precision.allow_tf32;
  return !engine.has_notes ||
         engine.behavior_notes.contains(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) ||
         has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) ||
         has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) ||
         (is_float && has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)) ||
         (is_strict && has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE)) ||
         (is_strict && has(CUDNN_NUMERICAL_NOTE_FFT)) ||
         (is_strict && has(CUDNN_NUMERICAL_NOTE_WINOGRAD));
}

FirstEngines FindFirstEngines(const Gpu& gpu, const RealPrecision& precision,
                              const std::vector<ConvProblem>& problems) {
  FirstEngines first;
  RealPlanner planner(gpu, precision, ConvWorkspaceBytes(gpu.memory_bytes));
  for (const ConvProblem& problem : problems) {
    const Planning found = planner.Plan(problem);
    for (const RealEngine& engine : found.proposed)
      first.run_time_compiled_count +=
          engine.behavior_notes.contains(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
    first.text += ProblemText(problem) + ":";
    if (found.plan != nullptr) {
      const ConvEngine& engine = found.plan->engine();
      first.text += fmt::format(" engine {}", engine.index);
      for (const auto& [type, value] : engine.knobs)
        first.text += fmt::format(" {}={}", type, value);
    }
    first.text += "\n";
  }
  return first;
}

}  // namespace pando::cuda
