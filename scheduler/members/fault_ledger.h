// FaultLedger keeps the faults of the run's processes, and says when the run recovered from each:
// when every primary's lane has entered the view that answers the fault, and the lowest incomplete
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
  // `started_at`: when the job began, on the machine's steady clock. `records`: those of earlier
  // lives.
  FaultLedger(Micros started_at, std::vector<FaultRecord> records);

  struct Subject {
    std::string target;   // "worker 1"
    ProcessName process;  // if it is not known, the target's name counts alone
  };
  // A supervisor's report of a fault. It may come before the fault is detected, or after.
  void OnNote(Micros now, Subject subject, const FaultNote& note, Step step);
  // The scheduler noticed the fault. `action` counts if no supervisor reports one.
  void OnDetected(Micros now, const Subject& subject, const std::string& action,
                  const std::string& detected_by, Step step);
  // The faults detected so far are answered by this view.
  void OnView(ViewId view);
  // Every primary's lane has reported under this view; `committed` is what all have, `is_last` if
  // there is no later version.
  void OnProgress(Micros now, ViewId view, Version committed, bool is_last);
  void OnRollback();  // committed starts again from an earlier version
  // The run has recovered from the detected faults of this target; of all if it is empty.
  void Recover(Micros now, const std::string& target = "");

  // Copies of those that have changed since the last call, in order of their ids.
  std::vector<FaultRecord> TakeChanged();
  std::vector<FaultRecord> records() const;
  // All that the run has had, in all lives of the scheduler.
  uint64_t count() const { return next_id_ - 1; }

 private:
  struct Entry {
    FaultRecord record;
    uint64_t process_key = 0;  // 0: of an earlier life of the scheduler, which wrote no key
    std::optional<ViewId> answered_by;
    std::optional<Version> base;  // committed when the answering view was everywhere
    bool has_changed = false;
    bool IsAbout(const ProcessName& process) const;
    bool is_detected() const { return record.detected_ms >= 0; }
    bool is_recovered() const { return record.recovered_ms >= 0; }
    bool is_open() const { return is_detected() && !is_recovered(); }
  };
  // The newest of the same process, or of the same name where the process is not known.
  Entry* Find(const Subject& subject);
  // The entry that the note is about; null if it is a new fault.
  Entry* FindNoted(const Subject& subject, const FaultNote& note);
  Entry& Open(const Subject& subject, Step step);
  double Ms(Micros time) const;
  void SetRecovered(Micros now, Entry& entry);

  Micros started_at_;
  uint64_t next_id_ = 1;
  std::vector<Entry> entries_;
};

}  // namespace pando
