// FaultLedger keeps the faults of the run's processes and notes when the run has recovered from
// each: every primary's lane has entered the view that answers the fault, and the lowest incomplete
// step has advanced by two.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/outbox.h"
#include "scheduler/journal.h"
#include "scheduler/members/member.h"

namespace pando {

class FaultLedger {
 public:
  static constexpr size_t kRecordsMax = kFaultRecordsMax;  // the oldest go first
  static constexpr size_t kTextBytesMax = 64;              // bounds a target and an action
  // `started_at`: when the job began, on the machine's steady clock. `records`: the faults of
  // earlier lives of the scheduler.
  FaultLedger(Micros started_at, std::vector<FaultRecord> records);

  struct Subject {
    std::string target;   // "worker 1"
    ProcessName process;  // if it is unknown, only the target's name counts
  };
  // Adds a supervisor's report of a fault, which may come before or after the fault is detected.
  void OnNote(Micros now, Subject subject, const FaultNote& note, Step step);
  // Adds a fault that the scheduler noticed. `action` counts if no supervisor reports one.
  void OnDetected(Micros now, const Subject& subject, const std::string& action,
                  const std::string& detected_by, Step step);
  // Notes that this view answers the faults detected so far.
  void OnView(ViewId view);
  // Is called when every primary's lane has reported under this view. All have `committed`;
  // `is_last` says that there is no later version.
  void OnProgress(Micros now, ViewId view, Version committed, bool is_last);
  void OnRollback();  // committed starts again from an earlier version
  // Returns whether a detected fault of this target has not recovered.
  bool IsOpen(const std::string& target) const;
  // Marks the detected faults of this target as recovered; all faults if it is empty.
  void Recover(Micros now, const std::string& target = "");

  // Returns the records that have changed since the last call, in order of their ids.
  std::vector<FaultRecord> TakeChanged();
  std::vector<FaultRecord> records() const;
  // The count of the run's faults, in all lives of the scheduler.
  uint64_t count() const { return next_id_ - 1; }

 private:
  struct Entry {
    FaultRecord record;
    uint64_t process_key = 0;  // 0 for an earlier life's record: the journal has no key
    std::optional<ViewId> answered_by;
    std::optional<Version> base;  // committed when all lanes had the answering view
    bool has_changed = false;
    bool IsAbout(const ProcessName& process) const;
    bool is_detected() const { return record.detected_ms >= 0; }
    bool is_recovered() const { return record.recovered_ms >= 0; }
    bool is_open() const { return is_detected() && !is_recovered(); }
  };
  // Returns the newest entry of the same process, or of the same name if no process is known.
  Entry* Find(const Subject& subject);
  // Returns the entry that the note is about; null if it is a new fault.
  Entry* FindNoted(const Subject& subject, const FaultNote& note);
  Entry& Open(const Subject& subject, Step step);
  double Ms(Micros time) const;
  void SetRecovered(Micros now, Entry& entry);

  Micros started_at_;
  uint64_t next_id_ = 1;
  std::vector<Entry> entries_;
};

}  // namespace pando
