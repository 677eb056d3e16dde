#include "server/reports.h"

namespace pando {

void Reports::Tick(Micros now) {
  if (!clock_.IsDue(now)) return;
  std::vector<Message> reports;
  bool has_more = is_leaving_;
  for (const Reports::Source* source : sources_) has_more |= source->AddReports(&reports);
  if (is_leaving_) reports.push_back(Leave{});
  for (Message& report : reports) member_.SendToScheduler(std::move(report));
  clock_.OnSpoken(now, has_more);
}

}  // namespace pando
