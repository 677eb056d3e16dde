#include "view/run_status.h"

#include <utility>

#include "files/json_fields.h"

namespace pando {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kShownMs = 100;  // shorter times are not shown

void RoundDown(uint64_t unit, uint64_t* value) { *value -= *value % unit; }

// Makes a process's part. Leaves out what the page does not show and may change with each status.
Json PageNode(RunStatus::Node node) {
  RoundDown(kShownMs, &node.silent_ms);
  if (node.waiting_ms) RoundDown(kShownMs, &*node.waiting_ms);
  if (node.micro_batch_us) {  // rounded to two digits
    uint64_t unit = 1;
    while (*node.micro_batch_us / unit >= 100) unit *= 10;
    RoundDown(unit, &*node.micro_batch_us);
  }
  Json page = ToJson(node);
  for (const char* hidden : {"endpoints", "micro_batches", "data_stall_us", "exposed_sync_us",
                             "gpu_memory_bytes", "gpu_percent", "traffic"})
    page.erase(hidden);
  return page;
}

}  // namespace

Json PageStatus(RunStatus status) {
  const std::vector<RunStatus::Node> nodes = std::exchange(status.nodes, {});
  Json page = ToJson(status);
  for (const char* hidden : {"clock_us", "verification", "evaluation", "snapshots", "faults"})
    page.erase(hidden);
  page["nodes"] = Json::object();
  for (const RunStatus::Node& node : nodes) page["nodes"][node.name] = PageNode(node);
  if (!status.snapshots.empty()) page["newest_snapshot"] = status.snapshots.back().version.value();
  return page;
}

Json MergePatch(const Json& from, const Json& to) {
  Json patch = Json::object();
  for (const auto& [key, value] : to.items()) {
    const auto before = from.find(key);
    if (before == from.end()) {
      patch[key] = value;
    } else if (before->is_object() && value.is_object()) {
      if (Json inner = MergePatch(*before, value); !inner.empty()) patch[key] = std::move(inner);
    } else if (*before != value) {
      patch[key] = value;
    }
  }
  for (const auto& [key, value] : from.items()) {
    if (!to.contains(key)) patch[key] = nullptr;
  }
  return patch;
}

}  // namespace pando
