// MicroBatchTime measures how long one thread takes for a micro-batch. Used by the trainer, and by
// embed/, where a program computes.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace pando {

// A moving average. Threads: any.
class MicroBatchTime {
 public:
  // Two threads at once may lose one of the two times, which does no harm to an average.
  void Add(std::chrono::nanoseconds time) {
    const int64_t average = average_ns_;
    const int64_t sample = std::max<int64_t>(1, time.count());
    average_ns_ = average == 0
                      ? sample
                      : average + (std::min(sample, kOutlier * average) - average) / kMemory;
  }
  int64_t average_ns() const { return average_ns_; }  // 0 before the first

 private:
  static constexpr int64_t kMemory = 8;  // micro-batches over which the average moves
  // A process that was stopped, or lost its core for a while, is not slow. So one micro-batch
  // counts as at most this many times the average.
  static constexpr int64_t kOutlier = 4;

  std::atomic<int64_t> average_ns_ = 0;
};

}  // namespace pando
