// Convolution with groups that are neither one nor depthwise, by definition. No network of the zoo
// has one, so this is simple, not fast.
#include <algorithm>

#include "kernels/cpu/conv_geometry.h"
#include "kernels/cpu/conv_paths.h"

namespace pando::cpu {
namespace {

// One multiplication of the definition: sums[out] += x[in] · weight[weight].
struct Product {
  size_t out, in, weight;
};

// Calls f for each product of one sample and one output pixel, without those in the padding.
template <class F>
void ForEachProduct(const Conv2dSpec& spec, size_t y, size_t x, F&& f) {
  const size_t kernel = spec.kernel, in_channels = spec.input.channels / spec.groups;
  const size_t group_outputs = spec.out_channels / spec.groups;
  const size_t pixel = y * spec.conv_output().width + x;
  for (size_t tap = 0; tap < kernel * kernel; ++tap) {
    const size_t in_y = y * spec.stride + tap / kernel - spec.padding;  // wraps outside
    const size_t in_x = x * spec.stride + tap % kernel - spec.padding;
    if (in_y >= spec.input.height || in_x >= spec.input.width) continue;
    const size_t in_pixel = (in_y * spec.input.width + in_x) * spec.input.channels;
    for (size_t o = 0; o < spec.out_channels; ++o) {
      const size_t first_in = in_pixel + o / group_outputs * in_channels;
      for (size_t c = 0; c < in_channels; ++c) {
        f(Product{.out = pixel * spec.out_channels + o,
                  .in = first_in + c,
                  .weight = (o * in_channels + c) * kernel * kernel + tap});
      }
    }
  }
}

// Calls f(product) with places in the arrays of all samples.
template <class F>
void ForEachProduct(const Conv2dSpec& spec, size_t sample_count, F&& f) {
  const SampleShape out = spec.conv_output();
  for (size_t s = 0; s < sample_count; ++s) {
    for (size_t y = 0; y < out.height; ++y) {
      for (size_t x = 0; x < out.width; ++x) {
        ForEachProduct(spec, y, x, [&](Product p) {
          f(Product{s * out.size() + p.out, s * spec.input.size() + p.in, p.weight});
        });
      }
    }
  }
}

}  // namespace

void GroupedForward(const Conv2dSpec& spec, const PlainForward& args) {
  std::fill_n(args.y, args.sample_count * spec.conv_output().size(), 0.0f);
  ForEachProduct(spec, args.sample_count,
                 [&](Product p) { args.y[p.out] += args.x[p.in] * args.weight[p.weight]; });
}

void GroupedBackward(const Conv2dSpec& spec, const PlainBackward& args) {
  std::fill_n(args.dweight, spec.weight_size(), 0.0f);
  ForEachProduct(spec, args.sample_count,
                 [&](Product p) { args.dweight[p.weight] += args.x[p.in] * args.dy[p.out]; });
  if (args.dx == nullptr) return;
  std::fill_n(args.dx, args.sample_count * spec.input.size(), 0.0f);
  ForEachProduct(spec, args.sample_count,
                 [&](Product p) { args.dx[p.in] += args.weight[p.weight] * args.dy[p.out]; });
}

}  // namespace pando::cpu
