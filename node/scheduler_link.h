// SchedulerLink is a supervisor's connection to the scheduler of its run. It reports faults until
// they are acknowledged, keeps them while the scheduler is away, and follows the run's progress.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <thread>

#include "common/mailbox.h"
#include "net/scheduler_client.h"
#include "net/stop_flag.h"
#include "node/supervisor.h"

namespace pando {

// The scheduler's last answer.
struct ReportedProgress {
  bool has_begun = false;  // all processes for which the run waits had joined
  Step step;               // the lowest incomplete step
};

// Threads: Start creates one; any thread may call the other functions. Owns: unacknowledged
// notes.
class SchedulerLink {
 public:
  // `poll_interval` is the interval of progress requests after the run's start; kNever: none.
  SchedulerLink(std::string endpoint, Micros poll_interval, const Keys& keys = {});
  ~SchedulerLink();  // unacknowledged notes are dropped

  Status Start();
  void Tell(FaultNote note);
  ReportedProgress progress() const;
  // Asks at least this often from now on.
  void PollEach(Micros interval) {
    poll_interval_ = std::min(poll_interval_.load(), interval);
    interval_changed_.Raise();
  }
  // Readable once progress has changed since the last Clear().
  int fd() const { return changed_.fd(); }
  void Clear() { changed_.Clear(); }

 private:
  void Run();
  void HearStatus(const std::string& json);
  Micros AskWhenDue(Micros now);

  const std::string endpoint_;
  std::atomic<Micros> poll_interval_;
  EventFd interval_changed_;  // raised if poll_interval_ changes
  ZmqContext context_;
  SchedulerClient client_;  // only the thread uses it once it runs
  Mailbox<FaultNote> notes_;
  EventFd changed_;
  std::atomic<bool> has_begun_ = false;
  std::atomic<uint64_t> step_ = 0;
  StopFlag stop_;
  // Used only by the thread:
  uint64_t next_number_ = 1;
  Micros ask_at_{0};
  bool is_asking_ = false;
  std::thread thread_;
};

// RepeatedDeaths recognises a process that died four times by the memory limit, or with the same
// exit code, while no step of the run became known: it would die again. Three deaths would prove
// less, because the known step may be older than the first one. Deaths that a person or chaos
// causes do not count. Threads: none.
class RepeatedDeaths {
 public:
  // Call it at once for each unclean end.
  void OnExit(const ProcessExit& exit, SchedulerLink& link);
  bool AreHopeless(const std::string& name) const;

 private:
  struct Streak {
    std::string kind;
    Step step;  // as known at its deaths
    uint32_t count = 0;
  };
  std::map<std::string, Streak> streaks_;  // by the process's name
};

}  // namespace pando
