// Starts a child that would live on, says its id on standard output, and waits to be killed:
// the launcher test kills it and looks whether the child survives.
#include <chrono>
#include <cstdio>

#include "node/supervisor.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  pando::ProcessGroup group([](const pando::ProcessExit&) {});
  const pando::Status started = group.Start({.name = "child",
                                             .title = "child",
                                             .args = {"-c", "sleep 600"},
                                             .log_path = argv[1],
                                             .program = "/bin/sh"});
  if (!started.ok()) return 1;
  std::printf("%d\n", static_cast<int>(*group.Pid("child")));
  std::fflush(stdout);
  while (group.running_count() > 0) group.Wait(std::chrono::steady_clock::time_point::max());
  return 0;
}
