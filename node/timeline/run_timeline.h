// RunTimeline records what the scheduler reports to its observer: steps, evaluations, and marks for
// views and faults. The scheduler's process has one. Threads: the scheduler core's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/timeline/timeline.h"
#include "scheduler/journaled_outbox.h"

namespace pando {

class RunTimeline {
 public:
  // `timeline` may be null; otherwise it outlives this. `start` is the origin of a fault's times.
  RunTimeline(Timeline* timeline, Micros start);
  ~RunTimeline() { AddSteps(); }
  RunTimeline(const RunTimeline&) = delete;
  void OnEvent(Micros now, const RunEvent& event);
  void OnStep(Micros now, Step step);
  void OnEvaluation(Micros now, Version version, const std::string& text);
  void OnFault(const FaultRecord& fault);

 private:
  void Mark(int64_t at_ns, const std::string& name, const std::string& text);
  void AddSteps();

  Timeline* const timeline_;
  const Micros start_;
  TimelineTrack* track_ = nullptr;  // null: no timeline
  TimelineNameId step_;
  Step next_;  // the lowest step that is not complete
  std::optional<Micros> step_began_;
  std::vector<Step> reported_;  // at reported_at_, not in the track yet
  Micros reported_at_{0};
  std::map<uint64_t, FaultRecord> faults_;  // as they were marked
};

}  // namespace pando
