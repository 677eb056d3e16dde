// StatusLine asks a run's scheduler for the status again and again, as `pando status` does once. It
// survives the scheduler's restart. Used by RunWatch.
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

  // Returns at `deadline`, or earlier once `stop_fd` is readable: the newest status that came
  // meanwhile, as JSON text; none: nothing answered. At most one request per call.
  std::optional<std::string> Ask(Micros deadline, int stop_fd);

  // How long nothing has answered.
  Micros silence() const { return SteadyNow() - answered_at_; }

 private:
  ZmqContext context_;
  SchedulerClient client_;
  bool is_asking_ = false;  // in an earlier call, without an answer yet
  Micros answered_at_;
};

}  // namespace pando
