// Timeline: records what the threads of one process do, and when, in a file that survives any end
// of the process (timeline_file.h). `pando timeline` makes a Chrome trace from such files. Callers
// have a pointer to a Timeline or a track. A null pointer records nothing, for one branch.
//
//   Timeline::Create once per process -> OpenTrack once per thread -> Add for each span
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/result.h"
#include "common/timeline/timeline_file.h"
#include "common/timeline/timeline_track.h"
#include "common/unique_fd.h"

namespace pando {

// The steps [first, last).
struct StepRange {
  uint64_t first = 0;
  uint64_t last = UINT64_MAX;
  bool Has(Step step) const { return first <= step.value() && step.value() < last; }
};
// Reads "100:110", "100:", ":10" or "" (all). Returns none for other texts and for an empty range.
std::optional<StepRange> ParseStepRange(std::string_view text);

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

}  // namespace pando
