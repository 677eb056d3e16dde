// Resampler resizes one picture of bytes with a triangle filter as wide as a target pixel (the
// antialiased bilinear filter of PIL and torchvision). Data sets that resize or crop call it. It
// uses whole numbers, except for the weights, which use only + - * /. So every machine makes the
// same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pando {

struct PictureView {
  const uint8_t* pixels = nullptr;  // [height, width, channel], rows packed
  uint32_t height = 0;
  uint32_t width = 0;
  uint32_t channels = 1;
};

struct PictureBox {  // a part of a picture, in pixels
  uint32_t y = 0;
  uint32_t x = 0;
  uint32_t height = 0;
  uint32_t width = 0;
};

// Threads: one at a time. Owns: scratch memory, kept between pictures.
class Resampler {
 public:
  // Writes the box of `in` as out_height x out_width pixels of in.channels channels.
  // REQUIRES: the box is inside of `in` and not empty; in.channels is 1 or 3.
  void Resize(const PictureView& in, const PictureBox& box, uint32_t out_height, uint32_t out_width,
              uint8_t* out);

 private:
  struct Axis {  // for each target pixel: its first source pixel and the weights
    uint32_t source_size = 0;
    uint32_t target_size = 0;
    uint32_t tap_count = 0;
    std::vector<uint32_t> first;
    std::vector<int32_t> weights;  // [target, tap], sums of kOne; unused taps are zero
    void Plan(uint32_t source, uint32_t target);
  };
  void MakeRow(const uint8_t* source, size_t source_row_bytes, uint32_t y);

  Axis rows_;
  Axis columns_;
  std::vector<int32_t> sums_;  // for one row of the box, resized downwards
  std::vector<uint8_t> row_;
};

}  // namespace pando
