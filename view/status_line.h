// StatusLine asks a run's scheduler for the status repeatedly, as `pando status` does once. It
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

  // Returns at `deadline`, or earlier once `stop_fd` is readable: the newest status that arrived
  // meanwhile, as JSON text; none if nothing answered. It sends at most one request per call.
  std::optional<std::string> Ask(Micros deadline, int stop_fd);

  // The time since the last answer.
  Micros silence() const { return SteadyNow() - answered_at_; }

 private:
  ZmqContext context_;
  SchedulerClient client_;
  bool is_asking_ = false;  // an earlier call asked, and no answer has come yet
  Micros answered_at_;
};

}  // namespace pando
