// FakeCudnn is the state of the library in fake_cudnn.cc, which stands in for libcudnn.so.9 without
// a GPU: what it proposes, where it fails, and what was executed. A test gets it by the library's
// function PandoFakeCudnn.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace pando {

struct FakeEngine {
  int64_t index = 0;
  std::map<int64_t, int64_t> knobs;  // values by type
  bool operator==(const FakeEngine&) const = default;
};

struct FakeCudnn {
  enum class Failure : uint8_t { kNone, kFinalize, kCount, kResults };
  std::map<int, std::vector<FakeEngine>> proposals;  // by cudnnBackendHeurMode_t
  std::map<int, Failure> failures;                   // of heuristics, by mode
  std::map<int64_t, std::set<int>> notes;            // cudnnBackendNumericalNote_t, by engine
  std::map<int64_t, std::set<int>> behavior_notes;   // cudnnBackendBehaviorNote_t, by engine
  std::set<int64_t> without_notes;                   // engines that cannot tell them
  std::map<int64_t, int64_t> workspace_bytes;        // by engine
  std::set<int64_t> without_plan;                    // engines for other GPUs
  std::vector<FakeEngine> planned;                   // in this order; also those without a plan
  std::vector<FakeEngine> executed;
  std::vector<float> betas;  // of data gradients, as set
};

}  // namespace pando
