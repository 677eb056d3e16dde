#include "worker/augment.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace pando {
namespace {

constexpr uint32_t kRimShare = 8;  // of the side: 4 pixels of CIFAR's 32, as everybody does it
// RandomResizedCrop's.
constexpr double kAreaMin = 0.08;
constexpr double kLogRatioMax = 0.28768207245178085;  // ln(4/3)
constexpr uint32_t kBoxTries = 10;
// What a draw is for: two uses of a picture share no numbers.
constexpr uint32_t kUseShift = 0;
constexpr uint32_t kUseBox = 1;  // and the tries after it

bool Names(const std::vector<std::string>& words, const char* word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Uniform in [0, bound).
uint32_t UniformBelow(uint32_t bits, uint32_t bound) {
  return static_cast<uint32_t>((uint64_t{bits} * bound) >> 32);
}

// libm's exp may differ between machines; this one is + * / alone (P36).
// REQUIRES: |x| < 0.3. The first term left out is below 1e-17.
double ExpOfSmall(double x) {
  constexpr int kTerms = 14;
  double sum = 1, term = 1;
  for (int n = 1; n <= kTerms; ++n) {
    term = term * x / n;
    sum += term;
  }
  return sum;
}

// The largest box in the middle whose sides are within 3:4 and 4:3.
PictureBox CentreBox(uint32_t height, uint32_t width) {
  const uint32_t h = std::min(height, (width * 4 + 2) / 3);
  const uint32_t w = std::min(width, (height * 4 + 2) / 3);
  return {(height - h) / 2, (width - w) / 2, h, w};
}

}  // namespace

Augmenter::Augmenter(const Job& job)
    : crops_(Names(job.augment, "crop")),
      flips_(Names(job.augment, "flip")),
      key_(MakePhiloxKey(job.seed, RandomPurpose::kAugment)) {}

PhiloxBlock Augmenter::Draw(Name name, uint32_t use) const {
  return Philox4x32({static_cast<uint32_t>(name.sample), static_cast<uint32_t>(name.sample >> 32),
                     static_cast<uint32_t>(name.epoch), use},
                    key_);
}

bool Augmenter::IsFlipped(Name name) const { return flips_ && Draw(name, kUseShift)[2] >> 31 != 0; }

Augmenter::Shift Augmenter::DrawShift(Name name, uint32_t height, uint32_t width) const {
  if (!crops_) return {};
  const PhiloxBlock bits = Draw(name, kUseShift);
  const auto draw = [](uint32_t b, uint32_t side) {
    const uint32_t rim = side / kRimShare;
    return static_cast<int32_t>(UniformBelow(b, 2 * rim + 1)) - static_cast<int32_t>(rim);
  };
  return {draw(bits[0], height), draw(bits[1], width)};
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

void ShiftPicture(Augmenter::Shift shift, uint32_t height, uint32_t width, uint32_t channels,
                  std::span<uint8_t> pixels) {
  if (shift.y == 0 && shift.x == 0) return;
  const size_t row_bytes = size_t{width} * channels;
  const size_t skipped = size_t(std::abs(shift.x)) * channels;
  const size_t kept = row_bytes - skipped;
  for (uint32_t i = 0; i < height; ++i) {
    const uint32_t y = shift.y > 0 ? height - 1 - i : i;  // no row is overwritten before its use
    uint8_t* row = &pixels[y * row_bytes];
    const int64_t source = int64_t{y} - shift.y;
    if (source < 0 || source >= height) {
      std::memset(row, 0, row_bytes);
      continue;
    }
    const uint8_t* from = &pixels[static_cast<size_t>(source) * row_bytes];
    std::memmove(row + (shift.x > 0 ? skipped : 0), from + (shift.x > 0 ? 0 : skipped), kept);
    std::memset(row + (shift.x > 0 ? 0 : kept), 0, skipped);
  }
}

void FlipPicture(uint32_t height, uint32_t width, uint32_t channels, std::span<uint8_t> pixels) {
  for (uint32_t y = 0; y < height; ++y) {
    uint8_t* row = &pixels[size_t{y} * width * channels];
    for (uint32_t left = 0, right = width - 1; left < right; ++left, --right) {
      std::swap_ranges(row + size_t{left} * channels, row + size_t{left + 1} * channels,
                       row + size_t{right} * channels);
    }
  }
}

}  // namespace pando
