// Batch: the samples of one micro-batch as a data set hands them to a network.
#pragma once

#include <cstdint>
#include <vector>

#include "common/bad_pictures.h"
#include "common/float_buffer.h"

namespace pando {

struct SampleShape {  // of one sample; a row of a table is 1 x 1 x columns
  uint32_t height = 1;
  uint32_t width = 1;
  uint32_t channels = 1;
  size_t size() const { return size_t{height} * width * channels; }
  bool operator==(const SampleShape&) const = default;
};

// value = (byte / 255 − mean[c]) / stddev[c]
struct Normalisation {
  std::vector<float> mean;    // per channel
  std::vector<float> stddev;  // per channel
};

struct Batch {
  SampleShape shape;
  std::vector<uint8_t> bytes;  // pictures: [sample, height, width, channel], not yet normalised
  std::vector<float> values;   // tables: [sample, column], ready; one of the two is empty
  const Normalisation* normalisation = nullptr;  // of the pictures; owned by the data set
  std::vector<int32_t> labels;                   // [sample], class index
  std::vector<BadPicture> replaced;              // pictures in whose place others were read
  SharedBuffer pinned;  // where a GPU fetches samples and labels from (kernels/batch_block)
  uint32_t sample_count() const { return static_cast<uint32_t>(labels.size()); }
};

}  // namespace pando
