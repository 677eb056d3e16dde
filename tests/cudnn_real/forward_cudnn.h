// ForwardCudnn is the state of the library in forward_cudnn.cc, which stands before the real
// libcudnn.so.9: the GPU that it describes to cuDNN, and what cuDNN proposed and planned. A test
// gets it by the library's function PandoForwardCudnn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace pando {

// As cuDNN itself describes it.
struct RealEngine {
  int64_t index = -1;
  bool has_notes = false;        // otherwise cuDNN cannot tell them
  std::set<int> notes;           // cudnnBackendNumericalNote_t
  std::set<int> behavior_notes;  // cudnnBackendBehaviorNote_t
};

struct RealPlan {
  RealEngine engine;
  bool is_made = false;  // otherwise cuDNN has refused it
  int64_t workspace_bytes = 0;
};

struct ForwardCudnn {
  std::string error;  // why the real cuDNN cannot be used; empty: it can
  size_t version = 0;
  size_t cuda_major = 0;             // of the CUDA that it is built for
  std::string gpu_json;              // set before a handle is created
  std::vector<RealEngine> proposed;  // by the heuristics, in the order of the calls
  std::vector<RealPlan> planned;     // the plans that were tried
};

extern "C" ForwardCudnn* PandoForwardCudnn();

}  // namespace pando
