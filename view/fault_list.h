// FaultList keeps the faults of a run, one entry each, from all rows and answers that mention them.
// RunWatch uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "scheduler/journal.h"

namespace pando {

// Rows and answers repeat a fault, with its id, when more about it is known. Threads: none.
class FaultList {
 public:
  static constexpr size_t kFaultsMax = 1'000;  // the newest faults are kept

  // The facts about the fault that a call of Add was the first to have.
  struct News {
    bool is_noticed = false;
    std::optional<double> recovery_ms;
  };
  // Takes a fault of events.jsonl, the status or the summary, in any order. Ignores a fault without
  // an id, which an older release wrote.
  News Add(const FaultRecord& fault);

  uint64_t changes() const { return changes_; }
  // Returns the entries that changed since `changes`: [{"id": 3, "target": "worker 1", ...}, ...].
  nlohmann::json Since(uint64_t changes) const;

 private:
  struct Entry {
    FaultRecord fault;
    uint64_t changed_at = 0;  // a value of changes_
  };
  std::map<uint64_t, Entry> entries_;  // by id
  uint64_t forgotten_ = 0;             // faults with ids up to this one were dropped
  uint64_t changes_ = 0;
};

}  // namespace pando
