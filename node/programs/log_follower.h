// LogFollower shows what workers' programs print, on the terminal of `pando run`.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "common/descriptor.h"
#include "common/text.h"
#include "net/event_loop.h"

namespace pando {

enum class ShownLogs : uint8_t { kFirst, kAll, kNone };  // of a run's workers
template <>
inline constexpr auto kEnumNames<ShownLogs> = std::to_array({"first", "all", "none"});

// Threads: makes one, which writes to standard error.
class LogFollower {
 public:
  struct Log {
    std::string title;  // "worker 0": in front of each line
    std::string path;   // need not exist yet
  };
  // Shows the lines that are written from now on, but not Pando's own notes.
  explicit LogFollower(std::vector<Log> logs);
  ~LogFollower();  // shows what is left

 private:
  struct Followed : Log {
    uint64_t read_bytes = 0;
    std::string rest;  // of a line without its end
  };
  void Run();
  static void Show(Followed& log);

  std::vector<Followed> logs_;  // the thread's
  StopFlag stop_;
  std::thread thread_;
};

}  // namespace pando
