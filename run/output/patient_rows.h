// PatientRows appends rows to a file. It holds rows that a full disk refuses, until the disk takes
// them. Threads: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "run/output/row_file.h"

namespace pando {

class PatientRows {
 public:
  static constexpr size_t kHeldBytesMax = 16 << 20;  // 200,000 rows of metrics
  explicit PatientRows(RowFile file) : file_(std::move(file)) {}

  // Appends a row after all earlier ones. Not ok: some rows are held, or lost beyond kHeldBytesMax;
  // the next call tries again.
  Status Append(std::string row);
  Status Flush();
  Status Sync();  // afterwards the appended rows survive a power cut
  uint64_t held_count() const { return held_.size(); }
  uint64_t lost_count() const { return lost_count_; }

 private:
  RowFile file_;
  std::deque<std::string> held_;
  size_t held_bytes_ = 0;
  uint64_t lost_count_ = 0;
};

}  // namespace pando
