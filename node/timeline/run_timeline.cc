#include "node/timeline/run_timeline.h"

#include <fmt/core.h>

namespace pando {
namespace {

int64_t Nanoseconds(Micros time) { return std::chrono::nanoseconds(time).count(); }

}  // namespace

RunTimeline::RunTimeline(Timeline* timeline, Micros start) : timeline_(timeline), start_(start) {
  if (timeline == nullptr) return;
  track_ = &timeline->OpenTrack("run");
  step_ = timeline->Name({"step", "step", ""});
}

void RunTimeline::Mark(int64_t at_ns, const std::string& name, const std::string& text) {
  track_->Add({.begin_ns = at_ns,
               .step = next_.value(),
               .name = timeline_->Name({name, "run", ""}).value(),
               .number = timeline_->Name({text, "text", ""}).value(),
               .kind = TimelineKind::kMark});
}

void RunTimeline::OnEvent(Micros now, const RunEvent& event) {
  if (track_ == nullptr) return;
  Mark(Nanoseconds(now), event.name, event.text);
  if (event.name != "training" && event.name != "resumed" && event.name != "rollback") return;
  AddSteps();
  step_began_ = now;
}

void RunTimeline::OnStep(Micros now, Step step) {
  if (track_ == nullptr) return;
  if (now != reported_at_) AddSteps();
  reported_at_ = now;
  reported_.push_back(step);
  next_ = NextStep(step);
}

// Servers report their progress now and then. Steps that arrive together share equally the time
// since the last report.
void RunTimeline::AddSteps() {
  if (reported_.empty()) return;
  const int64_t began = Nanoseconds(step_began_.value_or(reported_at_));
  const int64_t span = Nanoseconds(reported_at_) - began;
  const auto count = static_cast<int64_t>(reported_.size());
  for (int64_t i = 0; i < count; ++i) {
    const Step step = reported_[static_cast<size_t>(i)];
    if (timeline_->Wants(step))
      track_->AddSpan(step_, began + i * span / count, began + (i + 1) * span / count, step, 0);
  }
  step_began_ = reported_at_;
  reported_.clear();
}

void RunTimeline::OnEvaluation(Micros now, Version version, const std::string& text) {
  if (track_ == nullptr) return;
  Mark(Nanoseconds(now), "evaluation", fmt::format("version {}: {}", version.value(), text));
}

// Called each time that more is known about the fault.
void RunTimeline::OnFault(const FaultRecord& fault) {
  if (track_ == nullptr) return;
  FaultRecord& known = faults_[fault.id];
  const auto mark = [&](double was_ms, double ms, const char* what, const std::string& text) {
    if (was_ms >= 0 || ms < 0) return;
    Mark(Nanoseconds(start_) + static_cast<int64_t>(ms * 1e6), what,
         fmt::format("{} {}{}", fault.action, fault.target, text));
  };
  mark(known.injected_ms, fault.injected_ms, "fault injected", "");
  mark(known.detected_ms, fault.detected_ms, "fault noticed", " by " + fault.detected_by);
  mark(known.recovered_ms, fault.recovered_ms, "fault recovered", "");
  known = fault;
}

}  // namespace pando
