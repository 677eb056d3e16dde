// CUDA's half on the host.
#pragma once

struct __half {  // NOLINT(readability-identifier-naming): NVIDIA's name
  _Float16 value;
  explicit operator float() const { return static_cast<float>(value); }
};

inline float __half2float(__half x) { return static_cast<float>(x); }
inline __half __float2half(float x) { return {static_cast<_Float16>(x)}; }
