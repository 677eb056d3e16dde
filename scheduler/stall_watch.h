// StallWatch names the cause when a run makes no step: which process waits for which, for what and
// since when. It reads only heartbeats and leases, and no decision depends on it.
//
// A run is stalled when it has made no step for the longer of ten usual steps and kStallMin.
// StallWatch looks for causes in this order:
//
// clang-format off
//   cause                                   | waited for
//   ----------------------------------------+-------------------------------------------------------
//   the run has not begun                   | processes that have not joined, or are not ready
//   no worker or no server is left          | the last one that was given up
//   a member is silent                      | that member: stopped, overloaded or cut off
//   one was given up since the last step    | that one: others take over its work
//   an evaluation, beside which no step is  | the worker that evaluates
//   made                                    |
//   a worker waits for samples, or computes | that worker
//   for the longest time                    |
//   a worker waits for a lane               | the server; the backup that owes it an acknowledgement
//   a generation begins                     | the servers, which restore its version
// clang-format on
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>

#include "scheduler/members/run_members.h"

namespace pando {

struct Stall {
  std::string waiter = "the run";  // or "worker 0"
  std::string waited_for;          // "server 1", "1 more worker", "the scheduler"
  std::string what;                // "parameters of step 12", "to join"
  std::string why;                 // "no message comes from it"
  Micros since{0};                 // when the wait began
  std::string log_line;            // the last line of the log of `waited_for`; empty if unknown
  // "worker 0 has waited 1.6 s for server 1 (parameters of step 12): ..."
  std::string Text(Micros now) const;
};

class StallWatch : SchedulerPart {
 public:
  static constexpr Micros kStallMin = std::chrono::seconds(1);
  // These replace kStallMin while processes join, and before the first step.
  static constexpr Micros kStartMin = std::chrono::milliseconds(1500);
  static constexpr Micros kFirstStepMin = std::chrono::seconds(3);

  StallWatch(const SchedulerPart& part, const RunProgress& progress, const RunMembers& membership)
      : SchedulerPart(part), progress_(progress), membership_(membership) {}

  // Must be called before the heartbeat replaces the member's last one.
  void OnHeartbeat(Micros now, const Member& member, const Heartbeat& heartbeat);
  void OnForget(const Member& member);
  // Reports a stall when it begins, when its cause changes and when it ends.
  void Tick(Micros now);
  Micros NextDeadline() const;

  // The current stall; none while steps are made.
  const std::optional<Stall>& stall() const { return stall_; }
  // "no step for 1.5 s: worker 0 waits for ...".  REQUIRES: stall().
  std::string Text(Micros now) const;

 private:
  struct Doing {  // a member's activity, and since when
    Activity activity = Activity::kStarting;
    Step step;
    Micros since{0};
    Micros heard_at{0};
  };
  struct Lost {  // the last member of a role that was given up
    std::string name;
    std::string where;
    std::string log_line;
    Micros heard_at{0};
    Micros lost_at{0};
  };
  struct Told {              // the event of this stall
    std::string waited_for;  // empty: no event was made
    Micros again_at{0};      // the earliest time of an event for a changed cause
    Micros interval{0};
  };

  bool IsWatching() const;
  Micros StepAge(Micros now) const { return now - step_at_; }
  bool HasMadeStep();
  Micros Patience() const;
  void Tell(Micros now);
  void TellEnd(Micros now);

  Stall FindCause(Micros now) const;
  std::optional<Stall> FindMissing(Micros now) const;
  std::optional<Stall> FindUnready() const;
  std::optional<Stall> FindSilent(Micros now) const;
  std::optional<Stall> FindGivenUp(Micros now) const;
  std::optional<Stall> FindBusyWorker(Micros now) const;
  std::optional<Stall> FindOwing(Micros now) const;
  Stall ForLost(Role role, Micros now) const;
  Stall ForMember(const Member& member, std::string what, Micros since, std::string why) const;
  std::string NameWaiter(const Member& waited_for) const;
  const Doing& FindDoing(const Member& member) const;

  const RunProgress& progress_;
  const RunMembers& membership_;
  std::map<NodeId, Doing> doing_;
  std::map<Role, Lost> lost_;
  Micros now_{0};      // when Tick was last called
  Micros step_at_{0};  // when the last step was made; at first: when the watch began
  Version step_version_;
  uint32_t step_generation_ = 0;
  bool is_restoring_ = false;  // the generation has made no step yet
  Micros usual_step_{0};       // 0: no step has been made
  bool is_gathering_ = false;
  std::optional<Stall> stall_;
  Micros look_at_{0};  // when its cause is looked for again, at the earliest
  Told told_;
};

}  // namespace pando
