// The load that many members put on one real scheduler: they join, send heartbeats, enter views and
// die, over real sockets, in one process. They compute and hold nothing.
#pragma once

#include <string>

#include "common/result.h"
#include "net/zmq/keys.h"

namespace pando::bench {

struct MembersOptions {
  std::string scheduler;  // endpoint
  int scheduler_pid = 0;  // whose processor time and memory are measured
  uint32_t count = 1000;  // of all members
  uint32_t servers = 8;   // of these; as many as the job wants
  uint32_t first = 16;    // join first and let the run begin: the job's servers and workers
  uint32_t killed = 100;  // workers that die at once
  double rest_s = 10;     // of the measurement at rest
  Keys keys = {};
};

// Returns the figures as JSON: of 1,000 joins, at rest, of one join, of one death, and of many
// deaths at once. An error names the phase that did not end within two minutes. Raises this
// process's limit of open files.
Result<std::string> MeasureMembers(const MembersOptions& options);

}  // namespace pando::bench
