// ServiceNotice tells the service manager that started this process (systemd, Type=notify) that the
// process is ready, what it does, and that its loop turns. It does the work of sd_notify(3) without
// libsystemd. The scheduler process and `pando node` use it.
#pragma once

#include <string>

#include "common/clock.h"
#include "common/unique_fd.h"

namespace pando {

// The service manager's variables, which cli/ reads.
struct ServiceManager {
  std::string socket;          // NOTIFY_SOCKET: a path, or "@NAME" (abstract); empty: none
  Micros watchdog_timeout{0};  // WATCHDOG_USEC; 0: no signs of life are wanted
};

// Threads: one. Without a manager it does nothing; notices that cannot be sent are dropped.
class ServiceNotice {
 public:
  explicit ServiceNotice(const ServiceManager& manager);

  void SendReady(const std::string& text);   // `text` appears in systemctl status
  void SendStatus(const std::string& text);  // the same
  void SendStopping();                       // the stop timeout starts here
  // Call it in each turn of the loop, and at least every feed_interval(). Sends a sign of life if
  // one is due: no later than after half of the watchdog's timeout.
  void Feed(Micros now);
  Micros feed_interval() const { return feed_interval_; }  // kNever: none are wanted

 private:
  void Send(const std::string& message) const;

  UniqueFd socket_;
  Micros feed_interval_ = kNever;
  Micros fed_at_{0};
};

}  // namespace pando
