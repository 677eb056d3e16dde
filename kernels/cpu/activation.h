// Activations within other operations, chosen outside their loops.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/cpu/simd.h"
#include "kernels/ops.h"

namespace pando::cpu {

// Calls f.template operator()<kActivation>().
template <class F>
void WithActivation(Activation activation, F&& f) {
  switch (activation) {
    case Activation::kNone:
      return f.template operator()<Activation::kNone>();
    case Activation::kRelu:
      return f.template operator()<Activation::kRelu>();
    case Activation::kRelu6:
      return f.template operator()<Activation::kRelu6>();
  }
}

template <Activation kActivation>
inline float Activate(float x) {
  if constexpr (kActivation != Activation::kNone) x = std::max(x, 0.0f);
  if constexpr (kActivation == Activation::kRelu6) x = std::min(x, 6.0f);
  return x;
}

// Whether the gradient of y[i] passes. Without an activation y is not read and may be null.
template <Activation kActivation>
inline bool Passes(const float* y, size_t i) {
  if constexpr (kActivation == Activation::kNone) return true;
  if constexpr (kActivation == Activation::kRelu) return y[i] > 0.0f;
  return y[i] > 0.0f && y[i] < 6.0f;
}

template <Activation kActivation>
inline Vec Activate(Vec x) {
  if constexpr (kActivation != Activation::kNone) x = x < 0.0f ? Vec{} : x;  // NaN stays
  if constexpr (kActivation == Activation::kRelu6) x = x > 6.0f ? Vec{} + 6.0f : x;
  return x;
}

// The gradient at y[at] and later if it passes, else 0. Without an activation y is not read.
template <Activation kActivation>
inline Vec Pass(const float* y, size_t at, Vec gradient) {
  if constexpr (kActivation != Activation::kNone) {
    gradient = Load(y + at) > 0.0f ? gradient : Vec{};
  }
  if constexpr (kActivation == Activation::kRelu6)
    gradient = Load(y + at) < 6.0f ? gradient : Vec{};
  return gradient;
}

}  // namespace pando::cpu
