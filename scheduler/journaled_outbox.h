// JournaledOutbox is how the scheduler's parts send messages and tell events. It gathers messages
// and commits the journal before it sends them (P25): no process hears a decision that a restart of
// the scheduler could lose.
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

// Something that happened to the run, for events.jsonl and the log.
struct RunEvent {
  std::string name;         // "registered", "view", "training", "dead", "failed", ...
  std::string node;         // "worker 1", or empty
  std::string text;         // for people
  bool is_notable = false;  // worth a line on the terminal
};

// The result of reading a snapshot's files.
struct SnapshotCheck {
  Status status;
  ShardId shard = {};  // the first whose file is missing, or holds another record
};

// RunObserver receives from the scheduler core everything that the run folder records, in order.
// Evaluations, faults and snapshots are reported once they are in the journal.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void OnEvent(Micros now, const RunEvent& event) = 0;
  // Every step of the job once, ascending, over all lives of the scheduler (Options::next_row). A
  // step is left out only if its row was lost with a server.
  virtual void OnStepMetrics(Micros now, const StepMetrics& metrics) = 0;
  // Evaluations of earlier lives are in the SchedulerState.
  virtual void OnEvaluation(Micros now, const EvaluationSummary& summary) = 0;
  // The results of all versions above `last_good` are withdrawn: a wrong gradient made them (P41).
  virtual void OnEvaluationsDropped(Micros now, Version last_good) = 0;
  // A new fault, or news of a known one; FaultRecord::id says which.
  virtual void OnFault(Micros now, const FaultRecord& fault) = 0;
  // All shards report that they have stored it. Returns whether the files that the run will read
  // hold these records; none while they are being read. The call is repeated.
  virtual std::optional<SnapshotCheck> OnSnapshotRipe(Micros now,
                                                      const SnapshotManifest& manifest) = 0;
  // A snapshot is complete.
  virtual void OnSnapshot(Micros now, const SnapshotManifest& manifest) = 0;
  // Its files are not needed any more. A snapshot that was given up has shards without a file.
  virtual void OnSnapshotDropped(Micros now, const SnapshotManifest& manifest) = 0;
  // It cannot be read and will not be used again; its files stay as they are.
  virtual void OnSnapshotForgotten(Micros now, const SnapshotRef& snapshot) = 0;
  // The flat parameter vector of the run's last version, and that version's snapshot, null if there
  // is none.  Returns ok once it is kept, kCorrupt if the snapshot has other parameters. The call
  // is repeated until then, and after a restart that came before the end was in the journal.
  virtual Status OnFinalWeights(Micros now, Version version, const SnapshotManifest* stored,
                                const FloatBuffer& flat) = 0;
};

// JournaledState gathers from the parts what the journal keeps. The dispatcher implements it.
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

  // The message leaves with the next Flush.
  void Send(const PeerId& to, Message message);
  // Tells the run's observer of an event, at once. `text` and `args` are those of fmt::format.
  template <class... Args>
  void Tell(Micros now, const char* name, const std::string& node, fmt::format_string<Args...> text,
            Args&&... args) {
    observer_.OnEvent(now, {name, node, fmt::format(text, std::forward<Args>(args)...)});
  }
  // Tells of an event that is worth a line on the terminal.
  template <class... Args>
  void TellNotable(Micros now, const char* name, const std::string& node,
                   fmt::format_string<Args...> text, Args&&... args) {
    observer_.OnEvent(now, {name, node, fmt::format(text, std::forward<Args>(args)...), true});
  }

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
  Journal& journal_;
  JournaledState& state_;
  RunObserver& observer_;
  Outbox& outbox_;
  const ViewLedger& views_;
  Status status_;
  bool has_changed_ = true;           // at first the term has changed (P26)
  std::optional<Micros> journal_at_;  // kAnnounceBeforeJournal: when it is written
  std::vector<Envelope> outgoing_;
  Micros repeat_at_{0};
};

}  // namespace pando
