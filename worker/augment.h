// What data.augment draws for a training picture: a pure function of (seed, epoch, sample), so that
// neither who reads a picture nor how a step is cut into micro-batches changes it (P37). Called by
// the data sets of pictures.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/batch.h"
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
  bool flips() const { return flips_; }
  bool IsFlipped(Name name) const;

  // The crop of a picture with a black rim of an eighth of its sides: 4 pixels for 32; and whether
  // it is flipped.
  PictureMove DrawMove(Name name, uint32_t height, uint32_t width) const;
  // The crop of a photograph, to be resized: 8 to 100 % of its area, sides 3:4 to 4:3, as
  // torchvision's RandomResizedCrop draws it.
  PictureBox DrawBox(Name name, uint32_t height, uint32_t width) const;

 private:
  PhiloxBlock Draw(Name name, uint32_t use) const;

  bool crops_ = false;
  bool flips_ = false;
  PhiloxKey key_{};
};

// batch->moves of the training pictures so named; none where the augmenter draws none.
void DrawMoves(const Augmenter& augmenter, uint64_t epoch, std::span<const uint64_t> samples,
               Batch* batch);

}  // namespace pando
