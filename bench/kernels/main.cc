// Benchmarks of the kernels: GFLOP/s and the share of what the core does at most, measured in turns
// with it (measure.h). Options are Google Benchmark's, of which --benchmark_filter is the most
// used.
#include "bench/kernels/benches.h"
#include "bench/kernels/measure.h"

namespace pando {
namespace {

// What others are shares of.
void FmaPeak(benchmark::State& state) {
  std::vector<double> peaks;
  for (auto _ : state) SecondsOf(state, [&] { peaks.push_back(MeasurePeak()); });
  state.counters["GFLOP/s"] = 1e-9 * Median(peaks);
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) {
  pando::RegisterBench("fma_peak", pando::FmaPeak);
  pando::RegisterConvolutions();
  pando::RegisterElementwise();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
