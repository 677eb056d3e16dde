#include "bench/cpp/push_pull/shared_counters.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

namespace pando::bench {
namespace {

Status CannotShare() {
  return Unavailable(fmt::format("cannot share memory for the counters: {}", std::strerror(errno)));
}

}  // namespace

void CounterSlot::NoteReply(uint64_t bytes, std::chrono::nanoseconds latency) {
  payload_bytes.fetch_add(2 * bytes, std::memory_order_relaxed);
  const uint64_t index = latency_count.load(std::memory_order_relaxed);
  const auto ns = std::min<uint64_t>(static_cast<uint64_t>(latency.count()), UINT32_MAX);
  latency_ns[index % kLatenciesMax].store(static_cast<uint32_t>(ns), std::memory_order_relaxed);
  latency_count.store(index + 1, std::memory_order_release);
}

uint32_t CounterSlot::WaitForPort() const {
  while (port == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return port;
}

Result<SharedCounters> SharedCounters::Create(size_t slot_count) {
  UniqueFd fd(memfd_create("pando-bench", MFD_CLOEXEC));
  if (!fd.is_open()) return CannotShare();
  if (ftruncate(fd.get(), static_cast<off_t>(slot_count * sizeof(CounterSlot))) != 0)
    return CannotShare();
  return Open(fd.Release());
}

Result<SharedCounters> SharedCounters::Open(int fd_in) {
  UniqueFd fd(fd_in);
  struct stat facts {};
  if (fstat(fd.get(), &facts) != 0) return CannotShare();
  const auto bytes = static_cast<size_t>(facts.st_size);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return CannotShare();
  return SharedCounters(std::move(fd), static_cast<CounterSlot*>(memory),
                        bytes / sizeof(CounterSlot));
}

void SharedCounters::Unmap::operator()(CounterSlot* slots) const {
  munmap(slots, slot_count * sizeof(CounterSlot));
}

std::vector<double> LatenciesSince(const CounterSlot& slot, uint64_t first) {
  const uint64_t last = slot.latency_count.load(std::memory_order_acquire);
  if (last > kLatenciesMax) first = std::max(first, last - kLatenciesMax);
  std::vector<double> latencies_us;
  for (uint64_t i = first; i < last; ++i) {
    latencies_us.push_back(1e-3 * slot.latency_ns[i % kLatenciesMax].load());
  }
  return latencies_us;
}

}  // namespace pando::bench
