// Measures the most multiply-adds of a core, and has the clock with which kernels are measured.
// Both benchmarks of kernels use this file.
#pragma once

#include <time.h>

namespace pando {

// Returns processor time of this thread, on which other work of the machine has less effect.
inline double ThreadSeconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Measures the floating-point operations per second of fused multiply-adds on whole vectors.
double MeasurePeak();

}  // namespace pando
