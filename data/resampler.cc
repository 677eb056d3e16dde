#include "data/resampler.h"

#include <algorithm>

#include "common/check.h"

namespace pando {
namespace {

constexpr int kWeightBits = 15;
constexpr int32_t kOne = 1 << kWeightBits;
constexpr int32_t kHalf = kOne / 2;

template <uint32_t kChannels>
void ResizeRow(const uint8_t* row, const uint32_t* first, const int32_t* weights,
               uint32_t tap_count, uint32_t width, uint8_t* out) {
  for (uint32_t x = 0; x < width; ++x, weights += tap_count, out += kChannels) {
    const uint8_t* in = row + size_t{first[x]} * kChannels;
    int32_t sums[kChannels];
    std::fill_n(sums, kChannels, kHalf);
    for (uint32_t tap = 0; tap < tap_count; ++tap, in += kChannels) {
      for (uint32_t c = 0; c < kChannels; ++c) sums[c] += weights[tap] * in[c];
    }
    for (uint32_t c = 0; c < kChannels; ++c) out[c] = static_cast<uint8_t>(sums[c] >> kWeightBits);
  }
}

}  // namespace

// Weights are not negative and their sum is kOne, so results fit bytes.
void Resampler::Axis::Plan(uint32_t source, uint32_t target) {
  if (source == source_size && target == target_size) return;
  source_size = source;
  target_size = target;
  const double scale = static_cast<double>(source) / target;
  const double radius = std::max(scale, 1.0);
  tap_count = std::min(source, static_cast<uint32_t>(2 * radius) + 2);
  first.assign(target, 0);
  weights.assign(size_t{target} * tap_count, 0);
  std::vector<double> shares(tap_count);
  for (uint32_t t = 0; t < target; ++t) {
    const double centre = (t + 0.5) * scale;
    const double from = std::max(centre - radius, 0.0);
    first[t] = std::min(static_cast<uint32_t>(from), source - tap_count);
    double sum = 0;
    for (uint32_t tap = 0; tap < tap_count; ++tap) {
      const double away = (first[t] + tap + 0.5 - centre) / radius;
      shares[tap] = std::max(0.0, 1 - (away < 0 ? -away : away));
      sum += shares[tap];
    }
    int32_t* w = &weights[size_t{t} * tap_count];
    int32_t left = kOne;
    for (uint32_t tap = 0; tap < tap_count; ++tap) {
      w[tap] = static_cast<int32_t>(shares[tap] / sum * kOne);
      left -= w[tap];
    }
    *std::max_element(w, w + tap_count) += left;
  }
}

void Resampler::Resize(const PictureView& in, const PictureBox& box, uint32_t out_height,
                       uint32_t out_width, uint8_t* out) {
  PANDO_CHECK(box.height > 0 && box.y + box.height <= in.height);
  PANDO_CHECK(box.width > 0 && box.x + box.width <= in.width);
  PANDO_CHECK(in.channels == 1 || in.channels == 3);
  rows_.Plan(box.height, out_height);
  columns_.Plan(box.width, out_width);
  const size_t in_row_bytes = size_t{in.width} * in.channels;
  sums_.resize(size_t{box.width} * in.channels);
  row_.resize(sums_.size());
  const uint8_t* source = in.pixels + box.y * in_row_bytes + size_t{box.x} * in.channels;
  for (uint32_t y = 0; y < out_height; ++y) {
    MakeRow(source, in_row_bytes, y);
    auto resize = in.channels == 1 ? ResizeRow<1> : ResizeRow<3>;
    resize(row_.data(), columns_.first.data(), columns_.weights.data(), columns_.tap_count,
           out_width, out + size_t{y} * out_width * in.channels);
  }
}

// Makes row y of the target's height, still as wide as the box.
void Resampler::MakeRow(const uint8_t* source, size_t source_row_bytes, uint32_t y) {
  std::fill(sums_.begin(), sums_.end(), kHalf);
  for (uint32_t tap = 0; tap < rows_.tap_count; ++tap) {
    const int32_t weight = rows_.weights[size_t{y} * rows_.tap_count + tap];
    if (weight == 0) continue;
    const uint8_t* in = source + (rows_.first[y] + tap) * source_row_bytes;
    for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += weight * in[i];
  }
  for (size_t i = 0; i < sums_.size(); ++i) {
    row_[i] = static_cast<uint8_t>(sums_[i] >> kWeightBits);
  }
}

}  // namespace pando
