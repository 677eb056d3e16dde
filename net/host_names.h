// HostNames looks up the addresses of hosts that were dialed by name. A lookup may last longer than
// a step, or than a run: it never holds up the thread that dials, nor ZeroMQ's, which would look
// the name up at every dial and send nothing meanwhile. Used by net/transport alone. Threads: one.
// Each lookup has a thread, which outlives this where it does not end.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/clock.h"
#include "common/endpoint.h"
#include "common/status.h"

namespace pando {

// The address of a peer's host (net/address.h: FindAddress).
using LookUp = std::function<Result<std::string>(const Endpoint& peer)>;

class HostNames {
 public:
  static constexpr Micros kInterval = std::chrono::seconds(1);
  static constexpr Micros kIntervalMax = std::chrono::seconds(5);  // doubled up to it without news

  // `on_failure` gets each host that is not found, once, in Take.
  HostNames(LookUp look_up, std::function<void(const std::string& text)> on_failure);
  ~HostNames();
  HostNames(const HostNames&) = delete;

  // Asks for the address unless the peer was asked for a short while ago, or is being looked up.
  void Ask(Micros now, const Endpoint& peer);
  // Waits for the peer's lookup, until the deadline.
  void WaitFor(const Endpoint& peer, Micros deadline);
  // Takes what was found.
  void Take();
  // The last address that was found; empty: none.
  std::string Find(const Endpoint& peer) const;
  int fd() const;  // readable when Take has something to take

 private:
  struct Found;
  struct Host {
    std::string address;  // the last that was found; empty: none
    Micros ask_at{0};     // not before
    Micros interval = kInterval;
    bool is_pending = false;  // being looked up
    bool has_failed = false;  // since the last address
  };

  const LookUp look_up_;
  const std::function<void(const std::string& text)> on_failure_;
  std::shared_ptr<Found> found_;  // shared with the threads
  // By endpoint: of a host's addresses another one may answer at another port.
  std::map<std::string, Host> hosts_;
};

}  // namespace pando
