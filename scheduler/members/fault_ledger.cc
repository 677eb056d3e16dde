#include "scheduler/members/fault_ledger.h"

#include <algorithm>
#include <utility>

namespace pando {

namespace {

// The steps that the run must make after all lanes have the answering view: the first may have been
// almost complete when the fault came.
constexpr uint64_t kStepsToRecover = 2;

// Returns whether the fault, a stop or partition not noticed, cannot have ended the process.
bool IsEndUnexplainedBy(const FaultRecord& newest) {
  return newest.detected_ms < 0 && (newest.action == "stop" || newest.action == "partition");
}

}  // namespace

FaultLedger::FaultLedger(Micros started_at, std::vector<FaultRecord> records)
    : started_at_(started_at) {
  for (FaultRecord& record : records) {
    next_id_ = std::max(next_id_, record.id + 1);
    entries_.push_back({.record = std::move(record)});
  }
}

bool FaultLedger::Entry::IsAbout(const ProcessName& process) const {
  return process.process_id != 0 && record.host == process.host &&
         record.process_id == process.process_id &&
         (process_key == 0 || process_key == process.key);
}

double FaultLedger::Ms(Micros time) const {
  return std::max(0.0, static_cast<double>((time - started_at_).count()) / 1000.0);
}

FaultLedger::Entry* FaultLedger::Find(const Subject& subject) {
  for (auto it = entries_.rbegin(); it != entries_.rend(); ++it) {
    const FaultRecord& record = it->record;
    const bool is_same_name =
        record.target == subject.target &&
        (subject.process.process_id == 0 ? !it->is_recovered() : record.process_id == 0);
    if (it->IsAbout(subject.process) || is_same_name) return &*it;
  }
  return nullptr;
}

FaultLedger::Entry& FaultLedger::Open(const Subject& subject, Step step) {
  if (entries_.size() == kRecordsMax) entries_.erase(entries_.begin());
  entries_.push_back({.record = {.id = next_id_++,
                                 .target = subject.target,
                                 .host = subject.process.host,
                                 .process_id = subject.process.process_id,
                                 .step = step},
                      .process_key = subject.process.key});
  return entries_.back();
}

// A process can be stopped several times, or stopped and then killed, noticed or not. But it ends
// once, because of the last fault. Supervisors repeat notes, even after later ones.
FaultLedger::Entry* FaultLedger::FindNoted(const Subject& subject, const FaultNote& note) {
  Entry* newest = Find(subject);
  if (newest != nullptr && note.action == "exit" && IsEndUnexplainedBy(newest->record))
    return nullptr;
  if (newest == nullptr || note.action == "exit" || note.injected_us == 0) return newest;
  const double injected_ms = Ms(Micros(note.injected_us));
  for (Entry& entry : entries_) {
    if (entry.IsAbout(subject.process) && entry.record.injected_ms == injected_ms) return &entry;
  }
  const bool is_another = newest->record.injected_ms >= 0 ||
                          (newest->is_recovered() && injected_ms > newest->record.recovered_ms);
  return is_another ? nullptr : newest;
}

void FaultLedger::OnNote(Micros now, Subject subject, const FaultNote& note, Step step) {
  subject.target.resize(std::min(subject.target.size(), kTextBytesMax));
  subject.process.host.resize(std::min(subject.process.host.size(), kHostBytesMax));
  const bool is_injection = note.action != "exit";
  Entry* entry = FindNoted(subject, note);
  if (entry == nullptr) entry = &Open(subject, step);
  FaultRecord& record = entry->record;
  if (record.action.empty() || is_injection) record.action = note.action.substr(0, kTextBytesMax);
  if (record.process_id == 0) {
    record.host = subject.process.host;
    record.process_id = subject.process.process_id;
    entry->process_key = subject.process.key;
  }
  if (note.injected_us != 0) record.injected_ms = Ms(Micros(note.injected_us));
  if (note.exited_us != 0 && !entry->is_detected()) {
    record.detected_ms = Ms(now);
    record.detected_by = "exit";
  }
  // A scheduler notices the end of its earlier life only when it begins, so the note has the time.
  if (note.exited_us != 0 && note.role == Role::kScheduler)
    record.detected_ms = Ms(Micros(note.exited_us));
  entry->has_changed = true;
}

void FaultLedger::OnDetected(Micros now, const Subject& subject, const std::string& action,
                             const std::string& detected_by, Step step) {
  Entry* entry = Find(subject);
  if (entry == nullptr || entry->is_recovered() ||
      (detected_by == "exit" && IsEndUnexplainedBy(entry->record)))
    entry = &Open(subject, step);
  if (entry->is_detected()) return;
  if (entry->record.action.empty()) entry->record.action = action;
  entry->record.detected_ms = Ms(now);
  entry->record.detected_by = detected_by;
  entry->has_changed = true;
}

void FaultLedger::OnView(ViewId view) {
  for (Entry& entry : entries_) {
    if (entry.is_open() && !entry.answered_by) entry.answered_by = view;
  }
}

void FaultLedger::OnProgress(Micros now, ViewId view, Version committed, bool is_last) {
  for (Entry& entry : entries_) {
    if (entry.is_recovered() || !entry.answered_by || view < *entry.answered_by) continue;
    if (!entry.base) entry.base = committed;
    if (is_last || committed.value() >= entry.base->value() + kStepsToRecover)
      SetRecovered(now, entry);
  }
}

void FaultLedger::OnRollback() {
  for (Entry& entry : entries_) entry.base.reset();
}

void FaultLedger::SetRecovered(Micros now, Entry& entry) {
  entry.record.recovered_ms = Ms(now);
  entry.has_changed = true;
}

bool FaultLedger::IsOpen(const std::string& target) const {
  return std::ranges::any_of(entries_, [&](const Entry& entry) {
    return entry.is_open() && entry.record.target == target;
  });
}

void FaultLedger::Recover(Micros now, const std::string& target) {
  for (Entry& entry : entries_) {
    if (entry.is_open() && (target.empty() || entry.record.target == target))
      SetRecovered(now, entry);
  }
}

std::vector<FaultRecord> FaultLedger::TakeChanged() {
  std::vector<FaultRecord> changed;
  for (Entry& entry : entries_) {
    if (std::exchange(entry.has_changed, false)) changed.push_back(entry.record);
  }
  return changed;
}

std::vector<FaultRecord> FaultLedger::records() const {
  std::vector<FaultRecord> records;
  for (const Entry& entry : entries_) records.push_back(entry.record);
  return records;
}

}  // namespace pando
