// Timeline: records what the threads of one process do, and when, in a file that survives any end
// of the process (timeline_file.h). `pando timeline` makes a Chrome trace from such files. Callers
// have a pointer to a Timeline or a track. A null pointer records nothing, for one branch.
//
//   Timeline::Create once per process -> OpenTrack once per thread -> Add for each span
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/atomic_file.h"
#include "common/ids.h"
#include "common/status.h"
#include "common/timeline/timeline_file.h"

namespace pando {

// The steps [first, last).
struct StepRange {
  uint64_t first = 0;
  uint64_t last = UINT64_MAX;
  bool Has(Step step) const { return first <= step.value() && step.value() < last; }
};
// Reads "100:110", "100:", ":10" or "" (all). Returns none for other texts and for an empty range.
std::optional<StepRange> ParseStepRange(std::string_view text);

using TimelineNameId = StrongId<struct TimelineNameTag, uint32_t>;

inline int64_t TimelineNow() {  // the clock of all records; one per machine
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

class Timeline;

// TimelineTrack takes the spans of one thread. Threads: one at a time. It takes a lock once per
// kRecordsPerChunk spans.
class TimelineTrack {
 public:
  // If the timeline is full, drops the record and counts it.
  void Add(const TimelineRecord& record);
  void AddSpan(TimelineNameId name, int64_t begin_ns, int64_t end_ns, Step step, uint32_t number) {
    Add({begin_ns, end_ns - begin_ns, step.value(), name.value(), number});
  }

 private:
  friend class Timeline;
  TimelineTrack(Timeline& timeline, uint32_t name) : timeline_(timeline), name_(name) {}

  Timeline& timeline_;
  const uint32_t name_;
  TimelineChunkHead* chunk_ = nullptr;
  size_t count_ = 0;  // records in the chunk
};

// Threads: any. Owns: the file's mapping and the tracks.
class Timeline {
 public:
  // Room for 6.6 million spans: ResNet-50 with 4 micro-batches for 4,000 steps.
  static constexpr uint64_t kBytesMax = uint64_t{256} << 20;

  struct Options {
    std::string folder;   // created if it does not exist
    std::string process;  // for example "worker 1"; the file's name begins with it
    uint64_t incarnation = 0;
    std::string host;
    StepRange steps;
    uint64_t bytes_max = kBytesMax;
  };
  // Creates the whole file, or none.
  static Result<std::unique_ptr<Timeline>> Create(const Options& options);
  ~Timeline();
  Timeline(const Timeline&) = delete;

  bool Wants(Step step) const { return steps_.Has(step); }
  // Returns the id of a name; equal names have one id. A full table gives the id of kNoName.
  TimelineNameId Name(const TimelineName& name);
  // Opens a new track in each call, even for the same name. It lives as long as the timeline.
  TimelineTrack& OpenTrack(const std::string& name);
  uint64_t lost_count() const;

 private:
  friend class TimelineTrack;
  Timeline(const Options& options, UniqueFd fd, std::byte* bytes);
  TimelineHead& head() { return *reinterpret_cast<TimelineHead*>(bytes_); }
  uint32_t Insert(const std::string& packed);
  TimelineChunkHead* TakeChunk(uint32_t track);
  void CountLost();

  const StepRange steps_;
  const uint64_t bytes_max_;
  const UniqueFd fd_;
  std::byte* const bytes_;  // bytes_max_ are mapped; the file grows within them
  std::mutex mutex_;        // guards all members below, and the table of names
  std::map<std::string, uint32_t> names_;
  std::vector<std::unique_ptr<TimelineTrack>> tracks_;
  uint64_t chunks_taken_ = 0;
  bool is_full_ = false;
};

// GaplessTrack is the track of a thread that reports what it has done since its last report, so its
// spans leave no gap. Threads: one at a time. Without a timeline each call costs one branch.
class GaplessTrack {
 public:
  // `timeline` may be null; otherwise it must outlive this object.
  GaplessTrack(Timeline* timeline, const std::string& track);

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
  void BeginNow(Step step);
  void End(TimelineNameId name, uint32_t number);

  Timeline* const timeline_;
  TimelineTrack* const track_;
  bool is_wanted_ = false;
  Step step_;
  int64_t since_ns_ = 0;
};

// TimelineSpan records a span from its creation to the end of the block. `track` may be null.
class TimelineSpan {
 public:
  TimelineSpan(TimelineTrack* track, TimelineNameId name, Step step, uint32_t number)
      : track_(track), name_(name), step_(step), number_(number) {
    if (track_ != nullptr) begin_ns_ = TimelineNow();
  }
  ~TimelineSpan() {
    if (track_ != nullptr) track_->AddSpan(name_, begin_ns_, TimelineNow(), step_, number_);
  }
  TimelineSpan(const TimelineSpan&) = delete;

 private:
  TimelineTrack* const track_;
  const TimelineNameId name_;
  const Step step_;
  const uint32_t number_;
  int64_t begin_ns_ = 0;
};

}  // namespace pando
