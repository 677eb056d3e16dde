#include <algorithm>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/gemm.h"
#include "kernels/scratch_carver.h"

namespace pando::cpu {
namespace {

// The depths of blocks. The weights are the large matrix: as a and as b they are read in 2 KB runs.
constexpr size_t kForwardDepth = 512, kBackwardDepth = 128;

struct Scratch {
  size_t out, samples;
  ScratchCarver carver = {};
  float* gemm = carver.Take<float>(kGemmScratchFloats);
  float* y = carver.Take<float>(out * samples);  // forward's [out, samples]
};

// Transposes the sums back to [samples, features], and adds bias and relu.
void TransposeOut(const LinearSpec& spec, size_t samples, const float* sums, const float* bias,
                  float* y) {
  for (size_t s = 0; s < samples; ++s, y += spec.out_features) {
    for (size_t o = 0; o < spec.out_features; ++o) {
      const float sum = sums[o * samples + s];
      const float value = bias == nullptr ? sum : sum + bias[o];
      y[o] = spec.relu ? std::max(value, 0.0f) : value;
    }
  }
}

void SumRows(size_t rows, size_t cols, const float* x, float* sums) {
  std::copy_n(x, cols, sums);
  for (size_t r = 1; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) sums[c] += x[r * cols + c];
  }
}

}  // namespace

size_t LinearScratchBytes(const LinearSpec& spec, uint32_t sample_count_max) {
  return Scratch{spec.out_features, sample_count_max}.carver.used_bytes();
}

void LinearForward(const LinearSpec& spec, const LinearForwardArgs& args,
                   std::span<std::byte> scratch) {
  const size_t n = args.sample_count, in = spec.in_features, out = spec.out_features;
  const Scratch s{out, n, ScratchCarver(scratch)};
  // The product is transposed, yᵀ = weight · xᵀ: samples are in vector lanes, and weights are read
  // once, without a copy.
  Multiply({.rows = out,
            .cols = n,
            .depth = in,
            .a = {args.weight, in, 1},
            .b = {args.x, 1, in},
            .c = s.y,
            .depth_block = kForwardDepth},
           s.gemm);
  TransposeOut(spec, n, s.y, args.bias, args.y);
}

void LinearBackward(const LinearSpec& spec, const LinearBackwardArgs& args,
                    std::span<std::byte> scratch) {
  const size_t n = args.sample_count, in = spec.in_features, out = spec.out_features;
  const Scratch s{out, n, ScratchCarver(scratch)};
  if (spec.relu) ActivationBackward(n * out, args.y, Activation::kRelu, args.dy, args.dy);
  if (args.dbias != nullptr) SumRows(n, out, args.dy, args.dbias);
  Multiply({.rows = out,  // dweight = dyᵀ · x
            .cols = in,
            .depth = n,
            .a = {args.dy, 1, out},
            .b = {args.x, in, 1},
            .c = args.dweight,
            .depth_block = kBackwardDepth},
           s.gemm);
  if (args.dx == nullptr) return;
  Multiply({.rows = n,  // dx = dy · weight
            .cols = in,
            .depth = out,
            .a = {args.dy, out, 1},
            .b = {args.weight, in, 1},
            .c = args.dx,
            .depth_block = kBackwardDepth},
           s.gemm);
}

}  // namespace pando::cpu
