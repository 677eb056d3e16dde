#include "node/timeline/process_timeline.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "common/system.h"
#include "job/job_file.h"

namespace pando {

std::unique_ptr<Timeline> OpenTimeline(const Job& job, const std::string& folder,
                                       const std::string& process, uint64_t incarnation) {
  if (job.timeline.empty()) return nullptr;
  Result<std::unique_ptr<Timeline>> timeline =
      Timeline::Create({.folder = folder,
                        .process = process,
                        .incarnation = incarnation,
                        .host = HostName(),
                        .steps = ParseStepRange(job.timeline_steps).value_or(StepRange{})});
  if (timeline.ok()) return *std::move(timeline);
  spdlog::warn("no timeline is kept here: {}", timeline.status().message());
  return nullptr;
}

void WarnOfLost(const Timeline* timeline) {
  if (timeline == nullptr || timeline->lost_count() == 0) return;
  spdlog::warn(
      "the timeline lacks the last {} spans of this process: its file is full, or the disk is; "
      "give fewer steps with --timeline-steps A:B",
      timeline->lost_count());
}

}  // namespace pando
