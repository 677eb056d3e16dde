// Batch normalisation on the CPU. An array is pixels times channels, channels in vector lanes.
//
// Sums over pixels go block by block, each block's in float and their total in double: about where
// the mean of a block is first, then the deviations from there and their squares, joined as Chan et
// al. do. So a large mean costs the variance no digits, and memory is read once.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/scratch.h"

namespace pando::cpu {
namespace {

constexpr size_t kBlockPixels = 64;

struct Scratch {   // [channels] each
  float* centers;  // of the block at hand: near its mean
  float* sums;     // of deviations from there, or of gradients
  float* squares;  // of deviations, or gradients · deviations
  double* means;   // of the blocks so far, or their sums
  double* deviations;
  float* factor;
  float* offset;
};

Scratch Carve(size_t channels, ScratchCarver& carver) {
  Scratch s{};
  s.centers = carver.Take<float>(channels);
  s.sums = carver.Take<float>(channels);
  s.squares = carver.Take<float>(channels);
  s.means = carver.Take<double>(channels);
  s.deviations = carver.Take<double>(channels);
  s.factor = carver.Take<float>(channels);
  s.offset = carver.Take<float>(channels);
  return s;
}

struct Pixels {
  size_t count, channels;
};

Pixels PixelsOf(const BatchNormSpec& spec, size_t sample_count) {
  return {sample_count * spec.shape.height * spec.shape.width, spec.shape.channels};
}

void SumBlock(const Scratch& s, const Pixels& block, const float* x) {
  const size_t channels = block.channels;
  std::fill_n(s.centers, channels, 0.0f);
  std::fill_n(s.sums, channels, 0.0f);
  std::fill_n(s.squares, channels, 0.0f);
  for (size_t p = 0; p < block.count; ++p) {
    for (size_t c = 0; c < channels; ++c) s.centers[c] += x[p * channels + c];
  }
  const float scale = 1.0f / static_cast<float>(block.count);
  for (size_t c = 0; c < channels; ++c) s.centers[c] *= scale;
  for (size_t p = 0; p < block.count; ++p) {
    for (size_t c = 0; c < channels; ++c) {
      const float deviation = x[p * channels + c] - s.centers[c];
      s.sums[c] += deviation;
      s.squares[c] += deviation * deviation;
    }
  }
}

// Joins the block with `before` pixels before it.
void JoinBlock(const Scratch& s, const Pixels& block, size_t before) {
  const auto count = static_cast<double>(block.count);
  const double share = count / (static_cast<double>(before) + count);
  for (size_t c = 0; c < block.channels; ++c) {
    const double from_center = s.sums[c] / count;
    const double apart = s.centers[c] + from_center - s.means[c];
    s.means[c] += apart * share;
    s.deviations[c] += s.squares[c] - s.sums[c] * from_center +
                       apart * apart * share * static_cast<double>(before);
  }
}

void ComputeStatistics(const Scratch& s, const Pixels& all, const float* x) {
  std::fill_n(s.means, all.channels, 0.0);
  std::fill_n(s.deviations, all.channels, 0.0);
  for (size_t first = 0; first < all.count; first += kBlockPixels) {
    const Pixels block{std::min(kBlockPixels, all.count - first), all.channels};
    SumBlock(s, block, x + first * all.channels);
    JoinBlock(s, block, first);
  }
}

// y = activation(x · factor + offset + residual)
template <Activation kActivation, bool kResidual>
void Normalise(const Scratch& s, const Pixels& all, const float* x, const float* residual,
               float* y) {
  for (size_t p = 0; p < all.count; ++p) {
    const size_t first = p * all.channels;
    for (size_t c = 0; c < all.channels; ++c) {
      float value = x[first + c] * s.factor[c] + s.offset[c];
      if constexpr (kResidual) value += residual[first + c];
      y[first + c] = Activate<kActivation>(value);
    }
  }
}

void Normalise(const Scratch& s, const BatchNormSpec& spec, const Pixels& all, const float* x,
               const float* residual, float* y) {
  WithActivation(spec.activation, [&]<Activation kActivation>() {
    residual == nullptr ? Normalise<kActivation, false>(s, all, x, residual, y)
                        : Normalise<kActivation, true>(s, all, x, residual, y);
  });
}

// dy = 0 where the activation stops it; its sum, and its products' with the deviations of x.
template <Activation kActivation>
void MaskAndSum(const Scratch& s, const Pixels& all, const BatchNormBackwardArgs& args) {
  std::fill_n(s.means, all.channels, 0.0);
  std::fill_n(s.deviations, all.channels, 0.0);
  for (size_t first = 0; first < all.count; first += kBlockPixels) {
    std::fill_n(s.sums, all.channels, 0.0f);
    std::fill_n(s.squares, all.channels, 0.0f);
    for (size_t p = first; p < std::min(first + kBlockPixels, all.count); ++p) {
      const size_t at = p * all.channels;
      for (size_t c = 0; c < all.channels; ++c) {
        const float gradient = Passes<kActivation>(args.y, at + c) ? args.dy[at + c] : 0.0f;
        if constexpr (kActivation != Activation::kNone) args.dy[at + c] = gradient;
        s.sums[c] += gradient;
        s.squares[c] += gradient * (args.x[at + c] - args.mean[c]);
      }
    }
    for (size_t c = 0; c < all.channels; ++c) {
      s.means[c] += s.sums[c];
      s.deviations[c] += s.squares[c];
    }
  }
}

// dx = weight · inverse_std · (dy − dbias / n − (x − mean) · inverse_std · dweight / n)
void ComputeDataGradient(const Scratch& s, const Pixels& all, const BatchNormBackwardArgs& args) {
  const auto n = static_cast<double>(all.count);
  float* const slope = s.centers;  // of x
  for (size_t c = 0; c < all.channels; ++c) {
    const double inverse_std = args.inverse_std[c], factor = args.weight[c] * inverse_std;
    const double of_x = -factor * inverse_std * inverse_std * s.deviations[c] / n;
    s.factor[c] = static_cast<float>(factor);
    slope[c] = static_cast<float>(of_x);
    s.offset[c] = static_cast<float>(-factor * s.means[c] / n);
  }
  for (size_t p = 0; p < all.count; ++p) {
    const size_t at = p * all.channels;
    for (size_t c = 0; c < all.channels; ++c) {
      args.dx[at + c] = args.dy[at + c] * s.factor[c] +
                        ((args.x[at + c] - args.mean[c]) * slope[c] + s.offset[c]);
    }
  }
}

}  // namespace

size_t BatchNormScratchBytes(const BatchNormSpec& spec) {
  ScratchCarver counter;
  Carve(spec.shape.channels, counter);
  return counter.used_bytes();
}

void BatchNormForward(const BatchNormSpec& spec, const BatchNormForwardArgs& args,
                      std::span<std::byte> scratch) {
  const Pixels all = PixelsOf(spec, args.sample_count);
  ScratchCarver carver(scratch);
  const Scratch s = Carve(all.channels, carver);
  ComputeStatistics(s, all, args.x);
  const auto n = static_cast<double>(all.count);
  for (size_t c = 0; c < all.channels; ++c) {
    const double inverse_std = 1.0 / std::sqrt(s.deviations[c] / n + spec.eps);
    const double factor = inverse_std * args.weight[c];
    args.mean[c] = static_cast<float>(s.means[c]);
    args.inverse_std[c] = static_cast<float>(inverse_std);
    args.variance[c] = all.count == 1 ? 0.0f : static_cast<float>(s.deviations[c] / (n - 1));
    s.factor[c] = static_cast<float>(factor);
    s.offset[c] = static_cast<float>(args.bias[c] - s.means[c] * factor);
  }
  Normalise(s, spec, all, args.x, args.residual, args.y);
}

void BatchNormInference(const BatchNormSpec& spec, const BatchNormInferenceArgs& args,
                        std::span<std::byte> scratch) {
  const Pixels all = PixelsOf(spec, args.sample_count);
  ScratchCarver carver(scratch);
  const Scratch s = Carve(all.channels, carver);
  for (size_t c = 0; c < all.channels; ++c) {
    const double factor =
        args.weight[c] / std::sqrt(static_cast<double>(args.variance[c]) + spec.eps);
    s.factor[c] = static_cast<float>(factor);
    s.offset[c] = static_cast<float>(args.bias[c] - args.mean[c] * factor);
  }
  Normalise(s, spec, all, args.x, args.residual, args.y);
}

void BatchNormBackward(const BatchNormSpec& spec, const BatchNormBackwardArgs& args,
                       std::span<std::byte> scratch) {
  const Pixels all = PixelsOf(spec, args.sample_count);
  ScratchCarver carver(scratch);
  const Scratch s = Carve(all.channels, carver);
  WithActivation(spec.activation,
                 [&]<Activation kActivation>() { MaskAndSum<kActivation>(s, all, args); });
  for (size_t c = 0; c < all.channels; ++c) {
    args.dbias[c] = static_cast<float>(s.means[c]);
    args.dweight[c] = static_cast<float>(s.deviations[c] * args.inverse_std[c]);
  }
  if (args.dresidual != nullptr && args.dresidual != args.dy) {
    std::copy_n(args.dy, all.count * all.channels, args.dresidual);
  }
  if (args.dx != nullptr) ComputeDataGradient(s, all, args);
}

}  // namespace pando::cpu
