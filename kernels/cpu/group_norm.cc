// Group normalisation on the CPU, one sample after the other. A sample is pixels times channels.
//
// Sums over pixels go channel by channel: a block's sum in float, and their total in double. They
// are sums of deviations from the channel's first value, so a large mean costs the variance no
// digits. A group's statistics are joined from those of its channels.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/scratch_carver.h"

namespace pando::cpu {
namespace {

constexpr size_t kBlockPixels = 64;

struct Sample {
  const GroupNormSpec& spec;
  size_t pixels = size_t{spec.shape.height} * spec.shape.width;
  size_t channels = spec.shape.channels, groups = spec.groups;

  size_t size() const { return pixels * channels; }
  size_t group_channels() const { return channels / groups; }
  double group_size() const { return static_cast<double>(pixels * group_channels()); }
};

struct Scratch {
  size_t channels;
  ScratchCarver carver = {};
  float* block_a = carver.Take<float>(channels);
  float* block_b = carver.Take<float>(channels);
  double* total_a = carver.Take<double>(channels);
  double* total_b = carver.Take<double>(channels);
  double* dweight = carver.Take<double>(channels);
  double* dbias = carver.Take<double>(channels);
  float* centers = carver.Take<float>(channels);
  float* factor = carver.Take<float>(channels);
  float* slope = carver.Take<float>(channels);
  float* offset = carver.Take<float>(channels);
};

// Calls f(float at, channel) for pixels [first, last).
template <class F>
void ForEachFloat(const Sample& sample, size_t first, size_t last, F&& f) {
  for (size_t p = first; p < last; ++p) {
    for (size_t c = 0; c < sample.channels; ++c) f(p * sample.channels + c, c);
  }
}

// Computes total_a and total_b of each channel: the sums over the pixels of the two values that
// f(float at, channel, a, b) adds to a and b.
template <class F>
void SumPixels(const Sample& sample, const Scratch& s, F&& f) {
  std::fill_n(s.total_a, sample.channels, 0.0);
  std::fill_n(s.total_b, sample.channels, 0.0);
  for (size_t first = 0; first < sample.pixels; first += kBlockPixels) {
    const size_t last = std::min(first + kBlockPixels, sample.pixels);
    std::fill_n(s.block_a, sample.channels, 0.0f);
    std::fill_n(s.block_b, sample.channels, 0.0f);
    ForEachFloat(sample, first, last,
                 [&](size_t at, size_t c) { f(at, c, s.block_a[c], s.block_b[c]); });
    for (size_t c = 0; c < sample.channels; ++c) {
      s.total_a[c] += s.block_a[c];
      s.total_b[c] += s.block_b[c];
    }
  }
}

struct Statistics {
  double mean = 0;
  double squares = 0;  // the sum of the squared deviations from the mean
};

// Computes a group's statistics from the sums and square sums of its channels' deviations.
Statistics JoinChannels(const Sample& sample, const Scratch& s, size_t group) {
  const auto pixels = static_cast<double>(sample.pixels);
  const size_t first = group * sample.group_channels(), last = first + sample.group_channels();
  Statistics joined;
  for (size_t c = first; c < last; ++c) {
    joined.mean += s.centers[c] + s.total_a[c] / pixels;
  }
  joined.mean /= static_cast<double>(sample.group_channels());
  for (size_t c = first; c < last; ++c) {
    const double from_center = s.total_a[c] / pixels;
    const double apart = s.centers[c] + from_center - joined.mean;
    joined.squares += s.total_b[c] - s.total_a[c] * from_center + apart * apart * pixels;
  }
  return joined;
}

// Takes the sums of a sample's gradients (total_a), and of their products with the deviations from
// the mean (total_b). Adds their parts to the gradients of weight and bias, and computes the terms
// of dx = factor · dy + slope · (x − mean) + offset.
void JoinGradients(const Sample& sample, const Scratch& s, const GroupNormBackwardArgs& args,
                   size_t group, size_t row) {
  const double mean = args.mean[row], inverse_std = args.inverse_std[row];
  const size_t first = group * sample.group_channels(), last = first + sample.group_channels();
  double gradients = 0, products = 0;
  for (size_t c = first; c < last; ++c) {
    gradients += args.weight[c] * s.total_a[c];
    products += args.weight[c] * s.total_b[c];
    s.dbias[c] += s.total_a[c];
    s.dweight[c] += s.total_b[c] * inverse_std;
  }
  const double slope = -inverse_std * inverse_std * inverse_std * products / sample.group_size();
  const double offset = -inverse_std * gradients / sample.group_size();
  for (size_t c = first; c < last; ++c) {
    s.centers[c] = static_cast<float>(mean);
    s.factor[c] = static_cast<float>(args.weight[c] * inverse_std);
    s.slope[c] = static_cast<float>(slope);
    s.offset[c] = static_cast<float>(offset);
  }
}

}  // namespace

size_t GroupNormScratchBytes(const GroupNormSpec& spec, uint32_t) {
  return Scratch{spec.shape.channels}.carver.used_bytes();
}

void GroupNormForward(const GroupNormSpec& spec, const GroupNormForwardArgs& args,
                      std::span<std::byte> scratch) {
  const Sample sample{spec};
  const Scratch s{sample.channels, ScratchCarver(scratch)};
  for (size_t i = 0; i < args.sample_count; ++i) {
    const float* x = args.x + i * sample.size();
    std::copy_n(x, sample.channels, s.centers);
    SumPixels(sample, s, [&](size_t at, size_t c, float& sum, float& squares) {
      const float deviation = x[at] - s.centers[c];
      sum += deviation;
      squares += deviation * deviation;
    });
    for (size_t group = 0; group < sample.groups; ++group) {
      const Statistics statistics = JoinChannels(sample, s, group);
      const double inverse_std =
          1.0 / std::sqrt(statistics.squares / sample.group_size() + spec.eps);
      args.mean[i * sample.groups + group] = static_cast<float>(statistics.mean);
      args.inverse_std[i * sample.groups + group] = static_cast<float>(inverse_std);
      const size_t first = group * sample.group_channels();
      for (size_t c = first; c < first + sample.group_channels(); ++c) {
        const double factor = inverse_std * args.weight[c];
        s.factor[c] = static_cast<float>(factor);
        s.offset[c] = static_cast<float>(args.bias[c] - statistics.mean * factor);
      }
    }
    float* y = args.y + i * sample.size();
    ForEachFloat(sample, 0, sample.pixels,
                 [&](size_t at, size_t c) { y[at] = x[at] * s.factor[c] + s.offset[c]; });
  }
}

void GroupNormBackward(const GroupNormSpec& spec, const GroupNormBackwardArgs& args,
                       std::span<std::byte> scratch) {
  const Sample sample{spec};
  const Scratch s{sample.channels, ScratchCarver(scratch)};
  std::fill_n(s.dweight, sample.channels, 0.0);
  std::fill_n(s.dbias, sample.channels, 0.0);
  for (size_t i = 0; i < args.sample_count; ++i) {
    const float* x = args.x + i * sample.size();
    const float* dy = args.dy + i * sample.size();
    for (size_t c = 0; c < sample.channels; ++c) {
      s.centers[c] = args.mean[i * sample.groups + c / sample.group_channels()];
    }
    SumPixels(sample, s, [&](size_t at, size_t c, float& gradients, float& products) {
      gradients += dy[at];
      products += dy[at] * (x[at] - s.centers[c]);
    });
    for (size_t group = 0; group < sample.groups; ++group) {
      JoinGradients(sample, s, args, group, i * sample.groups + group);
    }
    if (args.dx == nullptr) continue;
    float* dx = args.dx + i * sample.size();
    ForEachFloat(sample, 0, sample.pixels, [&](size_t at, size_t c) {
      dx[at] = dy[at] * s.factor[c] + ((x[at] - s.centers[c]) * s.slope[c] + s.offset[c]);
    });
  }
  for (size_t c = 0; c < sample.channels; ++c) {
    args.dbias[c] = static_cast<float>(s.dbias[c]);
    args.dweight[c] = static_cast<float>(s.dweight[c]);
  }
}

}  // namespace pando::cpu
