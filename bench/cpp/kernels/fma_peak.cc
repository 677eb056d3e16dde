#include "bench/cpp/kernels/fma_peak.h"

#include <cstddef>

#include "kernels/cpu/simd.h"

namespace pando {

double MeasurePeak() {
  using cpu::Vec;
  constexpr size_t kChains = 12,
                   kRounds = 20'000;  // two per cycle, four cycles each: at least 8 chains
  Vec sums[kChains] = {};
  const Vec factor = cpu::Broadcast(0.5f), term = cpu::Broadcast(1.0f);
  const double start = ThreadSeconds();
  for (size_t i = 0; i < kRounds; ++i) {
    for (Vec& sum : sums) sum = cpu::InRegister(sum * factor + term);
  }
  const double seconds = ThreadSeconds() - start;
  // The compiler must not notice that the sums are not read.
  for (Vec& sum : sums) asm volatile("" ::"m"(sum));
  return 2.0 * cpu::kLanes * kChains * kRounds / seconds;
}

}  // namespace pando
