// Counters of the processes of a measurement, which the benchmark reads while they run. The
// counters are in shared memory, with one slot for each process.
// Threads: a slot has one writer; any thread may read it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"

namespace pando::bench {

// The number of newest latencies that are kept.
inline constexpr size_t kLatenciesMax = 1 << 15;

struct alignas(64) CounterSlot {
  std::atomic<uint64_t> payload_bytes;  // pushed and answered: each reply counts for both
  std::atomic<uint64_t> message_count;  // sent and received
  std::atomic<uint64_t> latency_count;  // latencies of answers; incremented last
  std::atomic<uint32_t> port;           // where the process listens; 0: it does not yet
  std::array<std::atomic<uint32_t>, kLatenciesMax> latency_ns;

  // Notes a reply that has as many bytes as the push.
  void NoteReply(uint64_t bytes, std::chrono::nanoseconds latency);
  uint32_t WaitForPort() const;
};

class SharedCounters {
 public:
  static Result<SharedCounters> Create(size_t slot_count);  // all zeros
  // Opens the counters of a descriptor that this process inherited.
  static Result<SharedCounters> Open(int fd);

  int fd() const { return fd_.get(); }
  CounterSlot& slot(size_t i) const { return slots_[i]; }
  size_t slot_count() const { return slots_.get_deleter().slot_count; }

 private:
  struct Unmap {
    size_t slot_count = 0;
    void operator()(CounterSlot* slots) const;
  };
  SharedCounters(UniqueFd fd, CounterSlot* slots, size_t slot_count)
      : fd_(std::move(fd)), slots_(slots, Unmap{slot_count}) {}

  UniqueFd fd_;
  std::unique_ptr<CounterSlot[], Unmap> slots_;
};

// Returns the latencies from the `first`-th on that are still kept, in microseconds.
std::vector<double> LatenciesSince(const CounterSlot& slot, uint64_t first);

}  // namespace pando::bench
