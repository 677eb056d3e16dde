// LogFollower shows the output of workers' programs on the terminal of `pando run`.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "common/text.h"
#include "net/stop_flag.h"

namespace pando {

enum class ShownLogs : uint8_t { kFirst, kAll, kNone };  // of a run's workers
template <>
inline constexpr auto kEnumNames<ShownLogs> = std::to_array({"first", "all", "none"});

// Threads: creates one, which writes to standard error.
class LogFollower {
 public:
  struct Log {
    std::string title;  // "worker 0": printed before each line
    std::string path;   // the file need not exist yet
  };
  // Shows the lines that are written from now on, except Pando's own notes.
  explicit LogFollower(std::vector<Log> logs);
  ~LogFollower();  // shows the remaining lines

 private:
  struct Followed : Log {
    uint64_t read_bytes = 0;
    std::string rest;  // an unfinished line
  };
  void Run();
  static void Show(Followed& log);

  std::vector<Followed> logs_;  // only the thread uses them
  StopFlag stop_;
  std::thread thread_;
};

}  // namespace pando
