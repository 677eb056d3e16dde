// PatientJournal is the journal of a scheduler process whose disk may be full, or etcd away. Only
// node/scheduler_process uses it.
#pragma once

#include <fmt/core.h>
#include <poll.h>

#include <functional>
#include <string>
#include <utility>

#include "common/clock.h"
#include "node/shutdown_signal.h"
#include "run/run_recorder.h"
#include "run/stored_journal.h"

namespace pando {

inline constexpr std::chrono::milliseconds kJournalRetry(500);

// Waits between tries to write.  Returns false after a signal to stop.
inline bool WaitToRetry(const ShutdownSignal& shutdown) {
  pollfd signalled{shutdown.fd(), POLLIN, 0};
  return poll(&signalled, 1, static_cast<int>(kJournalRetry.count())) == 0;
}

// PatientJournal waits while the journal cannot be written, for example because the disk is full.
// The run goes on without its scheduler (P28). A snapshot enters the journal only after the rows of
// the steps before it are on the disk, as far as the disk takes them.
class PatientJournal : public Journal {
 public:
  PatientJournal(StoredJournal& journal, RunRecorder& recorder, const ShutdownSignal& shutdown)
      : journal_(journal), recorder_(recorder), shutdown_(shutdown) {}

  Status Commit(const SchedulerState& state) override {
    if (!state.snapshots.empty() && state.snapshots.back().snapshot != newest_) {
      newest_ = state.snapshots.back().snapshot;
      recorder_.SyncRows();
    }
    const Micros start = SteadyNow();
    bool has_told = false;
    while (true) {
      Status status = journal_.Commit(state);
      if (status.ok()) TellTime(SteadyNow() - start, has_told);
      if (status.ok() || journal_.is_fenced()) return status;
      if (!std::exchange(has_told, true)) {
        const std::string text = fmt::format(
            "the scheduler waits for its journal: {}; steps go on until they need it, "
            "for an evaluation say",
            status.message());
        recorder_.Note(text);
        recorder_.OnEvent("stalled", "scheduler", text);
      }
      if (!(wait_ ? wait_(status, start) : WaitToRetry(shutdown_)))
        return Interrupted(status.message());
    }
  }

  // Called between tries, for a short while. `since` is the time of the first try. Returns false
  // after a signal to stop.
  using Wait = std::function<bool(const Status& why, Micros since)>;
  void SetWait(Wait wait) { wait_ = std::move(wait); }

 private:
  // A write of the journal that takes longer is an event.
  static constexpr Micros kSlowJournal = std::chrono::seconds(1);

  // Slowness shows only after the write, since this thread writes.
  void TellTime(Micros time, bool has_told) {
    if (time < kSlowJournal && !has_told) return;
    const double seconds = std::chrono::duration<double>(time).count();
    if (has_told) {
      return recorder_.OnEvent("stall-ended", "scheduler",
                               fmt::format("the journal is written, after {:.1f} s", seconds));
    }
    const std::string text = fmt::format(
        "the scheduler's journal took {:.1f} s to write: is {} slow?", seconds, journal_.place());
    recorder_.Note(text);
    recorder_.OnEvent("slow-journal", "scheduler", text);
  }

  StoredJournal& journal_;
  RunRecorder& recorder_;
  const ShutdownSignal& shutdown_;
  Wait wait_;  // null: poll the signals
  SnapshotRef newest_;
};

}  // namespace pando
