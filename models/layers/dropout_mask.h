// DropoutMask has the factors of a dropout layer; evaluation has none.
#pragma once

#include <string>

#include "models/stage_builder.h"

namespace pando {

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
