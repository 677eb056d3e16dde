// StatusLine requests a run's status from its scheduler repeatedly, as `pando status` does once. It
// survives the scheduler's restart. RunWatch uses it.
#pragma once

#include <optional>
#include <string>

#include "common/clock.h"
#include "net/scheduler_client.h"
#include "net/zmq/keys.h"

namespace pando {

// Threads: one.
class StatusLine {
 public:
  StatusLine(const Keys& keys, const std::string& endpoint);

  // Waits until `deadline`, or until `stop_fd` is readable. Returns the newest status that arrived,
  // as JSON text; none if no answer came. Sends at most one request per call.
  std::optional<std::string> Ask(Micros deadline, int stop_fd);

  // Returns the time since the last answer.
  Micros silence() const { return SteadyNow() - answered_at_; }

 private:
  ZmqContext context_;
  SchedulerClient client_;
  bool is_asking_ = false;  // a request has no answer yet
  Micros answered_at_;
};

}  // namespace pando
