// The multiply-adds that a core does at most, and the clock that kernels are measured with. Used by
// both benchmarks of kernels.
#pragma once

#include <time.h>

namespace pando {

// Processor time of this thread: what others do on the machine counts less.
inline double ThreadSeconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Floating-point operations per second of fused multiply-adds on whole vectors, in registers.
double MeasurePeak();

}  // namespace pando
