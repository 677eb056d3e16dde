// Source: NVIDIA's cuDNN documentation, "Graph API: the backend".
#include <cudnn.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "kernels/cuda/conv_library.h"

#include "kernels/cuda/runtime.h"
#include "kernels/runtime_library.h"

// Like PANDO_CUDA_CHECK, for cuDNN's calls, in scopes that have `api`.
#define PANDO_CUDNN_CHECK(call) \
  PANDO_STATUS_CHECK(call, #call, CUDNN_STATUS_SUCCESS, api.GetErrorString)

namespace pando::cuda {
namespace {

constexpr int64_t kXId = 1, kWId = 2, kYId = 3;
constexpr int64_t kAlignmentBytes = 16;

using Dims = std::array<int64_t, 4>;
using Pair = std::array<int64_t, 2>;

struct CudnnApi : RuntimeLibrary {
  decltype(cudnnGetVersion)* GetVersion = Find("cudnnGetVersion");
  decltype(cudnnGetCudartVersion)* GetCudartVersion = Find("cudnnGetCudartVersion");
  decltype(cudnnCreate)* Create = Find("cudnnCreate");
  decltype(cudnnDestroy)* Destroy = Find("cudnnDestroy");
  decltype(cudnnSetStream)* SetStream = Find("cudnnSetStream");
  decltype(cudnnGetErrorString)* GetErrorString = Find("cudnnGetErrorString");
  decltype(cudnnBackendCreateDescriptor)* CreateDescriptor = Find("cudnnBackendCreateDescriptor");
  decltype(cudnnBackendDestroyDescriptor)* DestroyDescriptor =
      Find("cudnnBackendDestroyDescriptor");
  decltype(cudnnBackendSetAttribute)* SetAttribute = Find("cudnnBackendSetAttribute");
  decltype(cudnnBackendGetAttribute)* GetAttribute = Find("cudnnBackendGetAttribute");
  decltype(cudnnBackendFinalize)* Finalize = Find("cudnnBackendFinalize");
  decltype(cudnnBackendExecute)* Execute = Find("cudnnBackendExecute");
};

Result<CudnnApi> LoadCudnn() { return LoadFunctions<CudnnApi>({"libcudnn.so.9"}); }

// cuDNN opens its parts when it needs them. If one is missing, it proposes no engines and reports
// no error.
Status CheckParts() {
  for (const char* part : {"libcudnn_graph.so.9", "libcudnn_heuristic.so.9",
                           "libcudnn_engines_precompiled.so.9", "libcudnn_ops.so.9"}) {
    PANDO_RETURN_IF_ERROR(
        RuntimeLibrary::Load({part}, "Install all libraries of one version of cuDNN").status());
  }
  return Status();
}

class Descriptor {
 public:
  Descriptor(const CudnnApi& cudnn, cudnnBackendDescriptorType_t type) : api(cudnn) {
    PANDO_CUDNN_CHECK(api.CreateDescriptor(type, &descriptor_));
  }
  ~Descriptor() {
    if (descriptor_ != nullptr) api.DestroyDescriptor(descriptor_);
  }
  Descriptor(Descriptor&& other) noexcept
      : api(other.api), descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  Descriptor& operator=(Descriptor&&) = delete;

  cudnnBackendDescriptor_t get() const { return descriptor_; }
  void Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
           const void* values) {
    PANDO_CUDNN_CHECK(api.SetAttribute(descriptor_, name, type, count, values));
  }
  template <class T>
  void SetOne(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, T value) {
    Set(name, type, 1, &value);
  }
  void SetChild(cudnnBackendAttributeName_t name, const Descriptor& child) {
    SetOne(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, child.get());
  }
  template <size_t N>
  void SetInts(cudnnBackendAttributeName_t name, const std::array<int64_t, N>& values) {
    Set(name, CUDNN_TYPE_INT64, N, values.data());
  }
  // Returns the number of values, and writes the first count_max of them to `values`.
  int64_t Get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count_max,
              void* values) const {
    const std::optional<int64_t> count = TryGet(name, type, count_max, values);
    PANDO_CHECK(count.has_value());
    return *count;
  }
  // Returns none if cuDNN cannot tell.
  std::optional<int64_t> TryGet(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                int64_t count_max, void* values) const {
    int64_t count = 0;
    const cudnnStatus_t got = api.GetAttribute(descriptor_, name, type, count_max, &count, values);
    return got == CUDNN_STATUS_SUCCESS ? std::optional(count) : std::nullopt;
  }
  bool TryFinalize() { return api.Finalize(descriptor_) == CUDNN_STATUS_SUCCESS; }
  void Finalize() { PANDO_CUDNN_CHECK(api.Finalize(descriptor_)); }

  const CudnnApi& api;

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

cudnnDataType_t DataType(ElementType element) {
  constexpr std::array kTypes{CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16, CUDNN_DATA_HALF};
  return kTypes.at(static_cast<size_t>(element));
}

// ------------------------------------------------------------------------------ a problem's graph

// dims: samples or out, channels, height, width. Channels are adjacent.
Descriptor MakeTensor(const CudnnApi& api, int64_t id, ElementType element, const Dims& dims) {
  const auto [n, c, h, w] = dims;
  Descriptor tensor(api, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.SetOne(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, DataType(element));
  tensor.SetInts(CUDNN_ATTR_TENSOR_DIMENSIONS, dims);
  tensor.SetInts(CUDNN_ATTR_TENSOR_STRIDES, Dims{c * h * w, 1, c * w, c});
  tensor.SetOne(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  tensor.SetOne(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kAlignmentBytes);
  tensor.Finalize();
  return tensor;
}

Descriptor MakeConvolution(const CudnnApi& api, const Conv2dSpec& spec) {
  const Pair ones{1, 1}, strides{spec.stride, spec.stride}, paddings{spec.padding, spec.padding};
  Descriptor convolution(api, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  convolution.SetOne(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, int64_t{2});
  convolution.SetOne(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  convolution.SetOne(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                     CUDNN_CROSS_CORRELATION);
  convolution.SetInts(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, paddings);
  convolution.SetInts(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, paddings);
  convolution.SetInts(CUDNN_ATTR_CONVOLUTION_DILATIONS, ones);
  convolution.SetInts(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, strides);
  convolution.Finalize();
  return convolution;
}

struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t x, w, y, convolution, alpha, beta;
};

// cuDNN's names for the passes differ only in these parts.
#define PANDO_OPERATION_NAMES(type, prefix, x, w, y)           \
  {                                                            \
    CUDNN_BACKEND_OPERATION_CONVOLUTION_##type##_DESCRIPTOR,   \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_##x,       \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_##w,       \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_##y,       \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_CONV_DESC, \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_ALPHA,     \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_BETA       \
  }

OperationNames OperationNamesFor(ConvPass pass) {
  constexpr std::array<OperationNames, 3> kNames{
      {PANDO_OPERATION_NAMES(FORWARD, FORWARD, X, W, Y),
       PANDO_OPERATION_NAMES(BACKWARD_DATA, BWD_DATA, DX, W, DY),
       PANDO_OPERATION_NAMES(BACKWARD_FILTER, BWD_FILTER, X, DW, DY)}};
  return kNames.at(static_cast<size_t>(pass));
}

struct Graph {
  Descriptor operation;
  Descriptor graph;  // for the operation alone
};

// Returns none if cuDNN does not support such a convolution.
std::optional<Graph> MakeGraph(const CudnnApi& api, const ConvProblem& problem, ElementType element,
                               cudnnHandle_t handle) {
  const Conv2dSpec& spec = problem.spec;
  const SampleShape in = spec.input, out = spec.conv_output();
  const Descriptor x =
      MakeTensor(api, kXId, element, {problem.sample_count, in.channels, in.height, in.width});
  const Descriptor w = MakeTensor(
      api, kWId, element, {spec.out_channels, in.channels / spec.groups, spec.kernel, spec.kernel});
  const Descriptor y =
      MakeTensor(api, kYId, element, {problem.sample_count, out.channels, out.height, out.width});
  const Descriptor convolution = MakeConvolution(api, spec);
  const OperationNames names = OperationNamesFor(problem.pass);
  Descriptor operation(api, names.type);
  operation.SetChild(names.x, x);
  operation.SetChild(names.w, w);
  operation.SetChild(names.y, y);
  operation.SetChild(names.convolution, convolution);
  operation.SetOne(names.alpha, CUDNN_TYPE_FLOAT, 1.0f);
  operation.SetOne(names.beta, CUDNN_TYPE_FLOAT, problem.adds ? 1.0f : 0.0f);
  if (!operation.TryFinalize()) return std::nullopt;
  Descriptor graph(api, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.SetOne(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  graph.SetChild(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  if (!graph.TryFinalize()) return std::nullopt;
  return Graph{std::move(operation), std::move(graph)};
}

// ------------------------------------------------------------------------------------- its engine

// Returns cuDNN's proposals, in its order of expected speed, with those of the fallback last. A
// mode that fails at any point proposes none: some fail only when their results are read.
std::vector<Descriptor> ProposeEngines(const Descriptor& graph) {
  std::vector<Descriptor> all;
  for (cudnnBackendHeurMode_t mode :
       {CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    Descriptor heuristic(graph.api, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristic.SetChild(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristic.SetOne(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
    if (!heuristic.TryFinalize()) continue;
    const auto get = [&](int64_t count_max, void* values) {
      return heuristic
          .TryGet(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count_max, values)
          .value_or(0);
    };
    std::vector<Descriptor> found;
    std::vector<cudnnBackendDescriptor_t> handles;
    for (int64_t i = get(0, nullptr); i > 0; --i) {
      handles.push_back(found.emplace_back(graph.api, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
    }
    if (handles.empty()) continue;
    const int64_t count = get(static_cast<int64_t>(handles.size()), handles.data());
    for (int64_t i = 0; i < count; ++i) all.push_back(std::move(found[static_cast<size_t>(i)]));
  }
  return all;
}

// Returns the notes of one kind of an engine; none if cuDNN cannot tell.
template <class Note, size_t kCount>
std::optional<std::set<Note>> ReadNotes(const Descriptor& engine, cudnnBackendAttributeName_t name,
                                        cudnnBackendAttributeType_t type) {
  std::array<Note, kCount> notes{};
  const std::optional<int64_t> count = engine.TryGet(name, type, kCount, notes.data());
  if (!count) return std::nullopt;
  // A later version of cuDNN may have more notes.
  return std::set<Note>(notes.begin(), notes.begin() + std::min<int64_t>(*count, kCount));
}

// Returns whether the engine's bits are always the same (P35), its precision is as requested, and
// all workers of this kind have it (P39).
bool MayBeUsed(const Descriptor& configuration, const CudaOptions& options) {
  Descriptor engine(configuration.api, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t handle = engine.get();
  if (!configuration.TryGet(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle))
    return false;
  const auto behavior = ReadNotes<cudnnBackendBehaviorNote_t, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT>(
      engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE);
  const auto notes = ReadNotes<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT>(
      engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
  if (!behavior || !notes) return false;
  // Such an engine needs libnvrtc, which the kind does not name: other workers may not have it.
  if (behavior->contains(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)) return false;
  // Such an engine sums in half precision, while fp16 and bf16 promise sums of floats.
  if (notes->contains(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) return false;
  if (!options.allow_nondeterministic && notes->contains(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC))
    return false;
  if (options.element != ElementType::kFloat32) return true;
  // Such an engine converts inputs to half, which can give infinities.
  if (notes->contains(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)) return false;
  if (options.allow_tf32) return true;
  return !notes->contains(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) &&
         !notes->contains(CUDNN_NUMERICAL_NOTE_FFT) &&
         !notes->contains(CUDNN_NUMERICAL_NOTE_WINOGRAD);
}

// ---- plans

// Describes a configuration's engine, as far as cuDNN can tell.
ConvEngine Describe(const Descriptor& configuration) {
  Descriptor engine(configuration.api, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t handle = engine.get();
  ConvEngine described;
  if (configuration.TryGet(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle))
    engine.TryGet(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &described.index);
  std::vector<Descriptor> choices;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; ++i) {
    handles.push_back(
        choices.emplace_back(configuration.api, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR).get());
  }
  const int64_t count = configuration
                            .TryGet(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS,
                                    handles.data())
                            .value_or(0);  // for an engine without knobs
  for (int64_t i = 0; i < std::min<int64_t>(count, CUDNN_KNOB_TYPE_COUNTS); ++i) {
    const Descriptor& choice = choices[static_cast<size_t>(i)];
    cudnnBackendKnobType_t type{};
    int64_t value = 0;
    if (choice.TryGet(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type) &&
        choice.TryGet(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value))
      described.knobs[type] = value;
  }
  return described;
}

struct PlannerParts {  // the parts that all plans use
  const CudnnApi api;
  const CudaOptions options;
  const size_t workspace_bytes;
  cudnnHandle_t handle = nullptr;
  void* workspace = nullptr;
};

class CudnnPlan : public ConvPlan {
 public:
  CudnnPlan(const PlannerParts& parts, Descriptor plan, ConvEngine engine)
      : engine_(std::move(engine)), parts_(parts), plan_(std::move(plan)) {}
  const ConvEngine& engine() const override { return engine_; }

  void Run(const ConvArrays& arrays) override {
    const CudnnApi& api = parts_.api;
    const std::array<int64_t, 3> ids{kXId, kWId, kYId};
    const std::array<void*, 3> pointers{arrays.x, arrays.w, arrays.y};
    Descriptor pack(api, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.SetInts(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
    pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers.size(),
             pointers.data());
    pack.SetOne(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, parts_.workspace);
    pack.Finalize();
    PANDO_CUDNN_CHECK(api.Execute(parts_.handle, plan_.get(), pack.get()));
  }

 private:
  const ConvEngine engine_;
  const PlannerParts& parts_;
  const Descriptor plan_;
};

// Returns null if this GPU or these shapes are not supported, or the workspace is too small.
std::unique_ptr<ConvPlan> MakePlan(const PlannerParts& parts, const Descriptor& configuration) {
  Descriptor plan(configuration.api, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.SetOne(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, parts.handle);
  plan.SetChild(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  if (!plan.TryFinalize()) return nullptr;
  int64_t workspace_bytes = 0;
  plan.Get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &workspace_bytes);
  if (workspace_bytes > static_cast<int64_t>(parts.workspace_bytes)) return nullptr;
  ConvEngine engine = Describe(configuration);
  engine.workspace_bytes = static_cast<uint64_t>(workspace_bytes);
  return std::make_unique<CudnnPlan>(parts, std::move(plan), std::move(engine));
}

class CudnnPlanner : public ConvPlanner {
 public:
  CudnnPlanner(const CudnnApi& cudnn, const CudaOptions& options, size_t workspace_bytes,
               cudaStream_t stream)
      : parts_{cudnn, options, workspace_bytes} {
    const CudnnApi& api = parts_.api;
    PANDO_CUDNN_CHECK(api.Create(&parts_.handle));
    PANDO_CUDNN_CHECK(api.SetStream(parts_.handle, stream));
    PANDO_CUDA_CHECK(cudaMalloc(&parts_.workspace, workspace_bytes));
  }
  ~CudnnPlanner() override {
    const CudnnApi& api = parts_.api;
    PANDO_CUDA_CHECK(cudaFree(parts_.workspace));
    PANDO_CUDNN_CHECK(api.Destroy(parts_.handle));
  }

  size_t version() const override { return parts_.api.GetVersion(); }

  std::unique_ptr<ConvPlan> Plan(const ConvProblem& problem) override {
    const std::optional<Graph> graph =
        MakeGraph(parts_.api, problem, parts_.options.element, parts_.handle);
    if (!graph) return nullptr;
    for (const Descriptor& configuration : ProposeEngines(graph->graph)) {
      if (!MayBeUsed(configuration, parts_.options)) continue;
      std::unique_ptr<ConvPlan> plan = MakePlan(parts_, configuration);
      if (plan != nullptr) return plan;
    }
    return nullptr;
  }

 private:
  PlannerParts parts_;
};

}  // namespace

Result<std::unique_ptr<ConvPlanner>> OpenConvPlanner(const CudaOptions& options,
                                                     const ConvSetting& setting,
                                                     cudaStream_t stream) {
  PANDO_ASSIGN_OR_RETURN(const CudnnApi api, LoadCudnn());
  PANDO_RETURN_IF_ERROR(CheckParts());
  // With another cuBLASLt, cuDNN ends the process.
  const size_t built_for = api.GetCudartVersion() / 1000;
  if (built_for != setting.cublas_major) {
    return NotFound(fmt::format(
        "cuDNN {} is built for CUDA {}, and the cuBLASLt that is found first is of CUDA "
        "{}: install libcublasLt.so.{}, or the cuDNN for CUDA {}",
        Dotted(api.GetVersion()), built_for, setting.cublas_major, built_for,
        setting.cublas_major));
  }
  return std::unique_ptr<ConvPlanner>(
      std::make_unique<CudnnPlanner>(api, options, setting.workspace_bytes, stream));
}

bool HasConvPlanner() { return LoadCudnn().ok(); }

}  // namespace pando::cuda
