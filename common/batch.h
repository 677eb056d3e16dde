// Batch holds the samples of one micro-batch, as a data set gives them to a network.
#pragma once

#include <cstdint>
#include <vector>

#include "common/float_buffer.h"

namespace pando {

struct SampleShape {  // the shape of one sample; a table's row is 1 x 1 x columns
  uint32_t height = 1;
  uint32_t width = 1;
  uint32_t channels = 1;
  constexpr size_t size() const { return size_t{height} * width * channels; }
  bool operator==(const SampleShape&) const = default;
};

// The augmentation of a picture: move it, fill uncovered places with black, then possibly flip it.
struct PictureMove {
  int16_t down = 0;         // pixels
  int16_t right = 0;        // pixels
  bool is_flipped = false;  // left becomes right
};

// Returns the source pixel, counted row by row, that a moved picture shows at (y, x). A negative
// result means black.
constexpr int64_t SourcePixel(const SampleShape& shape, PictureMove move, uint32_t y, uint32_t x) {
  const int64_t source_y = int64_t{y} - move.down;
  const int64_t source_x = int64_t{move.is_flipped ? shape.width - 1 - x : x} - move.right;
  const bool is_black =
      source_y < 0 || source_y >= shape.height || source_x < 0 || source_x >= shape.width;
  return is_black ? -1 : source_y * shape.width + source_x;
}

// value = (byte / 255 − mean[c]) / stddev[c]
struct Normalisation {
  std::vector<float> mean;    // per channel
  std::vector<float> stddev;  // per channel
};

struct Batch {
  SampleShape shape;
  std::vector<uint8_t> bytes;      // pictures: [sample, height, width, channel], not yet normalised
  std::vector<float> values;       // tables: [sample, column], ready to use; `bytes` is then empty
  std::vector<PictureMove> moves;  // [sample], applied when the batch is imported; empty: none
  const Normalisation* normalisation = nullptr;  // for pictures; owned by the data set
  std::vector<int32_t> labels;                   // [sample], class index
  SharedBuffer pinned;  // samples and labels in memory that a GPU can copy from (kernels/ops)
  uint32_t sample_count() const { return static_cast<uint32_t>(labels.size()); }
};

}  // namespace pando
