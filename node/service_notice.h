// ServiceNotice tells the service manager that started this process (systemd, Type=notify) when the
// process is ready, what it does and that its loop turns: sd_notify(3), without libsystemd. Used by
// the scheduler process and `pando node`.
#pragma once

#include <string>

#include "common/clock.h"
#include "common/descriptor.h"

namespace pando {

// The manager's variables; cli/ reads them.
struct ServiceManager {
  std::string socket;          // NOTIFY_SOCKET: a path, or "@NAME" in the abstract; empty: none
  Micros watchdog_timeout{0};  // WATCHDOG_USEC; 0: it wants no signs of life
};

// Threads: one. Without a manager it does nothing; what cannot be sent is dropped.
class ServiceNotice {
 public:
  explicit ServiceNotice(const ServiceManager& manager);

  void SendReady(const std::string& text);   // `text`: as systemctl status shows it
  void SendStatus(const std::string& text);  // the same
  void SendStopping();                       // from here on the stop timeout counts
  // To be called in each turn of the loop, and at least each feed_interval(). Sends a sign of life
  // if one is due: at the latest after half of the watchdog's timeout.
  void Feed(Micros now);
  Micros feed_interval() const { return feed_interval_; }  // kNever: no signs of life are wanted

 private:
  void Send(const std::string& message) const;

  UniqueFd socket_;
  Micros feed_interval_ = kNever;
  Micros fed_at_{0};
};

}  // namespace pando
