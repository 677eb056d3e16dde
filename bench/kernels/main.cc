// Benchmarks of the kernels: GFLOP/s and the share of what the core does at most, measured in turns
// with it (measure.h). Options are Google Benchmark's, of which --benchmark_filter is the most
// used.
#include "bench/kernels/benches.h"

int main(int argc, char** argv) {
  pando::RegisterConvolutions();
  pando::RegisterElementwise();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
