// TrafficMeter counts the bytes of the messages that a process exchanges, by kind of connection.
// Payloads in shared memory count as bytes of shm, because the peer reads them. Threads: any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "proto/messages.h"

namespace pando {

enum class LineKind : uint8_t { kTcp, kIpc, kShm };

class TrafficMeter {
 public:
  void OnSent(LineKind kind, size_t bytes) { Add(counts_[Index(kind)].sent, bytes); }
  void OnReceived(LineKind kind, size_t bytes) { Add(counts_[Index(kind)].received, bytes); }
  LineTraffic Read(LineKind kind) const {
    const Count& count = counts_[Index(kind)];
    return {count.sent.load(std::memory_order_relaxed),
            count.received.load(std::memory_order_relaxed)};
  }

 private:
  struct Count {
    std::atomic<uint64_t> sent = 0;
    std::atomic<uint64_t> received = 0;
  };
  static size_t Index(LineKind kind) { return static_cast<size_t>(kind); }
  static void Add(std::atomic<uint64_t>& sum, size_t bytes) {
    sum.fetch_add(bytes, std::memory_order_relaxed);
  }

  std::array<Count, 3> counts_;
};

}  // namespace pando
