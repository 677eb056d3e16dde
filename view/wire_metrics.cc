#include "view/wire_metrics.h"

#include <algorithm>

namespace pando {

WireMetrics::WireMetrics(prometheus::Registry& registry, const std::string& run) {
  auto& family = prometheus::BuildCounter()
                     .Name("pando_wire_bytes_total")
                     .Help("Bytes between the run's processes, which both ends count.")
                     .Register(registry);
  for (size_t kind = 0; kind < kTransports.size(); ++kind) {
    for (size_t way = 0; way < kDirections.size(); ++way) {
      counters_[kind][way] = &family.Add(
          {{"run", run}, {"transport", kTransports[kind]}, {"direction", kDirections[way]}});
    }
  }
}

void WireMetrics::OnNodes(std::span<const RunStatus::Node> nodes) {
  ++status_count_;
  for (const RunStatus::Node& node : nodes) {
    if (!node.traffic || node.host.empty() || node.pid == 0) continue;
    Life& life = lives_[{node.host, node.pid}];
    life.told_at = status_count_;
    const std::array kinds{node.traffic->tcp, node.traffic->ipc, node.traffic->shm};
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      if (!kinds[kind]) continue;
      for (size_t way = 0; way < kDirections.size(); ++way) {
        const auto bytes = static_cast<double>((*kinds[kind])[way]);
        // A restarted scheduler has no counts before a process's next heartbeat.
        if (bytes <= 0) continue;
        double& before = life.bytes[kind][way];
        // Fewer bytes mean that another process got the same id, as in a container.
        counters_[kind][way]->Increment(bytes < before ? bytes : bytes - before);
        before = bytes;
      }
    }
  }
  while (lives_.size() > nodes.size() + kLivesMax) ForgetOldest();
}

void WireMetrics::ForgetOldest() {
  const auto oldest =
      std::ranges::min_element(lives_, {}, [](const auto& entry) { return entry.second.told_at; });
  lives_.erase(oldest);
}

}  // namespace pando
