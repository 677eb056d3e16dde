// JournaledOutbox sends the messages and reports the events of the scheduler's parts. It gathers
// messages and commits the journal before it sends them (P25), so no process learns a decision that
// a restart of the scheduler could lose.
#pragma once

#include <fmt/core.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/float_buffer.h"
#include "proto/outbox.h"
#include "scheduler/journal.h"
#include "scheduler/views/view_ledger.h"

namespace pando {

// RunEvent is something that happened to the run, for events.jsonl and the log.
struct RunEvent {
  std::string name;         // "registered", "view", "training", "dead", "failed", ...
  std::string node;         // "worker 1", or empty
  std::string text;         // for people
  bool is_notable = false;  // worth a line on the terminal
};

// SnapshotCheck is the result of reading a snapshot's files.
struct SnapshotCheck {
  Status status;
  ShardId shard = {};  // the first one whose file is missing or wrong
};

// RunObserver gets everything that the run folder records from the scheduler core, in order. It
// gets evaluations, faults and snapshots once they are in the journal.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void OnEvent(Micros now, const RunEvent& event) = 0;
  // Reports each step of the job once, ascending, over all lives of the scheduler
  // (Options::next_row). A step is left out only if its row was lost with a server.
  virtual void OnStepMetrics(Micros now, const StepMetrics& metrics) = 0;
  // Reports an evaluation. Those of earlier lives are in the SchedulerState.
  virtual void OnEvaluation(Micros now, const EvaluationSummary& summary) = 0;
  // Withdraws the results of all versions above `last_good`, which a wrong gradient made (P41).
  virtual void OnEvaluationsDropped(Micros now, Version last_good) = 0;
  // Reports a new fault, or a change of a known one. FaultRecord::id tells them apart.
  virtual void OnFault(Micros now, const FaultRecord& fault) = 0;
  // Returns whether the files of a snapshot that all shards have reported hold these records, or
  // none while they are being read. The call is repeated.
  virtual std::optional<SnapshotCheck> OnSnapshotRipe(Micros now,
                                                      const SnapshotManifest& manifest) = 0;
  // Reports a complete snapshot.
  virtual void OnSnapshot(Micros now, const SnapshotManifest& manifest) = 0;
  // Reports a snapshot whose files are not needed. If it was given up, shards may have no file.
  virtual void OnSnapshotDropped(Micros now, const SnapshotManifest& manifest) = 0;
  // Reports a snapshot that cannot be read and will not be used again. Its files stay as they are.
  virtual void OnSnapshotForgotten(Micros now, const SnapshotRef& snapshot) = 0;
  // Writes the flat parameter vector of the run's last version. `stored`: that version's snapshot,
  // null if there is none.  Returns ok once it is written, kCorrupt if the snapshot has other
  // parameters. The call is repeated until ok, and after a restart if the run's end is not in the
  // journal.
  virtual Status OnFinalWeights(Micros now, Version version, const SnapshotManifest* stored,
                                const FloatBuffer& flat) = 0;
};

// JournaledState gathers the journal's state from the parts. The Scheduler implements it.
class JournaledState {
 public:
  virtual ~JournaledState() = default;
  virtual SchedulerState State() const = 0;
  // Is called when the journal has the state that State() returned last.
  virtual void OnJournaled() = 0;
};

class JournaledOutbox {
 public:
  struct Identity {
    PeerId self;
    JobId job;
  };
  // Messages are sent in the newest view of `views`.
  JournaledOutbox(const Identity& identity, Journal& journal, JournaledState& state,
                  RunObserver& observer, Outbox& outbox, const ViewLedger& views)
      : identity_(identity),
        journal_(journal),
        state_(state),
        observer_(observer),
        outbox_(outbox),
        views_(views) {}

  const PeerId& self() const { return identity_.self; }
  JobId job() const { return identity_.job; }

  // Queues the message for the next Flush.
  void Send(const PeerId& to, Message message);
  // Reports an event to the observer at once. `text` and `args` are those of fmt::format.
  template <class... Args>
  void Tell(Micros now, const char* name, const std::string& node, fmt::format_string<Args...> text,
            Args&&... args) {
    observer_.OnEvent(now, {name, node, fmt::format(text, std::forward<Args>(args)...)});
  }
  // Reports an event that is worth a line on the terminal.
  template <class... Args>
  void TellNotable(Micros now, const char* name, const std::string& node,
                   fmt::format_string<Args...> text, Args&&... args) {
    observer_.OnEvent(now, {name, node, fmt::format(text, std::forward<Args>(args)...), true});
  }

  // Makes the next Flush write the journal: the state has changed.
  void MarkChanged() { has_changed_ = true; }
  // Writes the journal at once.  Returns false if the journal refuses: the scheduler is then fenced
  // (P26) and sends no more messages.
  bool Commit();
  // Writes the journal if the state has changed, then sends the queued messages.
  void Flush();
  bool is_fenced() const { return !status_.ok(); }
  const Status& status() const { return status_; }

  // Unanswered messages are repeated every kRepeatInterval, and at once after RepeatAt(now).
  void RepeatAt(Micros now) { repeat_at_ = now; }
  Micros repeat_at() const { return repeat_at_; }
  // Returns whether it is time to repeat them. If so, sets the next time.
  bool TakeRepeat(Micros now);

 private:
  static constexpr Micros kRepeatInterval = std::chrono::milliseconds(200);

  const Identity identity_;
  Journal& journal_;
  JournaledState& state_;
  RunObserver& observer_;
  Outbox& outbox_;
  const ViewLedger& views_;
  Status status_;
  bool has_changed_ = true;  // true at first, because the term has changed (P26)
  std::vector<Envelope> outgoing_;
  Micros repeat_at_{0};
};

}  // namespace pando
