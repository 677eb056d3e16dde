// What `pando doctor --join` and `--listen` try: whether a machine that joins a run reaches the
// scheduler's, and is reached from there. Plain TCP; nothing of a run is needed or changed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/status.h"
#include "net/zmq/keys.h"

namespace pando {

struct ReachOptions {
  std::string join;  // tcp: a scheduler's endpoint, or where another doctor listens
  std::string bind;  // where this machine's servers would listen; empty: as ServerArgs::bind
  Keys keys = {};
};
struct ReachReport {
  std::vector<std::string> found;     // one line each
  std::vector<std::string> problems;  // each a sentence that says what to do
};

// Blocks for some seconds for each thing that does not answer.
ReachReport TryReach(const ReachOptions& options);

// Answers doctors of other machines at this endpoint until `stop_fd` is readable: says the time,
// takes the endpoint at which the other one listens, dials it and says whether that succeeded. It
// dials no address other than the one the doctor comes from. `on_event` gets a line for each, first
// the bound endpoint.
Status ListenForDoctors(const std::string& bind, int stop_fd,
                        const std::function<void(const std::string& text)>& on_event);

// A connection to "10.0.0.1:7070" has failed with this error: why, and what to do.
std::string ExplainDial(const std::string& address, uint16_t port, int error);

}  // namespace pando
