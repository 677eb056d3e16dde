// LineTail reads a file that grows while its writer is at work: metrics, logs. Used by
// TrainingRun.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pando::bench {

class LineTail {
 public:
  explicit LineTail(std::string path) : path_(std::move(path)) {}
  // The whole lines since the last call, without their ends. None while there is no file.
  std::vector<std::string> Take();

 private:
  std::string path_;
  uint64_t read_bytes_ = 0;  // whole lines
};

}  // namespace pando::bench
