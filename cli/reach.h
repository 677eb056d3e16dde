// The tests of `pando doctor --join` and `--listen`: a joining machine must reach the scheduler's
// machine and be reached from there. They use plain TCP. They neither need nor change a run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/status.h"
#include "net/zmq/keys.h"

namespace pando {

struct ReachOptions {
  std::string join;  // tcp: the endpoint of a scheduler or of another doctor
  std::string bind;  // where this machine's servers would listen; empty: as ServerArgs::bind
  Keys keys = {};
};
struct ReachReport {
  std::vector<std::string> found;     // one line each
  std::vector<std::string> problems;  // sentences that each say what to do
};

// Tests the connections. Blocks for some seconds for each peer that does not answer.
ReachReport TryReach(const ReachOptions& options);

// Answers doctors of other machines at this endpoint until `stop_fd` is readable. It sends each the
// time, takes the endpoint at which the other machine listens, dials it and reports whether that
// succeeded. It dials only the address from which the doctor comes. `on_event` gets a line for each
// event, the bound endpoint first.
Status ListenForDoctors(const std::string& bind, int stop_fd,
                        const std::function<void(const std::string& text)>& on_event);

// Explains why a connection to "10.0.0.1:7070" failed with this error, and what to do.
std::string ExplainDial(const std::string& address, uint16_t port, int error);

}  // namespace pando
