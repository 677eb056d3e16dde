// The groups of benchmarks, and how one is added. main.cc registers them all.
#pragma once

#include <benchmark/benchmark.h>

#include <string>

#include "common/float_buffer.h"
#include "kernels/ops.h"

namespace pando {

inline constexpr Device kCpu{};

void RegisterConvolutions();
void RegisterElementwise();

template <class F>
void RegisterBench(const std::string& name, F&& run) {
  benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Unit(benchmark::kMillisecond);
}

// An array with slack: numbers around 0.
inline FloatBuffer Filled(size_t count) {
  FloatBuffer buffer(count + kSlackElements);
  for (size_t i = 0; i < buffer.size(); ++i) {
    buffer.data()[i] = static_cast<float>(i * 7919 % 1009) / 1009.0f - 0.5f;
  }
  return buffer;
}

}  // namespace pando
