// WireMetrics counts, for Prometheus, the bytes that a run's processes have sent and received.
// RunMetrics uses it.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "scheduler/run_status.h"

namespace pando {

// A process counts from its own start, and its next life begins at zero. The counters here add the
// increases of all lives, so they never fall. Threads: none.
class WireMetrics {
 public:
  static constexpr size_t kLivesMax = 4'096;  // lives that may have ended, or may be reported again

  // The registry outlives this object.
  WireMetrics(prometheus::Registry& registry, const std::string& run);

  void OnNodes(std::span<const RunStatus::Node> nodes);

 private:
  static constexpr std::array<const char*, 3> kTransports{"tcp", "ipc", "shm"};
  static constexpr std::array<const char*, 2> kDirections{"sent", "received"};
  template <class T>
  using ByKind = std::array<std::array<T, kDirections.size()>, kTransports.size()>;
  struct Life {
    ByKind<double> bytes{};  // as last reported
    uint64_t told_at = 0;    // the number of the last status that had it
  };
  void ForgetOldest();

  ByKind<prometheus::Counter*> counters_{};
  std::map<std::pair<std::string, uint32_t>, Life> lives_;  // by host and process id
  uint64_t status_count_ = 0;
};

}  // namespace pando
