// The random augmentation of a training picture. It is a pure function of (seed, epoch, sample), so
// that it depends neither on the reader nor on how a step is cut into micro-batches (P37). The data
// sets of pictures call it.
#pragma once

#include <cstdint>

#include "common/batch.h"
#include "common/philox.h"
#include "data/resampler.h"
#include "plan/job.h"

namespace pando {

// Threads: any, since it never changes.
class Augmenter {
 public:
  Augmenter() = default;  // draws nothing
  explicit Augmenter(const Job& job);
  Augmenter WithoutCrops() const;

  struct Name {  // names the draw for one picture
    uint64_t epoch = 0;
    uint64_t sample = 0;
  };
  bool crops() const { return crops_; }
  bool flips() const { return flips_; }

  // Draws the crop of a picture with a black rim of an eighth of its sides (4 pixels for 32), and
  // whether it is flipped.
  PictureMove DrawMove(Name name, uint32_t height, uint32_t width) const;
  // Draws the crop of a photograph, which is then resized: 8 to 100 % of its area, sides 3:4 to
  // 4:3, drawn as in torchvision's RandomResizedCrop.
  PictureBox DrawBox(Name name, uint32_t height, uint32_t width) const;

 private:
  PhiloxBlock Draw(Name name, uint32_t use) const;

  bool crops_ = false;
  bool flips_ = false;
  PhiloxKey key_{};
};

}  // namespace pando
