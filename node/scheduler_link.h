// SchedulerLink is a supervisor's connection to the scheduler of its run. It reports faults until
// they are acknowledged, keeps them while the scheduler is away, and follows the run's progress. If
// the run has several schedulers, it follows where they listen, too.
#pragma once

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "common/mailbox.h"
#include "net/scheduler_client.h"
#include "net/stop_flag.h"
#include "scheduler/scheduler_place.h"

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
  // Returns where the run's schedulers listen (SplitEndpoints): those that were given, and those
  // that the leading one has named since.
  std::string endpoints() const;
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
  void Follow(const std::vector<SchedulerPlace>& schedulers, size_t member_count);
  Micros AskWhenDue(Micros now);

  const std::string endpoint_;
  std::atomic<Micros> poll_interval_;
  EventFd interval_changed_;  // raised if poll_interval_ changes
  ZmqContext context_;        // also has the schedulers that were named
  SchedulerClient client_;    // only the thread uses it once it runs
  Mailbox<FaultNote> notes_;
  EventFd changed_;
  std::atomic<bool> has_begun_ = false;
  std::atomic<uint64_t> step_ = 0;
  StopFlag stop_;
  // Used only by the thread:
  uint64_t next_number_ = 1;
  Micros follow_interval_ = kNever;  // the run has one scheduler
  Micros ask_at_{0};
  bool is_asking_ = false;
  std::thread thread_;
};

}  // namespace pando
