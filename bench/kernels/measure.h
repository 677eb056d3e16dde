// What the kernels' benchmarks share: processor time of this thread, and the multiply-adds that the
// core does at most, measured in turns with the kernel so that both see the same machine.
#pragma once

#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <vector>

namespace pando {

inline double ThreadSeconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Floating-point operations per second of fused multiply-adds on whole vectors, in registers.
double MeasurePeak();

// Runs `run` in turns with MeasurePeak(); reports the medians: flops / time, its share of the peak.
template <class F>
void Measure(benchmark::State& state, double flops, F&& run) {
  std::vector<double> seconds, shares;
  run();
  for (auto _ : state) {
    const double start = ThreadSeconds();
    run();
    seconds.push_back(ThreadSeconds() - start);
    state.SetIterationTime(seconds.back());
    shares.push_back(flops / seconds.back() / MeasurePeak());
  }
  auto median = [](std::vector<double>& values) {
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
  };
  state.counters["ms"] = 1e3 * median(seconds);
  state.counters["GFLOP/s"] = 1e-9 * flops / median(seconds);
  state.counters["of_peak"] = median(shares);
}

}  // namespace pando
