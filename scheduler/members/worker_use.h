// WorkerUse sums up the workers' waits since this life of the scheduler began, as their heartbeats
// say. RunMembers owns it; the run's recorder reads it.
#pragma once

#include <algorithm>

#include "scheduler/members/members.h"

namespace pando {

class WorkerUse {
 public:
  // `has_past`: an earlier life of the scheduler has counted the waits before a worker's first
  // heartbeat to this one.
  explicit WorkerUse(bool has_past) : has_past_(has_past) {}

  void OnHeartbeat(const Heartbeat& before, const Heartbeat& heartbeat, size_t worker_count) {
    if (has_past_ && before.data_stall_us + before.exposed_sync_us == 0) return;
    const auto since = [](uint64_t now, uint64_t then) { return now > then ? now - then : 0; };
    data_stall_us_ += since(heartbeat.data_stall_us, before.data_stall_us);
    exposed_sync_us_ += since(heartbeat.exposed_sync_us, before.exposed_sync_us) /
                        std::max<size_t>(1, worker_count);
  }

  // All workers' threads together, waiting for samples.
  uint64_t data_stall_us() const { return data_stall_us_; }
  // One worker's thread, waiting for parameters, on average.
  uint64_t exposed_sync_us() const { return exposed_sync_us_; }

 private:
  const bool has_past_;
  uint64_t data_stall_us_ = 0;
  uint64_t exposed_sync_us_ = 0;
};

// GpuUse sums up the workers' GPUs, as their last heartbeats say. It is zero if no worker has one.
struct GpuUse {
  uint64_t memory_bytes = 0;  // the most memory in use on one GPU
  double percent = 0;         // the mean share of time with a kernel at work
};
inline GpuUse SumGpuUse(const Members& members) {
  GpuUse use;
  uint32_t gpu_count = 0;
  for (const auto& [node, member] : members.all()) {
    const Heartbeat& heartbeat = member.heartbeat;
    if (heartbeat.gpu_memory_bytes == 0) continue;
    use.memory_bytes = std::max(use.memory_bytes, heartbeat.gpu_memory_bytes);
    use.percent += heartbeat.gpu_percent;
    ++gpu_count;
  }
  if (gpu_count > 0) use.percent /= gpu_count;
  return use;
}

}  // namespace pando
