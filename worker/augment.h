// What data.augment draws for a training picture: a pure function of (seed, epoch, sample), so that
// neither who reads a picture nor how a step is cut into micro-batches changes it (P37). Called by
// the data sets of pictures.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/job.h"
#include "common/philox.h"
#include "worker/resample.h"

namespace pando {

// Threads: immutable.
class Augmenter {
 public:
  Augmenter() = default;  // draws nothing
  explicit Augmenter(const Job& job);

  struct Name {  // of a picture
    uint64_t epoch = 0;
    uint64_t sample = 0;
  };
  bool crops() const { return crops_; }
  bool IsFlipped(Name name) const;

  struct Shift {  // of a picture, downwards and to the right
    int32_t y = 0;
    int32_t x = 0;
  };
  // The crop of a picture with a black rim of an eighth of its sides: 4 pixels for 32.
  Shift DrawShift(Name name, uint32_t height, uint32_t width) const;
  // The crop of a photograph, to be resized: 8 to 100 % of its area, sides 3:4 to 4:3, as
  // torchvision's RandomResizedCrop draws it.
  PictureBox DrawBox(Name name, uint32_t height, uint32_t width) const;

 private:
  PhiloxBlock Draw(Name name, uint32_t use) const;

  bool crops_ = false;
  bool flips_ = false;
  PhiloxKey key_{};
};

// Moves the picture in place; black where nothing moves to.
// REQUIRES: shift within the picture's sides.
void ShiftPicture(Augmenter::Shift shift, uint32_t height, uint32_t width, uint32_t channels,
                  std::span<uint8_t> pixels);
// Left becomes right, in place.
void FlipPicture(uint32_t height, uint32_t width, uint32_t channels, std::span<uint8_t> pixels);

}  // namespace pando
