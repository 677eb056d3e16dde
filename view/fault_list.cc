#include "view/fault_list.h"

#include "files/json_fields.h"
#include "run/summary.h"

namespace pando {
namespace {

// Returns how much is known of a fault. A status may be newer than the rows that are read after it.
int CountTimes(const FaultRecord& fault) {
  return (fault.injected_ms >= 0) + (fault.detected_ms >= 0) + (fault.recovered_ms >= 0);
}

}  // namespace

FaultList::News FaultList::Add(const FaultRecord& fault) {
  if (fault.id <= forgotten_) return {};
  Entry& entry = entries_[fault.id];
  const FaultRecord before = entry.fault;
  if (fault == before || CountTimes(fault) < CountTimes(before)) return {};
  entry = {fault, ++changes_};
  if (entries_.size() > kFaultsMax) {
    forgotten_ = entries_.begin()->first;
    entries_.erase(entries_.begin());
  }
  News news{.is_noticed = before.detected_ms < 0 && fault.detected_ms >= 0, .recovery_ms = {}};
  if (before.recovered_ms < 0 && fault.recovered_ms >= 0)
    news.recovery_ms = std::max(0.0, RecoveryMs(fault));
  return news;
}

nlohmann::json FaultList::Since(uint64_t changes) const {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [id, entry] : entries_) {
    if (entry.changed_at > changes) list.emplace_back(ToJson(entry.fault));
  }
  return list;
}

}  // namespace pando
