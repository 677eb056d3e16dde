// JournaledOutbox is how the scheduler's parts send messages and tell events. It gathers messages
// and commits the journal before it sends them (P25): no process hears a decision that a restart of
// the scheduler could lose. Threads: none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/outbox.h"
#include "scheduler/journal.h"
#include "scheduler/run_observer.h"

namespace pando {

// What the journal keeps, gathered from the parts. The scheduler's dispatcher implements it.
class JournaledState {
 public:
  virtual ~JournaledState() = default;
  virtual SchedulerState State() const = 0;
  // The journal has what State() returned last.
  virtual void OnJournaled() = 0;
};

class JournaledOutbox {
 public:
  struct Identity {
    PeerId self;
    JobId job;
  };
  // All references outlive the outbox. `view` is the newest one: messages are sent in it.
  JournaledOutbox(const Identity& identity, const View& view, JournaledState& state,
                  Journal& journal, RunObserver& observer, Outbox& outbox);

  const PeerId& self() const { return identity_.self; }
  JobId job() const { return identity_.job; }

  // The message leaves with the next Flush.
  void Send(const PeerId& to, Message message);
  // Tells the run's observer of an event, at once.
  void Tell(Micros now, const char* name, const std::string& node, const std::string& text,
            bool is_notable = false);

  // The state differs from what the journal has.
  void MarkChanged() { has_changed_ = true; }
  // Writes the journal at once.  Returns false if it refuses: then the scheduler is fenced (P26),
  // and no message leaves any more.
  bool Commit();
  // Writes the journal if the state has changed, then sends what was gathered.
  void Flush(Micros now);
  bool fenced() const { return !status_.ok(); }
  const Status& status() const { return status_; }

  // Unanswered messages are repeated every kRepeatInterval, and at once after RepeatAt(now).
  void RepeatAt(Micros now) { repeat_at_ = now; }
  Micros repeat_at() const { return repeat_at_; }
  // Whether it is time to repeat them. If so, the next time is set.
  bool TakeRepeat(Micros now);

 private:
  static constexpr Micros kRepeatInterval = std::chrono::milliseconds(200);

  const Identity identity_;
  const View& view_;
  JournaledState& state_;
  Journal& journal_;
  RunObserver& observer_;
  Outbox& outbox_;
  Status status_;
  bool has_changed_ = true;           // at least the term (P26)
  std::optional<Micros> journal_at_;  // kAnnounceBeforeJournal: when it is written
  std::vector<Envelope> outgoing_;
  Micros repeat_at_{0};
};

}  // namespace pando
