#include "data/resampler.h"

#include <doctest/doctest.h>

#include <numeric>
#include <vector>

#include "common/philox.h"

namespace pando {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes Resized(const Bytes& pixels, PictureView in, uint32_t height, uint32_t width) {
  in.pixels = pixels.data();
  Bytes out(size_t{height} * width * in.channels);
  Resampler().Resize(in, {0, 0, in.height, in.width}, height, width, out.data());
  return out;
}

TEST_CASE("a picture resized to its own size is the same picture") {
  Bytes pixels(5 * 7 * 3);
  std::iota(pixels.begin(), pixels.end(), uint8_t{40});
  CHECK(Resized(pixels, {nullptr, 5, 7, 3}, 5, 7) == pixels);
}

TEST_CASE("enlarging lies on the line between neighbours, and rims are held") {
  CHECK(Resized({0, 100}, {nullptr, 1, 2, 1}, 1, 4) == Bytes{0, 25, 75, 100});
  CHECK(Resized({0, 100}, {nullptr, 2, 1, 1}, 4, 1) == Bytes{0, 25, 75, 100});
}

// The triangle of 4 -> 2 reaches 2 pixels: weights 3/4, 3/4, 1/4 of the first three, over 7/4.
TEST_CASE("shrinking averages over a triangle as wide as two target pixels") {
  CHECK(Resized({0, 40, 80, 120}, {nullptr, 1, 4, 1}, 1, 2) == Bytes{29, 91});
  CHECK(Resized({0, 40, 80, 120}, {nullptr, 4, 1, 1}, 2, 1) == Bytes{29, 91});
}

TEST_CASE("a plain picture stays plain at any size, at both ends of the range") {
  for (uint8_t value : Bytes{0, 1, 254, 255}) {
    for (uint32_t side : {1u, 2u, 3u, 28u, 31u, 97u, 224u}) {
      const Bytes out = Resized(Bytes(31 * 45 * 3, value), {nullptr, 31, 45, 3}, side, side);
      CHECK(out == Bytes(size_t{side} * side * 3, value));
    }
  }
}

TEST_CASE("channels are resized apart") {
  const Bytes out = Resized({0, 10, 200, 100, 10, 0}, {nullptr, 1, 2, 3}, 1, 4);
  CHECK(out == Bytes{0, 10, 200, 25, 10, 150, 75, 10, 50, 100, 10, 0});
}

TEST_CASE("a box is resized as if it were a separate picture") {
  Bytes pixels(size_t{40} * 60 * 3);
  for (size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<uint8_t>(Philox4x32({static_cast<uint32_t>(i), 0, 0, 0}, {1, 2})[0]);
  }
  const PictureBox box{7, 11, 21, 34};
  Bytes cut;
  for (uint32_t y = box.y; y < box.y + box.height; ++y) {
    const auto row = pixels.begin() + (y * 60 + box.x) * 3;
    cut.insert(cut.end(), row, row + box.width * 3);
  }
  Bytes out(16 * 16 * 3);
  Resampler resampler;
  resampler.Resize({pixels.data(), 40, 60, 3}, box, 16, 16, out.data());
  CHECK(out == Resized(cut, {nullptr, box.height, box.width, 3}, 16, 16));
  // State that the resampler kept from another picture does not matter.
  resampler.Resize({pixels.data(), 40, 60, 3}, {0, 0, 40, 60}, 9, 9, out.data());
  resampler.Resize({pixels.data(), 40, 60, 3}, box, 16, 16, out.data());
  CHECK(out == Resized(cut, {nullptr, box.height, box.width, 3}, 16, 16));
}

}  // namespace
}  // namespace pando
