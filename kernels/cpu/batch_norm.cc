// Batch normalisation on the CPU. An array is pixels times channels, channels in vector lanes.
//
// Sums over pixels go block by block, each block in float and their total in double. First comes
// the approximate mean of a block, then the sums of deviations from it and of their squares. They
// are joined as in Chan et al. So a large mean costs the variance no digits, and memory is read
// once.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/scratch_carver.h"

namespace pando::cpu {
namespace {

constexpr size_t kBlockPixels = 64;

// The number of independent sums that get terms in turn, because an addition takes four cycles.
constexpr size_t kChains = 4;

// A sum over a block's pixels, for kVecs vectors of channels. Few vectors have several chains each.
template <size_t kVecs>
struct Sum {
  static constexpr size_t kPerVec = kChains / kVecs;
  Vec chains[kPerVec][kVecs] = {};

  Vec Total(size_t v) const {
    Vec total = chains[0][v];
    for (size_t i = 1; i < kPerVec; ++i) total += chains[i][v];
    return total;
  }
};

// Arrays of channels, rounded up to whole vectors.
struct Scratch {
  size_t channels;
  ScratchCarver carver = {};
  size_t padded = RoundUpToLanes(channels);
  float* centers = carver.Take<float>(padded);  // values near the means of the current block
  float* sums = carver.Take<float>(padded);     // of deviations from the centers, or of gradients
  float* squares = carver.Take<float>(padded);  // of squared deviations, or gradients · deviations
  double* means = carver.Take<double>(padded);  // means of all blocks so far, or sums of gradients
  double* deviations = carver.Take<double>(padded);
  float* factor = carver.Take<float>(padded);
  float* offset = carver.Take<float>(padded);
  float* slope = carver.Take<float>(padded);

  template <size_t kVecs>
  void StoreSums(size_t channel, const Sum<kVecs>& of_values, const Sum<kVecs>& of_products) const {
    for (size_t v = 0; v < kVecs; ++v) {
      Store(sums + channel + v * kLanes, of_values.Total(v));
      Store(squares + channel + v * kLanes, of_products.Total(v));
    }
  }
};

struct Pixels {
  size_t count, channels;
};

Pixels MakePixels(const BatchNormSpec& spec, size_t sample_count) {
  return {sample_count * spec.shape.height * spec.shape.width, spec.shape.channels};
}

// ------------------------------------------------------------------------------------ statistics

// Calls f(chain, pixel) for each of the block's pixels.
template <size_t kVecs, class F>
inline void ForEachInChains(size_t pixels, F&& f) {
  constexpr size_t kPerVec = Sum<kVecs>::kPerVec;
  size_t p = 0;
  for (; p + kPerVec <= pixels; p += kPerVec) {
    for (size_t i = 0; i < kPerVec; ++i) f(i, p + i);
  }
  for (; p < pixels; ++p) f(0, p);
}

template <size_t kVecs>
void SumBlock(const Scratch& s, const Pixels& block, size_t channel, const float* x) {
  x += channel;
  Sum<kVecs> total, deviations, squares;
  ForEachInChains<kVecs>(block.count, [&](size_t i, size_t p) {
    for (size_t v = 0; v < kVecs; ++v) {
      total.chains[i][v] += Load(x + p * block.channels + v * kLanes);
    }
  });
  const float scale = 1.0f / static_cast<float>(block.count);
  Vec centers[kVecs];
  for (size_t v = 0; v < kVecs; ++v) centers[v] = total.Total(v) * scale;
  ForEachInChains<kVecs>(block.count, [&](size_t i, size_t p) {
    for (size_t v = 0; v < kVecs; ++v) {
      const Vec deviation = Load(x + p * block.channels + v * kLanes) - centers[v];
      deviations.chains[i][v] += deviation;
      squares.chains[i][v] += deviation * deviation;
    }
  });
  for (size_t v = 0; v < kVecs; ++v) Store(s.centers + channel + v * kLanes, centers[v]);
  s.StoreSums(channel, deviations, squares);
}

// Clears the totals. For each block of pixels, calls f.template operator()<vectors>(block, first
// pixel, first channel) for all channels, then join(block, first pixel).
template <class F, class Join>
void ForEachBlock(const Scratch& s, const Pixels& all, F&& f, Join&& join) {
  std::fill_n(s.means, all.channels, 0.0);
  std::fill_n(s.deviations, all.channels, 0.0);
  for (size_t first = 0; first < all.count; first += kBlockPixels) {
    const Pixels block{std::min(kBlockPixels, all.count - first), all.channels};
    size_t c = 0;
    for (; c + 4 * kLanes <= s.padded; c += 4 * kLanes) f.template operator()<4>(block, first, c);
    for (; c + 2 * kLanes <= s.padded; c += 2 * kLanes) f.template operator()<2>(block, first, c);
    for (; c < s.padded; c += kLanes) f.template operator()<1>(block, first, c);
    join(block, first);
  }
}

// Joins the block's statistics with those of the `before` pixels before it.
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
  ForEachBlock(
      s, all,
      [&]<size_t kVecs>(const Pixels& block, size_t first, size_t channel) {
        SumBlock<kVecs>(s, block, channel, x + first * all.channels);
      },
      [&](const Pixels& block, size_t first) { JoinBlock(s, block, first); });
}

// ---------------------------------------------------------------------------------- element-wise

// Calls f(first float, channel, floats to the pixel's end) for each vector of each pixel.
template <class F>
inline void ForEachVector(const Pixels& all, F&& f) {
  for (size_t p = 0; p < all.count; ++p) {
    for (size_t c = 0; c < all.channels; c += kLanes) f(p * all.channels + c, c, all.channels - c);
  }
}

// y = activation(x · factor + offset + residual)
template <Activation kActivation, bool kResidual>
void Normalise(const Scratch& s, const Pixels& all, const float* x, const float* residual,
               float* y) {
  ForEachVector(all, [&](size_t at, size_t c, size_t rest) {
    Vec value = Load(x + at) * Load(s.factor + c) + Load(s.offset + c);
    if constexpr (kResidual) value += Load(residual + at);
    StorePart(y + at, Activate<kActivation>(value), rest);
  });
}

void Normalise(const Scratch& s, const BatchNormSpec& spec, const Pixels& all, const float* x,
               const float* residual, float* y) {
  WithActivation(spec.activation, [&]<Activation kActivation>() {
    residual == nullptr ? Normalise<kActivation, false>(s, all, x, residual, y)
                        : Normalise<kActivation, true>(s, all, x, residual, y);
  });
}

// Sums a block's gradients, and their products with the deviations of x.
template <Activation kActivation, size_t kVecs>
void SumGradients(const Scratch& s, const Pixels& block, size_t channel,
                  const BatchNormBackwardArgs& args, size_t first) {
  Sum<kVecs> gradients, products;
  Vec means[kVecs];
  for (size_t v = 0; v < kVecs; ++v) means[v] = Load(s.centers + channel + v * kLanes);
  ForEachInChains<kVecs>(block.count, [&](size_t i, size_t p) {
    for (size_t v = 0; v < kVecs; ++v) {
      const size_t at = first + p * block.channels + channel + v * kLanes;
      const Vec gradient = Pass<kActivation>(args.y, at, Load(args.dy + at));
      gradients.chains[i][v] += gradient;
      products.chains[i][v] += gradient * (Load(args.x + at) - means[v]);
    }
  });
  s.StoreSums(channel, gradients, products);
}

template <Activation kActivation>
void SumGradients(const Scratch& s, const Pixels& all, const BatchNormBackwardArgs& args) {
  std::copy_n(args.mean, all.channels, s.centers);
  ForEachBlock(
      s, all,
      [&]<size_t kVecs>(const Pixels& block, size_t first, size_t channel) {
        SumGradients<kActivation, kVecs>(s, block, channel, args, first * all.channels);
      },
      [&](const Pixels&, size_t) {
        for (size_t c = 0; c < all.channels; ++c) {
          s.means[c] += s.sums[c];
          s.deviations[c] += s.squares[c];
        }
      });
}

// dx = weight · inverse_std · (dy − dbias / n − (x − mean) · inverse_std · dweight / n) and
// dresidual = dy, both with the dy that the activation passes.
template <Activation kActivation>
void ComputeDataGradients(const Scratch& s, const Pixels& all, const BatchNormBackwardArgs& args) {
  const auto n = static_cast<double>(all.count);
  for (size_t c = 0; c < all.channels; ++c) {
    const double inverse_std = args.inverse_std[c], factor = args.weight[c] * inverse_std;
    s.factor[c] = static_cast<float>(factor);
    s.slope[c] = static_cast<float>(-factor * inverse_std * inverse_std * s.deviations[c] / n);
    s.offset[c] = static_cast<float>(-factor * s.means[c] / n);
  }
  ForEachVector(all, [&](size_t at, size_t c, size_t rest) {
    const Vec gradient = Pass<kActivation>(args.y, at, Load(args.dy + at));
    if (args.dx != nullptr) {
      const Vec deviation = Load(args.x + at) - Load(s.centers + c);
      StorePart(
          args.dx + at,
          gradient * Load(s.factor + c) + (deviation * Load(s.slope + c) + Load(s.offset + c)),
          rest);
    }
    if (args.dresidual != nullptr) StorePart(args.dresidual + at, gradient, rest);
  });
}

}  // namespace

size_t BatchNormScratchBytes(const BatchNormSpec& spec) {
  return Scratch{spec.shape.channels}.carver.used_bytes();
}

void BatchNormForward(const BatchNormSpec& spec, const BatchNormForwardArgs& args,
                      std::span<std::byte> scratch) {
  const Pixels all = MakePixels(spec, args.sample_count);
  const Scratch s{all.channels, ScratchCarver(scratch)};
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
  const Pixels all = MakePixels(spec, args.sample_count);
  const Scratch s{all.channels, ScratchCarver(scratch)};
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
  const Pixels all = MakePixels(spec, args.sample_count);
  const Scratch s{all.channels, ScratchCarver(scratch)};
  WithActivation(spec.activation, [&]<Activation kActivation>() {
    SumGradients<kActivation>(s, all, args);
    if (args.dx == nullptr && args.dresidual == nullptr) return;
    ComputeDataGradients<kActivation>(s, all, args);
  });
  for (size_t c = 0; c < all.channels; ++c) {
    args.dbias[c] = static_cast<float>(s.means[c]);
    args.dweight[c] = static_cast<float>(s.deviations[c] * args.inverse_std[c]);
  }
}

}  // namespace pando::cpu
