// Reports sends the reports of a lane's parts to the scheduler and repeats them until they are
// answered. Each part is a Source and keeps its own reports. Owns: whether the process was asked to
// leave. Threads: none.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/view_member.h"
#include "server/lane_limits.h"

namespace pando {

class Reports {
 public:
  // Clock keeps when the next reports are due. The sources share it.
  class Clock {
   public:
    // Makes reports due once the last ones are kProgressInterval old: there is news.
    void SpeakSoon(Micros now) { speak_at_ = std::min(speak_at_, std::max(now, silent_until_)); }
    // Makes unanswered reports due soon: one of them may have waited for this event.
    void Hasten(Micros now) {
      if (speak_at_ != kNever) SpeakSoon(now);
    }
    bool IsDue(Micros now) const { return now >= speak_at_; }
    void OnSpoken(Micros now, bool has_more) {
      silent_until_ = now + kProgressInterval;
      speak_at_ = has_more ? now + kRetryInterval : kNever;
    }
    Micros NextDeadline() const { return speak_at_; }

   private:
    Micros speak_at_ = kNever;
    Micros silent_until_{0};  // reports are gathered until then
  };
  class Source {
   public:
    virtual ~Source() = default;
    // Appends the reports that the scheduler has not answered. Returns whether any are unanswered,
    // even if they wait for a later report.
    virtual bool AddReports(std::vector<Message>* reports) const = 0;
  };

  // All arguments outlive the part. Reports are sent in the sources' order.
  Reports(ViewMember& member, Clock& clock, std::vector<const Source*> sources)
      : member_(member), clock_(clock), sources_(std::move(sources)) {}

  // Sends Leave until Stop arrives: the process was asked to leave.
  void StartLeaving(Micros now) {
    is_leaving_ = true;
    clock_.SpeakSoon(now);
  }
  void Tick(Micros now) {
    if (!clock_.IsDue(now)) return;
    std::vector<Message> reports;
    bool has_more = is_leaving_;
    for (const Source* source : sources_) has_more |= source->AddReports(&reports);
    if (is_leaving_) reports.push_back(Leave{});
    for (Message& report : reports) member_.SendToScheduler(std::move(report));
    clock_.OnSpoken(now, has_more);
  }
  Micros NextDeadline() const { return clock_.NextDeadline(); }

 private:
  ViewMember& member_;
  Clock& clock_;
  const std::vector<const Source*> sources_;
  bool is_leaving_ = false;
};

}  // namespace pando
