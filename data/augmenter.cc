#include "data/augmenter.h"

#include <algorithm>
#include <cmath>

namespace pando {
namespace {

constexpr uint32_t kRimShare = 8;  // share of the side: 4 pixels of CIFAR's 32, the usual value
// The limits of torchvision's RandomResizedCrop.
constexpr double kAreaMin = 0.08;
constexpr double kLogRatioMax = 0.28768207245178085;  // ln(4/3)
constexpr uint32_t kBoxTries = 10;
// The purpose of a draw, so that two uses of a picture share no numbers.
constexpr uint32_t kUseShift = 0;
constexpr uint32_t kUseBox = 1;  // its retries use the next numbers

// Returns a uniform number in [0, bound).
uint32_t UniformBelow(uint32_t bits, uint32_t bound) {
  return static_cast<uint32_t>((uint64_t{bits} * bound) >> 32);
}

// libm's exp may differ between machines; this function uses only + * / (P36). REQUIRES: |x| < 0.3.
// The first omitted term is below 1e-17.
double ExpOfSmall(double x) {
  constexpr int kTerms = 14;
  double sum = 1, term = 1;
  for (int n = 1; n <= kTerms; ++n) {
    term = term * x / n;
    sum += term;
  }
  return sum;
}

// Returns the largest box in the middle whose sides are within 3:4 and 4:3.
PictureBox CentreBox(uint32_t height, uint32_t width) {
  const uint32_t h = std::min(height, (width * 4 + 2) / 3);
  const uint32_t w = std::min(width, (height * 4 + 2) / 3);
  return {(height - h) / 2, (width - w) / 2, h, w};
}

}  // namespace

Augmenter::Augmenter(const Job& job)
    : crops_(std::ranges::count(job.augment, "crop") > 0),
      flips_(std::ranges::count(job.augment, "flip") > 0),
      key_(MakePhiloxKey(job.seed, RandomPurpose::kAugment)) {}

Augmenter Augmenter::WithoutCrops() const {
  Augmenter result = *this;
  result.crops_ = false;
  return result;
}

PhiloxBlock Augmenter::Draw(Name name, uint32_t use) const {
  return Philox4x32({static_cast<uint32_t>(name.sample), static_cast<uint32_t>(name.sample >> 32),
                     static_cast<uint32_t>(name.epoch), use},
                    key_);
}

PictureMove Augmenter::DrawMove(Name name, uint32_t height, uint32_t width) const {
  const PhiloxBlock bits = Draw(name, kUseShift);
  PictureMove move{.is_flipped = flips_ && bits[2] >> 31 != 0};
  if (!crops_) return move;
  const auto draw = [](uint32_t b, uint32_t side) {
    const uint32_t rim = side / kRimShare;
    return static_cast<int16_t>(static_cast<int32_t>(UniformBelow(b, 2 * rim + 1)) -
                                static_cast<int32_t>(rim));
  };
  move.down = draw(bits[0], height);
  move.right = draw(bits[1], width);
  return move;
}

PictureBox Augmenter::DrawBox(Name name, uint32_t height, uint32_t width) const {
  const double area = static_cast<double>(height) * width;
  for (uint32_t attempt = 0; attempt < kBoxTries; ++attempt) {
    const PhiloxBlock bits = Draw(name, kUseBox + attempt);
    const double wanted = area * (kAreaMin + (1 - kAreaMin) * UniformFloat(bits[0]));
    const double ratio = ExpOfSmall(kLogRatioMax * (2.0 * UniformFloat(bits[1]) - 1));
    const auto w = static_cast<uint32_t>(std::sqrt(wanted * ratio) + 0.5);
    const auto h = static_cast<uint32_t>(std::sqrt(wanted / ratio) + 0.5);
    if (w == 0 || w > width || h == 0 || h > height) continue;
    return {UniformBelow(bits[2], height - h + 1), UniformBelow(bits[3], width - w + 1), h, w};
  }
  return CentreBox(height, width);
}

}  // namespace pando
