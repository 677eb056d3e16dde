// Reports repeats to the scheduler what a lane's parts have to say, until it is answered. Each part
// keeps its own facts and offers them as a ReportSource. Part of the lane.
// Threads: none. Owns: whether the process was asked to leave.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/view_member.h"

namespace pando {

// Says when the next reports are due. The sources share it.
class ReportClock {
 public:
  // There is news: as soon as the last reports are kProgressInterval old.
  void SpeakSoon(Micros now) { speak_at_ = std::min(speak_at_, std::max(now, silent_until_)); }
  // A report may have waited for this: if anything is to be repeated, soon.
  void Hasten(Micros now) {
    if (speak_at_ != kNever) SpeakSoon(now);
  }
  bool IsDue(Micros now) const { return now >= speak_at_; }
  void OnSpoken(Micros now, bool has_more);
  Micros NextDeadline() const { return speak_at_; }

 private:
  Micros speak_at_ = kNever;
  Micros silent_until_{0};  // reports are gathered until then
};

class ReportSource {
 public:
  virtual ~ReportSource() = default;
  // Appends what the scheduler has not answered. Returns whether anything is unanswered, even if
  // it is for a later report.
  virtual bool AddReports(std::vector<Message>* reports) const = 0;
};

class Reports {
 public:
  // All outlive the part. Reports are sent in the sources' order.
  Reports(ViewMember& member, ReportClock& clock, std::vector<const ReportSource*> sources)
      : member_(member), clock_(clock), sources_(std::move(sources)) {}

  // The process was asked to leave: sends Leave until Stop.
  void StartLeaving(Micros now);
  void Tick(Micros now);
  Micros NextDeadline() const { return clock_.NextDeadline(); }

 private:
  ViewMember& member_;
  ReportClock& clock_;
  const std::vector<const ReportSource*> sources_;
  bool is_leaving_ = false;
};

}  // namespace pando
