// GaplessTrack is the track of a thread that reports what it has done since its last report, so its
// spans leave no gap. Threads: one at a time. Without a timeline each call costs one branch.
#pragma once

#include <string>

#include "common/ids.h"
#include "common/timeline/timeline.h"

namespace pando {

class GaplessTrack {
 public:
  // `timeline` may be null; otherwise it must outlive this object.
  GaplessTrack(Timeline* timeline, const std::string& track)
      : timeline_(timeline), track_(timeline == nullptr ? nullptr : &timeline->OpenTrack(track)) {}

  // The following spans belong to this step. The first one starts where the last step's work ended,
  // if that step was recorded.
  void Begin(Step step) {
    if (track_ != nullptr) BeginNow(step);
  }
  bool is_wanted() const { return is_wanted_; }  // whether the spans that follow are recorded
  void Did(TimelineNameId name, uint32_t number) {
    if (is_wanted_) End(name, number);
  }

 private:
  // A shorter span, such as a wait that ended at once, is added to the next one.
  static constexpr int64_t kSpanMinNs = 1000;
  void BeginNow(Step step) {
    const bool was_wanted = is_wanted_;
    is_wanted_ = timeline_->Wants(step);
    step_ = step;
    if (is_wanted_ && !was_wanted) since_ns_ = TimelineNow();
  }
  void End(TimelineNameId name, uint32_t number) {
    const int64_t now = TimelineNow();
    if (now - since_ns_ < kSpanMinNs) return;
    track_->AddSpan(name, since_ns_, now, step_, number);
    since_ns_ = now;
  }

  Timeline* const timeline_;
  TimelineTrack* const track_;
  bool is_wanted_ = false;
  Step step_;
  int64_t since_ns_ = 0;
};

}  // namespace pando
