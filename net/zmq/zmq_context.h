// ZmqContext owns ZeroMQ's I/O threads and the keys of this process, and knows whether it is
// isolated.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <zmq.hpp>

#include "common/clock.h"
#include "net/zmq/keys.h"
#include "net/zmq/known_schedulers.h"
#include "net/zmq/traffic_meter.h"

namespace pando {

class ZapHandler;

// There is one per process; main makes it, and it outlives every transport. Its destructor waits
// until sent messages have left, at most for the transports' linger.
// Threads: any may make sockets from it.
class ZmqContext {
 public:
  // With keys every TCP connection is authenticated (P44). `on_warning` is called on another thread
  // for connections that are refused.
  explicit ZmqContext(Keys keys = {},
                      std::function<void(const std::string& text)> on_warning = {}) noexcept;
  ~ZmqContext();

  zmq::context_t& zmq_context() { return context_; }

  const Keys& keys() const { return keys_; }
  bool has_keys() const { return !keys_.are_none(); }
  // The pair of this process life; empty without keys.
  const KeyPair& own_keys() const { return own_keys_; }
  // From now on the keys decide which connections this context's sockets accept (zap_handler.h).
  // Call it before such a socket is bound. Threads: one at a time.
  Status StartLettingIn();

  // A partition, for tests and fault injection: until `until` (common/clock.h) this context's
  // transports drop all that they would send and receive. A time in the past ends it. Any thread,
  // and signal handlers.
  void IsolateUntil(Micros until) { isolated_until_ = until; }
  bool is_isolated() const;

  // Where the schedulers of this process's run listen. This context's transports dial them.
  KnownSchedulers& schedulers() { return schedulers_; }
  const KnownSchedulers& schedulers() const { return schedulers_; }

  // Counts the traffic of all of this context's transports.
  TrafficMeter& traffic() { return traffic_; }

 private:
  const Keys keys_;
  const KeyPair own_keys_;
  const std::function<void(const std::string& text)> on_warning_;  // may be null
  zmq::context_t context_;
  std::unique_ptr<ZapHandler> zap_handler_;
  std::atomic<Micros> isolated_until_{Micros(0)};
  KnownSchedulers schedulers_;
  TrafficMeter traffic_;
};

// The version of the ZeroMQ library: "4.3.4".
std::string ZmqVersion();

}  // namespace pando
