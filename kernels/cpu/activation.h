// The activations that other operations apply. WithActivation chooses one outside their loops.
#pragma once

#include <cstddef>

#include "kernels/cpu/simd.h"
#include "kernels/ops.h"

namespace pando::cpu {

// Calls f.template operator()<kActivation>() for the given activation.
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

// Applies the activation to a float, or to each lane of a vector. NaN stays NaN.
template <Activation kActivation, class T>
inline T Activate(T x) {
  if constexpr (kActivation != Activation::kNone) x = x < 0.0f ? T{} : x;
  if constexpr (kActivation == Activation::kRelu6) x = x > 6.0f ? T{} + 6.0f : x;
  return x;
}

// Returns whether y[i]'s gradient passes. Without an activation y is not read and may be null.
template <Activation kActivation>
inline bool Passes(const float* y, size_t i) {
  if constexpr (kActivation == Activation::kNone) return true;
  if constexpr (kActivation == Activation::kRelu) return y[i] > 0.0f;
  return y[i] > 0.0f && y[i] < 6.0f;
}

// Returns the gradient, 0 in lanes that do not pass y from y[at] on. Without an activation y is
// unread.
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
