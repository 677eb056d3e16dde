// The data sets that the program draws. With `synthetic-digits`, a machine without data and network
// can run the main job. A picture is a pure function of (split, index): strokes like handwriting
// for each digit, a random affine map, stroke width and noise. All of it comes from Philox with one
// fixed seed and uses only + − × ÷ √, so every machine draws the same bytes.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "common/check.h"
#include "common/hash.h"
#include "common/philox.h"
#include "data/augmenter.h"
#include "data/kinds.h"
#include "data/picture_set.h"

namespace pando {
namespace {

constexpr uint64_t kSeed = 0x70616e646f;  // "pando": fixed, so that there is one data set
constexpr uint32_t kSide = kDigitSide;
constexpr uint32_t kClassCount = 10;
constexpr float kMean = 0.1019f;             // of byte / 255 over the 60,000 training pictures
constexpr float kStddev = 0.2163f;           // (a test measures both)
constexpr uint64_t kSamplesMax = 4'000'000;  // per split: 3.1 GB of pictures
constexpr int kPiecesPerSpan = 4;            // straight pieces between two points of a stroke
constexpr float kFarSquared = 1e6f;          // squared pixels: more than any picture's width

PhiloxKey SplitKey(Split split) {
  return MakePhiloxKey(kSeed, RandomPurpose::kSynthetic, split == Split::kTrain ? "train" : "test");
}

struct Point {
  float x = 0, y = 0;
};
using Stroke = std::vector<Point>;  // a smooth line through its points; corners end a stroke
using Glyph = std::vector<Stroke>;  // one way to write a digit, in a unit box, y downwards

// Dice draws the random numbers of one picture, in the order of their use.
class Dice {
 public:
  Dice(Split split, uint64_t index) : key_(SplitKey(split)), index_(index) {}

  float Uniform(float low, float high) { return low + (high - low) * UniformFloat(NextWord()); }
  uint32_t Below(uint32_t bound) { return (NextWord() >> 8) % bound; }  // bound is small
  uint32_t NextWord() {
    if (used_ == block_.size()) {
      block_ = Philox4x32(
          {static_cast<uint32_t>(index_), static_cast<uint32_t>(index_ >> 32), block_count_++, 0},
          key_);
      used_ = 0;
    }
    return block_[used_++];
  }

 private:
  PhiloxKey key_;
  uint64_t index_;
  PhiloxBlock block_{};
  size_t used_ = block_.size();
  uint32_t block_count_ = 0;
};

// The style of one picture: an affine map from the unit box to pixels, the pen and the jitter.
struct Hand {
  explicit Hand(Dice& dice) {
    // sin and cos of a random angle within ±23° come from the tangent of half the angle, not from
    // libm, whose bits may differ.
    const float t = dice.Uniform(-0.2f, 0.2f);
    const float cosine = (1 - t * t) / (1 + t * t);
    const float sine = 2 * t / (1 + t * t);
    const float height = dice.Uniform(14.0f, 22.0f);  // pixels
    const float width = height * dice.Uniform(0.65f, 1.05f);
    const float shear = dice.Uniform(-0.35f, 0.35f);
    xx = cosine * width;
    xy = (cosine * -shear - sine) * height;
    yx = sine * width;
    yy = (sine * -shear + cosine) * height;
    centre.x = 14 + dice.Uniform(-3.0f, 3.0f);
    centre.y = 14 + dice.Uniform(-3.0f, 3.0f);
    pen_radius = dice.Uniform(0.6f, 1.7f);
    jitter = dice.Uniform(0.0f, 0.08f);
  }

  Point ToPixels(Point p, Dice& dice) const {
    const float x = p.x - 0.5f + dice.Uniform(-jitter, jitter);
    const float y = p.y - 0.5f + dice.Uniform(-jitter, jitter);
    return {centre.x + xx * x + xy * y, centre.y + yx * x + yy * y};
  }

  float xx, xy, yx, yy;
  Point centre;
  float pen_radius;  // pixels
  float jitter;      // each point's, in the unit box
};

// Canvas keeps each pixel's squared distance to the nearest line, which Ink turns into ink.
class Canvas {
 public:
  explicit Canvas(float pen_radius) : pen_radius_(pen_radius) { squared_.fill(kFarSquared); }

  void Line(Point a, Point b) {
    const float reach = pen_radius_ + 1;  // a line farther away leaves no ink
    const int side = static_cast<int>(kSide);
    const int x0 = std::max(0, static_cast<int>(std::min(a.x, b.x) - reach));
    const int x1 = std::min(side - 1, static_cast<int>(std::max(a.x, b.x) + reach));
    const int y0 = std::max(0, static_cast<int>(std::min(a.y, b.y) - reach));
    const int y1 = std::min(side - 1, static_cast<int>(std::max(a.y, b.y) + reach));
    const float dx = b.x - a.x, dy = b.y - a.y;
    const float inverse = 1 / std::max(dx * dx + dy * dy, 1e-6f);
    for (int y = y0; y <= y1; ++y) {
      for (int x = x0; x <= x1; ++x) {
        const float px = static_cast<float>(x) + 0.5f - a.x,
                    py = static_cast<float>(y) + 0.5f - a.y;
        const float along = std::clamp((px * dx + py * dy) * inverse, 0.0f, 1.0f);
        const float ex = px - along * dx, ey = py - along * dy;
        float& nearest = squared_[static_cast<size_t>(y) * kSide + static_cast<size_t>(x)];
        nearest = std::min(nearest, ex * ex + ey * ey);
      }
    }
  }

  // Returns 1 under the pen, 0 away from it, and a soft edge of one pixel.
  float Ink(size_t pixel) const {
    const float reach = pen_radius_ + 0.5f;
    if (squared_[pixel] >= reach * reach) return 0;  // most pixels: saves their square roots
    return std::min(reach - std::sqrt(squared_[pixel]), 1.0f);
  }

 private:
  std::array<float, kSide * kSide> squared_;
  float pen_radius_;
};

// One picture in four gets a stray dash, so that no single line identifies a digit.
void SlipPen(Dice& dice, Canvas& canvas) {
  if (dice.Below(4) != 0) return;
  const Point from{dice.Uniform(3, 25), dice.Uniform(3, 25)};
  canvas.Line(from, {from.x + dice.Uniform(-5, 5), from.y + dice.Uniform(-5, 5)});
}

// Draws a Catmull-Rom spline through the stroke's points, each moved a little, as short straight
// pieces.
void DrawStroke(const Stroke& stroke, const Hand& hand, Dice& dice, Canvas& canvas) {
  Stroke p;
  for (Point point : stroke) p.push_back(hand.ToPixels(point, dice));
  const size_t last = p.size() - 1;
  for (size_t i = 0; i < last; ++i) {
    const Point before = p[i == 0 ? 0 : i - 1], from = p[i], to = p[i + 1];
    const Point after = p[std::min(i + 2, last)];
    auto spline = [](float a, float b, float c, float d, float t) {
      const float quadratic = 2 * a - 5 * b + 4 * c - d;
      const float cubic = 3 * (b - c) + d - a;
      return 0.5f * (2 * b + t * (c - a + t * (quadratic + t * cubic)));
    };
    Point pen = from;
    for (int piece = 1; piece <= kPiecesPerSpan; ++piece) {
      const float t = static_cast<float>(piece) / kPiecesPerSpan;
      const Point next{spline(before.x, from.x, to.x, after.x, t),
                       spline(before.y, from.y, to.y, after.y, t)};
      canvas.Line(pen, next);
      pen = next;
    }
  }
}

// A table of drawings; each line has as much of a stroke as fits.
// clang-format off
std::array<std::vector<Glyph>, kClassCount> MakeGlyphs() {
  const Stroke four_leg{{.64f, .05f}, {.62f, .95f}};
  const Stroke seven_top{{.18f, .07f}, {.82f, .07f}};
  const Stroke seven_leg{{.82f, .07f}, {.55f, .5f}, {.42f, .95f}};
  const Stroke nine_loop{{.74f, .3f}, {.5f, .49f},  {.27f, .37f}, {.27f, .16f},
                         {.5f, .05f}, {.72f, .14f}, {.74f, .3f}};
  return {{
      {{{{.5f, .05f}, {.26f, .18f}, {.18f, .5f}, {.26f, .82f}, {.5f, .95f}, {.74f, .82f},
         {.82f, .5f}, {.74f, .18f}, {.5f, .05f}}}},
      {{{{.5f, .05f}, {.5f, .95f}}},
       {{{.28f, .28f}, {.54f, .05f}}, {{.54f, .05f}, {.52f, .95f}}},
       {{{.3f, .24f}, {.52f, .05f}}, {{.52f, .05f}, {.52f, .95f}}, {{.28f, .95f}, {.76f, .95f}}}},
      {{{{.2f, .26f}, {.32f, .09f}, {.56f, .05f}, {.76f, .2f}, {.71f, .43f}, {.45f, .7f},
         {.2f, .95f}},
        {{.2f, .95f}, {.82f, .95f}}},
       {{{.22f, .22f}, {.42f, .05f}, {.7f, .13f}, {.71f, .4f}, {.46f, .75f}, {.26f, .93f},
         {.17f, .82f}, {.34f, .76f}, {.6f, .92f}, {.84f, .88f}}}},
      {{{{.22f, .15f}, {.5f, .05f}, {.73f, .17f}, {.68f, .39f}, {.42f, .47f}},
        {{.42f, .47f}, {.73f, .56f}, {.78f, .8f}, {.5f, .95f}, {.2f, .85f}}},
       {{{.22f, .06f}, {.76f, .06f}}, {{.76f, .06f}, {.46f, .42f}},
        {{.46f, .42f}, {.75f, .52f}, {.79f, .77f}, {.53f, .95f}, {.2f, .86f}}}},
      {{four_leg, {{.64f, .05f}, {.14f, .66f}}, {{.14f, .66f}, {.86f, .66f}}},
       {four_leg, {{.27f, .1f}, {.2f, .52f}}, {{.2f, .52f}, {.82f, .52f}}}},
      {{{{.76f, .06f}, {.3f, .06f}}, {{.3f, .06f}, {.25f, .44f}},
        {{.25f, .44f}, {.54f, .38f}, {.79f, .58f}, {.71f, .86f}, {.43f, .95f}, {.18f, .84f}}}},
      {{{{.68f, .06f}, {.4f, .25f}, {.24f, .55f}, {.27f, .82f}, {.5f, .95f}, {.74f, .83f},
         {.74f, .61f}, {.5f, .5f}, {.27f, .66f}}},
       {{{.4f, .05f}, {.27f, .4f}, {.24f, .7f}, {.45f, .95f}, {.73f, .86f}, {.72f, .62f},
         {.48f, .55f}, {.26f, .72f}}}},
      {{seven_top, seven_leg}, {seven_top, seven_leg, {{.36f, .5f}, {.8f, .48f}}}},
      {{{{.5f, .47f}, {.28f, .35f}, {.28f, .15f}, {.5f, .05f}, {.72f, .15f}, {.72f, .35f},
         {.5f, .47f}, {.24f, .64f}, {.25f, .85f}, {.5f, .95f}, {.75f, .85f}, {.76f, .64f},
         {.5f, .47f}}}},
      {{nine_loop, {{.74f, .3f}, {.72f, .62f}, {.6f, .95f}}},
       {nine_loop, {{.74f, .3f}, {.75f, .7f}, {.56f, .95f}, {.28f, .87f}}}},
  }};
}
// clang-format on

Pictures DrawPictures(Split split, uint64_t count) {
  constexpr size_t kPictureBytes = kSide * kSide;
  Pictures pictures{.pixels = std::vector<uint8_t>(count * kPictureBytes), .labels = {}};
  for (uint64_t i = 0; i < count; ++i) {
    DrawDigit(split, i, std::span(pictures.pixels).subspan(i * kPictureBytes, kPictureBytes));
    pictures.labels.push_back(DigitLabel(i));
  }
  return pictures;
}

// ---- synthetic-imagenet -------------------------------------------------------------------------
// Pictures like ImageNet's, drawn by the program, for benchmarks that need neither files nor a
// decoder. There are 1,000 classes, each with its colours in a grid of 8 x 8 patches, under noise.
// A picture is a pure function of (split, index), made of whole numbers.

constexpr uint32_t kSideDefault = 224;
constexpr uint32_t kImageNetClasses = 1000;
constexpr uint32_t kPatches = 8;  // per side
constexpr size_t kPatchBytes = kPatches * kPatches * 3;
using Patches = std::array<uint8_t, kPatchBytes>;

const Normalisation& HalfGray() {
  static const Normalisation kNormalisation{{0.5f, 0.5f, 0.5f}, {0.2f, 0.2f, 0.2f}};
  return kNormalisation;
}

// Fills `out` with the bytes of blocks 0, 1, ... of the counter (block, low, high, 0).
void FillRandom(PhiloxKey key, uint64_t index, std::span<uint8_t> out) {
  const auto low = static_cast<uint32_t>(index), high = static_cast<uint32_t>(index >> 32);
  for (size_t at = 0; at < out.size(); at += sizeof(PhiloxBlock)) {
    const auto number = static_cast<uint32_t>(at / sizeof(PhiloxBlock));
    const PhiloxBlock block = Philox4x32({number, low, high, 0}, key);
    const auto bytes = std::as_bytes(std::span(block));
    const size_t size = std::min(bytes.size(), out.size() - at);
    for (size_t i = 0; i < size; ++i) out[at + i] = static_cast<uint8_t>(bytes[i]);
  }
}

PhiloxKey MakeKey(const char* what) { return MakePhiloxKey(0, RandomPurpose::kSynthetic, what); }

class SyntheticImageNet final : public DataSet {
 public:
  explicit SyntheticImageNet(const Job& job)
      : side_(job.resize == 0 ? kSideDefault : job.resize),
        train_count_(job.synthetic_train_samples),
        test_count_(job.synthetic_test_samples),
        augmenter_(job) {}

  SampleShape shape() const override { return {side_, side_, 3}; }
  uint32_t class_count() const override { return kImageNetClasses; }
  uint64_t sample_count(Split split) const override {
    return split == Split::kTrain ? train_count_ : test_count_;
  }
  const Normalisation* normalisation() const override { return &HalfGray(); }
  // Here a crop is a shift, so the parts outside of it are not drawn.
  const Augmenter* augmenter() const override { return &augmenter_; }
  uint64_t fingerprint() const override {
    const std::array<uint64_t, 3> sizes{side_, train_count_, test_count_};
    return Hash64(std::as_bytes(std::span(sizes)), Hash64("synthetic-imagenet"));
  }
  Result<int32_t> Label(Split, uint64_t index) const override {
    return static_cast<int32_t>(index % kImageNetClasses);
  }
  Status Fill(const Samples& part, size_t place, Batch* batch) const override {
    const size_t picture_bytes = shape().size();
    DrawMoves(part, place, batch);
    for (const uint64_t index : part.indices) {
      PANDO_CHECK(index < sample_count(part.split));
      Draw(part.split, index,
           std::span(batch->bytes).subspan(place * picture_bytes, picture_bytes));
      batch->labels[place++] = static_cast<int32_t>(index % kImageNetClasses);
    }
    return Status();
  }

 private:
  // Draws half the colours of the class and half noise.
  void Draw(Split split, uint64_t index, std::span<uint8_t> pixels) const {
    Patches colours;
    FillRandom(MakeKey("class"), index % kImageNetClasses, colours);
    FillRandom(MakeKey(split == Split::kTrain ? "train" : "test"), index, pixels);
    uint8_t* out = pixels.data();
    for (uint32_t y = 0; y < side_; ++y) {
      const uint8_t* row = &colours[size_t{y * kPatches / side_} * kPatches * 3];
      for (uint32_t x = 0; x < side_; ++x) {
        const uint8_t* colour = row + size_t{x * kPatches / side_} * 3;
        for (uint32_t c = 0; c < 3; ++c, ++out)
          *out = static_cast<uint8_t>((*out >> 1) + (colour[c] >> 1));
      }
    }
  }

  const uint32_t side_;
  const uint64_t train_count_;
  const uint64_t test_count_;
  const Augmenter augmenter_;
};

}  // namespace

void DrawDigit(Split split, uint64_t index, std::span<uint8_t> picture) {
  PANDO_CHECK(picture.size() == kSide * kSide);
  Dice dice(split, index);
  const Hand hand(dice);
  Canvas canvas(hand.pen_radius);
  static const std::array<std::vector<Glyph>, kClassCount> kGlyphs = MakeGlyphs();
  const std::vector<Glyph>& ways = kGlyphs[DigitLabel(index)];
  const Glyph& glyph = ways[dice.Below(static_cast<uint32_t>(ways.size()))];
  for (const Stroke& stroke : glyph) DrawStroke(stroke, hand, dice, canvas);
  SlipPen(dice, canvas);

  const float ink = dice.Uniform(120, 255);
  const float noise = dice.Uniform(0, 0.25f);  // strength of the two bytes drawn per pixel
  std::array<uint32_t, kSide * kSide / 2> words;
  for (uint32_t& word : words) word = dice.NextWord();
  for (size_t i = 0; i < picture.size(); ++i) {
    const uint32_t bits = words[i / 2] >> (16 * (i % 2));
    const int grain = static_cast<int>(bits & 0xff) - static_cast<int>(bits >> 8 & 0xff);
    const float value = canvas.Ink(i) * ink + noise * static_cast<float>(grain);
    picture[i] = static_cast<uint8_t>(std::clamp(static_cast<int>(value + 0.5f), 0, 255));
  }
}

// The pictures are drawn once and kept: as many as MNIST's take 55 MB.
OpenedDataSet OpenSyntheticDigits(const Job& job, const DataWarning&) {
  const std::pair<const char*, uint64_t> counts[] = {
      {"data.synthetic_train_samples", job.synthetic_train_samples},
      {"data.synthetic_test_samples", job.synthetic_test_samples}};
  for (const auto& [key, count] : counts) {
    if (count >= 1 && count <= kSamplesMax) continue;
    return InvalidArgument(fmt::format("{} is {}, expected 1 to {}", key, count, kSamplesMax));
  }
  return OpenedDataSet(std::make_unique<PictureSet>(
      PictureSet::Parts{.shape = {kSide, kSide, 1},
                        .class_count = kClassCount,
                        .class_names = {},
                        .normalisation = {{kMean}, {kStddev}},
                        .train = DrawPictures(Split::kTrain, job.synthetic_train_samples),
                        .test = DrawPictures(Split::kTest, job.synthetic_test_samples)},
      job));
}

OpenedDataSet OpenSyntheticImageNet(const Job& job, const DataWarning&) {
  return OpenedDataSet(std::make_unique<SyntheticImageNet>(job));
}

}  // namespace pando
