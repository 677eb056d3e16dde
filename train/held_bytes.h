// HeldBytes counts the bytes of parameters that several stores hold together. Threads: any.
#pragma once

#include <atomic>
#include <cstdint>

namespace pando {

class HeldBytes {
 public:
  void Add(uint64_t bytes) {
    const uint64_t now = now_ += bytes;
    uint64_t peak = peak_;
    while (peak < now && !peak_.compare_exchange_weak(peak, now)) {
    }
  }
  void Remove(uint64_t bytes) { now_ -= bytes; }
  uint64_t now() const { return now_; }
  uint64_t peak() const { return peak_; }

 private:
  std::atomic<uint64_t> now_ = 0;
  std::atomic<uint64_t> peak_ = 0;
};

}  // namespace pando
