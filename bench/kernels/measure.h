// What the kernels' benchmarks share: times, and shares of the multiply-adds that the core does at
// most, measured in turns with the kernel so that both see the same machine.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "bench/kernels/fma_peak.h"

namespace pando {

inline double Median(std::vector<double> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class F>
double SecondsOf(benchmark::State& state, F&& run) {
  const double start = ThreadSeconds();
  run();
  const double seconds = ThreadSeconds() - start;
  state.SetIterationTime(seconds);
  return seconds;
}

// Runs `run` in turns with MeasurePeak(); reports the medians: flops / time, its share of the peak.
template <class F>
void Measure(benchmark::State& state, double flops, F&& run) {
  std::vector<double> seconds, shares;
  run();
  for (auto _ : state) {
    seconds.push_back(SecondsOf(state, run));
    shares.push_back(flops / seconds.back() / MeasurePeak());
  }
  state.counters["ms"] = 1e3 * Median(seconds);
  state.counters["GFLOP/s"] = 1e-9 * flops / Median(seconds);
  state.counters["of_peak"] = Median(shares);
}

// The same for what is bound by memory.
template <class F>
void MeasureBytes(benchmark::State& state, double bytes, F&& run) {
  std::vector<double> seconds;
  run();
  for (auto _ : state) seconds.push_back(SecondsOf(state, run));
  state.counters["ms"] = 1e3 * Median(seconds);
  state.counters["GB/s"] = 1e-9 * bytes / Median(seconds);
}

}  // namespace pando
