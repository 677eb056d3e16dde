// FaultList: the faults of a run, one entry each, from all rows and answers that tell of them. Used
// by RunWatch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "scheduler/journal.h"

namespace pando {

// A fault comes again, under its id, once more of it is known. Threads: none.
class FaultList {
 public:
  static constexpr size_t kFaultsMax = 1'000;  // the newest

  // News that `Add` has told first.
  struct News {
    bool is_noticed = false;
    std::optional<double> recovery_ms;
  };
  // As in events.jsonl, the status or the summary, in any order. A fault without an id, of an older
  // release, is ignored.
  News Add(const FaultRecord& fault);

  uint64_t changes() const { return changes_; }
  // The entries that have changed since: [{"id": 3, "target": "worker 1", ...}, ...].
  nlohmann::json Since(uint64_t changes) const;

 private:
  struct Entry {
    FaultRecord fault;
    uint64_t changed_at = 0;  // of changes_
  };
  std::map<uint64_t, Entry> entries_;  // by id
  uint64_t forgotten_ = 0;             // the ids up to this one
  uint64_t changes_ = 0;
};

}  // namespace pando
