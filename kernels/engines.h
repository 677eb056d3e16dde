// Which of cuDNN's engines computes a convolution (P39). An engine decides the bits, so it can be
// kept, shared and made again. run/engine_file.h has its text. Used by kernels/cuda and by those
// that open a GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace pando {

struct ConvEngine {
  int64_t index = 0;                 // cuDNN's, of this kind of convolution
  std::map<int64_t, int64_t> knobs;  // its settings: values by cuDNN's type of knob
  uint64_t workspace_bytes = 0;
  std::string reason;  // for people: "measured 0.123 ms, number 2 of 7 that cuDNN proposes"
  bool operator==(const ConvEngine&) const = default;
};

// By problem: "forward of 32 x 28 x 28 x 1, ...". Problems that are missing are computed by the
// first engine that cuDNN's heuristics propose.
using EngineChoice = std::map<std::string, ConvEngine>;

// A line for the log, once for each problem, when it is first computed.
struct EngineNote {
  std::string text;
  bool is_fallback = false;  // there is no engine: our own kernel computes it, slowly
};
using OnEngineNote = std::function<void(const EngineNote&)>;

}  // namespace pando
