// Shared by the stages of models/layers: arrays of floats among the bytes that a stage keeps, and
// the factors of dropout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "models/stage.h"

namespace pando {

inline float* Floats(std::byte* bytes) { return reinterpret_cast<float*>(bytes); }
inline const float* Floats(const std::byte* bytes) { return reinterpret_cast<const float*>(bytes); }

// With slack, in whole lines.
inline size_t FloatBytes(size_t count) {
  constexpr size_t kLineFloats = 16;
  return (count + kSlackElements + kLineFloats - 1) / kLineFloats * kLineFloats * sizeof(float);
}

// Of layers whose output size is an option.
inline std::string FindNoOutput(const LayerSpec& spec) {
  return spec.out_units == 0 ? "has an output of size 0; give it at least 1" : "";
}

// A dropout layer's factors; there are none in evaluation.
class DropoutMask {
 public:
  DropoutMask(const LayerSpec& spec, size_t floats_per_sample)
      : name_(spec.name), probability_(spec.probability), floats_per_sample_(floats_per_sample) {}

  bool IsActive(const Pass& pass) const { return pass.mode == Mode::kTrain && probability_ > 0.0f; }
  void Draw(const Pass& pass, float* factors) const {
    if (!IsActive(pass)) return;
    DropoutFactors(pass.device, MakePhiloxKey(pass.seed, RandomPurpose::kDropout, name_),
                   pass.numbers, probability_, floats_per_sample_ * pass.sample_count, factors);
  }
  size_t bytes(uint32_t sample_count) const {
    return FloatBytes(floats_per_sample_ * sample_count);
  }

 private:
  std::string name_;
  float probability_;
  size_t floats_per_sample_;
};

}  // namespace pando
