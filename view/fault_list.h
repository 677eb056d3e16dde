// FaultList: the faults of a run, one entry each, from all rows and answers that tell of them. Used
// by RunWatch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace pando {

// Texts are empty, and numbers missing, while they are not known.
struct FaultFacts {
  std::string action;
  std::string target;
  std::string detected_by;
  std::optional<double> step;
  std::optional<double> injected_ms;  // since the run's start, as the others
  std::optional<double> detected_ms;
  std::optional<double> recovered_ms;
  bool operator==(const FaultFacts&) const = default;
};

// A fault comes again once more of it is known. An injected one may also be known by its
// detection alone, which may come earlier or later: both become one entry. Threads: none.
class FaultList {
 public:
  static constexpr size_t kFaultsMax = 1'000;  // the newest

  // `told`: a fault as in events.jsonl, the status or the summary; anything else is ignored.
  // Returns the milliseconds of its recovery when they become known.
  std::optional<double> Add(const nlohmann::json& told);

  uint64_t changes() const { return changes_; }
  // The entries that have changed since: [{"id": 3, "target": "worker 1", ...}, ...]. One that has
  // become part of another is {"id": 4, "is_gone": true}.
  nlohmann::json Since(uint64_t changes) const;

  // Entries whose fault was noticed. An entry that becomes part of another lowers it.
  uint64_t noticed_count() const;

 private:
  struct Entry {
    uint64_t id = 0;
    uint64_t changed_at = 0;  // of changes_
    FaultFacts facts = {};
    bool is_gone = false;
    bool is_recovery_told = false;
  };
  static bool IsNoticed(const Entry& entry) { return !entry.is_gone && entry.facts.detected_ms; }
  Entry& AddEntry();

  std::deque<Entry> entries_;
  uint64_t entry_count_ = 0;  // with those that were dropped
  uint64_t dropped_noticed_count_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace pando
