#include "server/reports.h"

#include "server/lane_limits.h"

namespace pando {

void ReportClock::OnSpoken(Micros now, bool has_more) {
  silent_until_ = now + kProgressInterval;
  speak_at_ = has_more ? now + kRetryInterval : kNever;
}

void Reports::StartLeaving(Micros now) {
  is_leaving_ = true;
  clock_.SpeakSoon(now);
}

void Reports::Tick(Micros now) {
  if (!clock_.IsDue(now)) return;
  std::vector<Message> reports;
  bool has_more = is_leaving_;
  for (const ReportSource* source : sources_) has_more |= source->AddReports(&reports);
  if (is_leaving_) reports.push_back(Leave{});
  for (Message& report : reports) member_.SendToScheduler(std::move(report));
  clock_.OnSpoken(now, has_more);
}

}  // namespace pando
