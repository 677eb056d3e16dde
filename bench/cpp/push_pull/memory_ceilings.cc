#include "bench/cpp/push_pull/memory_ceilings.h"

#include <chrono>
#include <cstring>
#include <vector>

#include "common/float_buffer.h"

namespace pando::bench {
namespace {

using Clock = std::chrono::steady_clock;

void AddInto(float* a, const float* b, size_t count) {
  for (size_t i = 0; i < count; ++i) a[i] += b[i];
}

// Looks at the clock once for each turn over all buffers.
template <class Operation>
double GbPerS(uint64_t bytes, uint32_t buffer_count, double seconds, Operation operation) {
  std::vector<FloatBuffer> a, b;
  for (uint32_t i = 0; i < buffer_count; ++i) {
    a.emplace_back(bytes / sizeof(float));
    b.emplace_back(bytes / sizeof(float));
    std::memset(a.back().data(), 0, bytes);
    std::memset(b.back().data(), 0, bytes);
  }
  const Clock::time_point start = Clock::now();
  double elapsed = 0.0;
  uint64_t operations = 0;
  do {
    for (uint32_t i = 0; i < buffer_count; ++i) operation(a[i].data(), b[i].data());
    asm volatile("" ::: "memory");  // the compiler must not see that it is not read
    operations += buffer_count;
    elapsed = std::chrono::duration<double>(Clock::now() - start).count();
  } while (elapsed < seconds);
  return 2e-9 * static_cast<double>(bytes) * static_cast<double>(operations) / elapsed;
}

}  // namespace

double MemcpyGbPerS(uint64_t bytes, uint32_t buffer_count, double seconds) {
  return GbPerS(bytes, buffer_count, seconds,
                [bytes](float* a, const float* b) { std::memcpy(a, b, bytes); });
}

double AddGbPerS(uint64_t bytes, uint32_t buffer_count, double seconds) {
  return GbPerS(bytes, buffer_count, seconds,
                [bytes](float* a, const float* b) { AddInto(a, b, bytes / sizeof(float)); });
}

}  // namespace pando::bench
