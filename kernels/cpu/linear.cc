#include <algorithm>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/gemm.h"

namespace pando::cpu {
namespace {

void AddBias(const LinearSpec& spec, uint32_t sample_count, const float* bias, float* y) {
  for (size_t s = 0; s < sample_count; ++s, y += spec.out_features) {
    for (size_t o = 0; o < spec.out_features; ++o) {
      const float sum = y[o] + bias[o];
      y[o] = spec.relu ? std::max(sum, 0.0f) : sum;
    }
  }
}

void SumRows(uint32_t sample_count, uint32_t features, const float* dy, float* dbias) {
  std::copy_n(dy, features, dbias);
  for (size_t s = 1; s < sample_count; ++s) {
    for (size_t o = 0; o < features; ++o) dbias[o] += dy[s * features + o];
  }
}

}  // namespace

void LinearForward(const LinearSpec& spec, uint32_t sample_count, const float* x,
                   const float* weight, const float* bias, float* y) {
  GemmNT({.rows = sample_count, .cols = spec.out_features, .depth = spec.in_features}, x, weight, y);
  AddBias(spec, sample_count, bias, y);
}

void LinearBackward(const LinearSpec& spec, const LinearBackwardArgs& args) {
  const uint32_t n = args.sample_count, in = spec.in_features, out = spec.out_features;
  if (spec.relu) ReluBackward(size_t{n} * out, args.y, args.dy, args.dy);
  SumRows(n, out, args.dy, args.dbias);
  GemmTN({.rows = out, .cols = in, .depth = n}, args.dy, args.x, args.dweight);
  if (args.dx != nullptr) GemmNN({.rows = n, .cols = in, .depth = out}, args.dy, args.weight, args.dx);
}

}  // namespace pando::cpu
