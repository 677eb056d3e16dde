// MirrorParts cuts the changes of a leader's run folder into the parts that a standby gets (P47).
// MirrorSender uses it. Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/hash128.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "node/standby/mirror_scan.h"

namespace pando {

class MirrorParts {
 public:
  static constexpr uint64_t kPartBytesMax = 256 << 10;

  explicit MirrorParts(std::string run_dir) : run_dir_(std::move(run_dir)) {}

  // Adds what MirrorScan has found. A change of a file that waits already becomes part of that one.
  void Add(const std::vector<MirrorChange>& changes);
  // The number of changes so far.
  uint64_t added_count() const { return added_count_; }
  // Returns the next part, without session and number; none if there is no change. An error says
  // what cannot be read now.
  Result<std::optional<MirrorPart>> Next();

 private:
  struct Reading {  // the change that is being cut
    MirrorChange change;
    UniqueFd fd;
    uint64_t at = 0;
    std::optional<Hash128> hash{std::in_place};  // of the bytes below `at` of a whole file
  };
  Status Open();
  Status Read(MirrorPart* part);

  const std::string run_dir_;
  std::deque<MirrorChange> waiting_;
  std::map<std::string, uint64_t> waiting_numbers_;  // by name, counted from 1
  uint64_t added_count_ = 0;
  std::optional<Reading> reading_;
};

// Returns whether the part is the last one of its change.
inline bool IsLast(const MirrorPart& part) {
  return part.kind == MirrorKind::kRemoved || part.offset + part.payload.size_bytes() == part.size;
}

}  // namespace pando
