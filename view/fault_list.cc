#include "view/fault_list.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "view/json_members.h"

namespace pando {
namespace {

using Json = nlohmann::json;

// Known by its detection alone.
bool IsBare(const FaultFacts& facts) { return !facts.injected_ms && !facts.recovered_ms; }

bool IsSameFault(const FaultFacts& a, const FaultFacts& b) {
  if (a.target != b.target) return false;
  if (a.detected_ms && a.detected_ms == b.detected_ms) return true;
  if (a.injected_ms && a.injected_ms == b.injected_ms) return true;
  return a.step == b.step && IsBare(a) != IsBare(b) && (a.injected_ms || b.injected_ms);
}

void Override(const FaultFacts& facts, FaultFacts* merged) {
  if (!facts.action.empty()) merged->action = facts.action;
  if (!facts.target.empty()) merged->target = facts.target;
  if (!facts.detected_by.empty()) merged->detected_by = facts.detected_by;
  if (facts.step) merged->step = facts.step;
  if (facts.injected_ms) merged->injected_ms = facts.injected_ms;
  if (facts.detected_ms) merged->detected_ms = facts.detected_ms;
  if (facts.recovered_ms) merged->recovered_ms = facts.recovered_ms;
}

// Later parts win, and those that say more than the detection.
FaultFacts MergeFacts(const std::vector<FaultFacts>& parts) {
  FaultFacts merged;
  for (const bool is_bare : {true, false}) {
    for (const FaultFacts& part : parts) {
      if (IsBare(part) == is_bare) Override(part, &merged);
    }
  }
  return merged;
}

FaultFacts ReadFacts(const Json& told) {
  return {.action = TextAt(told, "action"),
          .target = TextAt(told, "target"),
          .detected_by = TextAt(told, "detected_by"),
          .step = NumberAt(told, "step"),
          .injected_ms = NumberAt(told, "injected_ms"),
          .detected_ms = NumberAt(told, "detected_ms"),
          .recovered_ms = NumberAt(told, "recovered_ms")};
}

Json FactsJson(const FaultFacts& facts) {
  Json json{{"action", facts.action}, {"target", facts.target}};
  if (!facts.detected_by.empty()) json["detected_by"] = facts.detected_by;
  if (facts.step) json["step"] = *facts.step;
  if (facts.injected_ms) json["injected_ms"] = *facts.injected_ms;
  if (facts.detected_ms) json["detected_ms"] = *facts.detected_ms;
  if (facts.recovered_ms) json["recovered_ms"] = *facts.recovered_ms;
  return json;
}

}  // namespace

std::optional<double> FaultList::Add(const Json& told) {
  const FaultFacts facts = ReadFacts(told);
  if (!facts.injected_ms && !facts.detected_ms) return std::nullopt;
  std::vector<Entry*> same;
  std::vector<FaultFacts> parts;
  for (Entry& entry : entries_) {
    if (entry.is_gone || !IsSameFault(entry.facts, facts)) continue;
    same.push_back(&entry);
    parts.push_back(entry.facts);
  }
  parts.push_back(facts);
  FaultFacts merged = MergeFacts(parts);
  if (same.size() == 1 && merged == same[0]->facts) return std::nullopt;
  if (same.empty()) same.push_back(&AddEntry());
  Entry& kept = *same[0];
  kept.facts = std::move(merged);
  kept.changed_at = ++changes_;
  for (size_t i = 1; i < same.size(); ++i) {
    same[i]->is_gone = true;
    same[i]->changed_at = changes_;
    kept.is_recovery_told = kept.is_recovery_told || same[i]->is_recovery_told;
  }
  if (!kept.facts.detected_ms || !kept.facts.recovered_ms) return std::nullopt;
  if (std::exchange(kept.is_recovery_told, true)) return std::nullopt;
  return std::max(
      0.0, *kept.facts.recovered_ms - kept.facts.injected_ms.value_or(*kept.facts.detected_ms));
}

FaultList::Entry& FaultList::AddEntry() {
  if (entries_.size() == kFaultsMax) {
    if (IsNoticed(entries_.front())) ++dropped_noticed_count_;
    entries_.pop_front();
  }
  return entries_.emplace_back(Entry{.id = entry_count_++});
}

Json FaultList::Since(uint64_t changes) const {
  Json list = Json::array();
  for (const Entry& entry : entries_) {
    if (entry.changed_at <= changes) continue;
    list.push_back(entry.is_gone ? Json{{"is_gone", true}} : FactsJson(entry.facts));
    list.back()["id"] = entry.id;
  }
  return list;
}

uint64_t FaultList::noticed_count() const {
  return dropped_noticed_count_ + static_cast<uint64_t>(std::ranges::count_if(entries_, IsNoticed));
}

}  // namespace pando
