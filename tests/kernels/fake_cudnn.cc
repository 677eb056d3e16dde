// libcudnn.so.9 without a GPU: descriptors that remember the attributes that kernels/cuda/cudnn.cc
// sets, and heuristics that propose what a test says (fake_cudnn.h).
#include "tests/kernels/fake_cudnn.h"

#include <cudnn.h>

namespace {

using pando::FakeCudnn;
using pando::FakeEngine;
using Failure = FakeCudnn::Failure;

FakeCudnn& TheFake() {
  static FakeCudnn fake;
  return fake;
}

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  FakeEngine engine;  // of engines, configurations and plans
  int64_t knob_type = 0;
  int64_t knob_value = 0;
  int mode = 0;  // of a heuristic
};

Descriptor& At(void* descriptor) { return *static_cast<Descriptor*>(descriptor); }

int64_t GetResults(Descriptor& heuristic, int64_t count, void** handles) {
  const std::vector<FakeEngine>& engines = TheFake().proposals[heuristic.mode];
  for (int64_t i = 0; i < count; ++i) At(handles[i]).engine = engines[static_cast<size_t>(i)];
  return static_cast<int64_t>(engines.size());
}

int64_t GetKnobs(const Descriptor& configuration, void** handles) {
  int64_t count = 0;
  for (const auto& [type, value] : configuration.engine.knobs) {
    At(handles[count]).knob_type = type;
    At(handles[count++]).knob_value = value;
  }
  return count;
}

// Notes are enumerators, of the size of int.
cudnnStatus_t GetNotes(const Descriptor& engine, const std::map<int64_t, std::set<int>>& all,
                       int64_t* count, int* notes) {
  const int64_t index = engine.engine.index;
  if (TheFake().without_notes.contains(index)) return CUDNN_STATUS_NOT_SUPPORTED;
  *count = 0;
  if (!all.contains(index)) return CUDNN_STATUS_SUCCESS;
  for (const int note : all.at(index)) notes[(*count)++] = note;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

FakeCudnn* PandoFakeCudnn() { return &TheFake(); }

size_t cudnnGetVersion() { return 91900; }
size_t cudnnGetCudartVersion() { return 13000; }
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = reinterpret_cast<cudnnHandle_t>(&TheFake());
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t) { return CUDNN_STATUS_SUCCESS; }
const char* cudnnGetErrorString(cudnnStatus_t) { return "an error of the fake cuDNN"; }

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new Descriptor{.type = type, .engine = {}};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete &At(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t, const void* values) {
  Descriptor& at = At(descriptor);
  if (name == CUDNN_ATTR_ENGINEHEUR_MODE) at.mode = *static_cast<const int*>(values);
  if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
    at.engine = At(*static_cast<void* const*>(values)).engine;
  if (name == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA)
    TheFake().betas.push_back(*static_cast<const float*>(values));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t wanted, int64_t* count,
                                       void* values) {
  Descriptor& at = At(descriptor);
  auto** handles = static_cast<void**>(values);
  *count = 1;
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
      const Failure failure = TheFake().failures[at.mode];
      if (failure == (wanted == 0 ? Failure::kCount : Failure::kResults))
        return CUDNN_STATUS_NOT_SUPPORTED;
      *count = GetResults(at, wanted, handles);
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      At(handles[0]).engine = at.engine;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
      *count = GetKnobs(at, handles);
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
      *static_cast<int64_t*>(values) = at.engine.index;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      return GetNotes(at, TheFake().notes, count, static_cast<int*>(values));
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
      return GetNotes(at, TheFake().behavior_notes, count, static_cast<int*>(values));
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE:
      *static_cast<int*>(values) = static_cast<int>(at.knob_type);
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE:
      *static_cast<int64_t*>(values) = at.knob_value;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      *static_cast<int64_t*>(values) = TheFake().workspace_bytes[at.engine.index];
      return CUDNN_STATUS_SUCCESS;
    default:
      return CUDNN_STATUS_BAD_PARAM;
  }
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  const Descriptor& at = At(descriptor);
  bool is_sound = true;
  if (at.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
    is_sound = TheFake().failures[at.mode] != Failure::kFinalize;
  if (at.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    TheFake().planned.push_back(at.engine);
    is_sound = !TheFake().without_plan.contains(at.engine.index);
  }
  return is_sound ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t) {
  TheFake().executed.push_back(At(plan).engine);
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
