// ClockProbe measures now and then how far the scheduler's clock is ahead of ours, into the
// timeline of a process, so that those of several machines can be laid beside each other
// (run/timeline_trace). It asks for the run's status, which says what time it is there: of several
// round trips the shortest counts, and is wrong by half of it at most.
#pragma once

#include <string>
#include <thread>

#include "common/timeline.h"
#include "net/client.h"
#include "net/event_loop.h"

namespace pando {

// Threads: starts one, if there is a timeline. Owns: a connection to the scheduler.
class ClockProbe {
 public:
  // `context` and `timeline`, which may be null, outlive it.
  ClockProbe(ZmqContext& context, std::string scheduler_endpoint, Timeline* timeline);
  ~ClockProbe();
  ClockProbe(const ClockProbe&) = delete;

 private:
  struct Reading {
    int64_t at_ns = 0;  // of our clock, in the middle
    int64_t ahead_ns = 0;
    int64_t round_trip_ns = INT64_MAX;
  };
  void Main();
  void MeasureOften(SchedulerClient& client);
  bool Measure(SchedulerClient& client);
  bool Ask(SchedulerClient& client, Reading* best);
  bool Pause(SchedulerClient& client, Micros until);

  ZmqContext& context_;
  const std::string endpoint_;
  Timeline* const timeline_;
  StopFlag stop_;
  TimelineTrack* track_ = nullptr;
  TimelineNameId name_;
  std::thread thread_;
};

}  // namespace pando
