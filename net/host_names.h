// HostNames looks up the addresses of hosts that were dialed by name. A lookup may last longer than
// a step, or than a run. So a lookup never blocks the thread that dials, nor ZeroMQ's thread, which
// would look the name up at every dial and send nothing meanwhile. Only net/transport uses it.
// Threads: one. Each lookup has a thread, which outlives this object if the lookup does not end.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/clock.h"
#include "common/endpoint.h"
#include "common/result.h"

namespace pando {

// Returns the address of a peer's host (net/address.h: FindAddress).
using LookUp = std::function<Result<std::string>(const Endpoint& peer)>;

class HostNames {
 public:
  // The time between two lookups of a host. It doubles up to kIntervalMax while nothing changes.
  static constexpr Micros kInterval = std::chrono::seconds(1);
  static constexpr Micros kIntervalMax = std::chrono::seconds(5);

  // Take calls `on_failure` once for each host that is not found.
  HostNames(LookUp look_up, std::function<void(const std::string& text)> on_failure);
  ~HostNames();
  HostNames(const HostNames&) = delete;

  // Starts a lookup of the peer's address, unless one is running or the last one is recent.
  void Ask(Micros now, const Endpoint& peer);
  // Waits for the peer's lookup, until the deadline.
  void WaitFor(const Endpoint& peer, Micros deadline);
  // Takes the results.
  void Take();
  // Returns the last address that was found, or "".
  std::string Find(const Endpoint& peer) const;
  int fd() const;  // readable when Take has something to take

 private:
  struct Found;
  struct Host {
    std::string address;  // the last one that was found; may be empty
    Micros ask_at{0};     // the earliest next lookup
    Micros interval = kInterval;
    bool is_pending = false;  // a lookup is running
    bool has_failed = false;  // since the last address was found
  };

  const LookUp look_up_;
  const std::function<void(const std::string& text)> on_failure_;
  std::shared_ptr<Found> found_;  // shared with the threads
  // By endpoint, since another of a host's addresses may answer at another port.
  std::map<std::string, Host> hosts_;
};

}  // namespace pando
