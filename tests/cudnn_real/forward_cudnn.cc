// libcudnn.so.9 for a machine without a GPU: forwards the functions that kernels/cuda/cudnn.cc uses
// to the real library. Where that code passes a handle, cuDNN gets a description of a GPU instead.
// Source: NVIDIA's cuDNN documentation, "Graph API: the backend", device properties.
#include "tests/cudnn_real/forward_cudnn.h"

#include <cudnn.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/runtime_library.h"

namespace pando {
namespace {

struct RealCudnn : RuntimeLibrary {
  decltype(cudnnGetVersion)* GetVersion = Find("cudnnGetVersion");
  decltype(cudnnGetCudartVersion)* GetCudartVersion = Find("cudnnGetCudartVersion");
  decltype(cudnnGetErrorString)* GetErrorString = Find("cudnnGetErrorString");
  decltype(cudnnBackendCreateDescriptor)* CreateDescriptor = Find("cudnnBackendCreateDescriptor");
  decltype(cudnnBackendDestroyDescriptor)* DestroyDescriptor =
      Find("cudnnBackendDestroyDescriptor");
  decltype(cudnnBackendSetAttribute)* SetAttribute = Find("cudnnBackendSetAttribute");
  decltype(cudnnBackendGetAttribute)* GetAttribute = Find("cudnnBackendGetAttribute");
  decltype(cudnnBackendFinalize)* Finalize = Find("cudnnBackendFinalize");
};

// The loader finds this library under the real one's name, so the real one is opened by the folder
// of its first part.
Result<RealCudnn> OpenReal() {
  // The one beside this library. Then cuDNN gets the same one.
  PANDO_RETURN_IF_ERROR(RuntimeLibrary::Load({"libcuda.so.1"}).status());
  PANDO_ASSIGN_OR_RETURN(RuntimeLibrary part, RuntimeLibrary::Load({"libcudnn_graph.so.9"}));
  Dl_info place{};
  if (dladdr(part.Find("cudnnGetVersion").address, &place) == 0) return part.status();
  const std::string path = place.dli_fname;
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  return LoadFunctions<RealCudnn>({(folder + "libcudnn.so.9").c_str()});
}

Result<RealCudnn>& Opened() {
  static Result<RealCudnn> opened = OpenReal();
  return opened;
}
const RealCudnn& Real() { return *Opened(); }

ForwardCudnn& State() {
  static ForwardCudnn state = [] {
    if (!Opened().ok()) return ForwardCudnn{.error = Opened().status().message()};
    return ForwardCudnn{.version = Real().GetVersion(),
                        .cuda_major = Real().GetCudartVersion() / 1000};
  }();
  return state;
}

cudnnBackendDescriptor_t& TheGpu() {  // a handle stands for it; one at a time
  static cudnnBackendDescriptor_t gpu = nullptr;
  return gpu;
}

// False: cuDNN cannot tell.
template <class Note, size_t kCount>
bool ReadNotes(cudnnBackendDescriptor_t engine, cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type, std::set<int>* read) {
  std::array<Note, kCount> notes{};
  int64_t count = 0;
  if (Real().GetAttribute(engine, name, type, kCount, &count, notes.data()) != CUDNN_STATUS_SUCCESS)
    return false;
  read->insert(notes.begin(), notes.begin() + std::min<int64_t>(count, kCount));
  return true;
}

RealEngine ReadEngine(cudnnBackendDescriptor_t configuration) {
  const RealCudnn& real = Real();
  RealEngine read;
  cudnnBackendDescriptor_t engine = nullptr;
  real.CreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
  int64_t count = 0;
  real.GetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                    &count, &engine);
  real.GetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count,
                    &read.index);
  read.has_notes =
      ReadNotes<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT>(
          engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, &read.notes) &&
      ReadNotes<cudnnBackendBehaviorNote_t, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT>(
          engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, &read.behavior_notes);
  real.DestroyDescriptor(engine);
  return read;
}

cudnnStatus_t SetGpu(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name) {
  return Real().SetAttribute(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &TheGpu());
}

}  // namespace

extern "C" {

ForwardCudnn* PandoForwardCudnn() { return &State(); }

size_t cudnnGetVersion() { return State().version; }
size_t cudnnGetCudartVersion() { return Real().GetCudartVersion(); }
const char* cudnnGetErrorString(cudnnStatus_t status) { return Real().GetErrorString(status); }

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  const RealCudnn& real = Real();
  const std::string& json = State().gpu_json;
  cudnnStatus_t status = real.CreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &TheGpu());
  if (status == CUDNN_STATUS_SUCCESS)
    status = real.SetAttribute(TheGpu(), CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                               static_cast<int64_t>(json.size()), json.data());
  if (status == CUDNN_STATUS_SUCCESS) status = real.Finalize(TheGpu());
  *handle = reinterpret_cast<cudnnHandle_t>(TheGpu());
  return status;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t) {
  return Real().DestroyDescriptor(std::exchange(TheGpu(), nullptr));
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t) { return CUDNN_STATUS_SUCCESS; }

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  return Real().CreateDescriptor(type, descriptor);
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return Real().DestroyDescriptor(descriptor);
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* values) {
  if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) return CUDNN_STATUS_SUCCESS;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
    return SetGpu(descriptor, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  const cudnnStatus_t status = Real().SetAttribute(descriptor, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)
    return SetGpu(descriptor, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  if (name == CUDNN_ATTR_ENGINE_OPERATION_GRAPH)
    return SetGpu(descriptor, CUDNN_ATTR_ENGINE_DEVICEPROP);
  if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
    State().planned.push_back(
        {.engine = ReadEngine(*static_cast<const cudnnBackendDescriptor_t*>(values))});
  return status;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted,
                                       int64_t* count, void* values) {
  const cudnnStatus_t status = Real().GetAttribute(descriptor, name, type, wanted, count, values);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && wanted > 0) {
    auto* const* configurations = static_cast<cudnnBackendDescriptor_t*>(values);
    for (int64_t i = 0; i < *count; ++i) State().proposed.push_back(ReadEngine(configurations[i]));
  }
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {  // asked once it is made
    State().planned.back().is_made = true;
    State().planned.back().workspace_bytes = *static_cast<const int64_t*>(values);
  }
  return status;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return Real().Finalize(descriptor);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t,
                                  cudnnBackendDescriptor_t) {
  return CUDNN_STATUS_EXECUTION_FAILED;  // there is no GPU
}

}  // extern "C"
}  // namespace pando
