// DigitPainter: the data set `synthetic-digits`, drawn by the program, so that a machine without
// data and network can run the main job. Called by dataset.cc. A picture is a pure function of
// (split, index): strokes like handwriting for each digit, a random affine map, stroke width and
// noise. All of it comes from Philox under one fixed seed and uses + − × ÷ √ alone, so every
// machine draws the same bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/batch.h"
#include "data/dataset.h"

namespace pando {

// Threads: immutable once made; Draw may be called from several at once.
class DigitPainter {
 public:
  static constexpr uint32_t kSide = 28;  // pictures are 28 x 28 x 1, like MNIST's
  static constexpr uint32_t kClassCount = 10;
  static constexpr float kMean = 0.1019f;    // of byte / 255 over the 60,000 training pictures
  static constexpr float kStddev = 0.2163f;  // (a test measures both)

  DigitPainter();
  // Ten consecutive pictures have each digit once.
  static uint8_t Label(uint64_t index) { return static_cast<uint8_t>(index % kClassCount); }
  // REQUIRES: picture.size() == kSide * kSide.
  void Draw(Split split, uint64_t index, std::span<uint8_t> picture) const;

 private:
  struct Point {
    float x = 0, y = 0;
  };
  using Stroke = std::vector<Point>;  // a smooth line through its points; corners end a stroke
  using Glyph = std::vector<Stroke>;  // one way to write a digit, in a unit box, y downwards
  class Dice;
  class Canvas;
  struct Hand;

  static std::array<std::vector<Glyph>, kClassCount> MakeGlyphs();
  static void DrawStroke(const Stroke& stroke, const Hand& hand, Dice& dice, Canvas& canvas);
  static void SlipPen(Dice& dice, Canvas& canvas);
  std::array<std::vector<Glyph>, kClassCount> glyphs_;
};

}  // namespace pando
