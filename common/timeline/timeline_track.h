// TimelineTrack takes the spans of one thread into a Timeline. Threads: one at a time. It takes a
// lock once per kRecordsPerChunk spans.
#pragma once

#include "common/ids.h"
#include "common/timeline/timeline_file.h"

namespace pando {

class Timeline;

class TimelineTrack {
 public:
  // If the timeline is full, drops the record and counts it.
  void Add(const TimelineRecord& record);
  void AddSpan(TimelineNameId name, int64_t begin_ns, int64_t end_ns, Step step, uint32_t number) {
    Add({begin_ns, end_ns - begin_ns, step.value(), name.value(), number});
  }

  // Span records a span from its creation to the end of the block. `track` may be null.
  class Span {
   public:
    Span(TimelineTrack* track, TimelineNameId name, Step step, uint32_t number)
        : track_(track), name_(name), step_(step), number_(number) {
      if (track_ != nullptr) begin_ns_ = TimelineNow();
    }
    ~Span() {
      if (track_ != nullptr) track_->AddSpan(name_, begin_ns_, TimelineNow(), step_, number_);
    }
    Span(const Span&) = delete;

   private:
    TimelineTrack* const track_;
    const TimelineNameId name_;
    const Step step_;
    const uint32_t number_;
    int64_t begin_ns_ = 0;
  };

 private:
  friend class Timeline;
  TimelineTrack(Timeline& timeline, uint32_t name) : timeline_(timeline), name_(name) {}

  Timeline& timeline_;
  const uint32_t name_;
  TimelineChunkHead* chunk_ = nullptr;
  size_t count_ = 0;  // records in the chunk
};

}  // namespace pando
