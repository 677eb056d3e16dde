// The file in which one process keeps its timeline (timeline.h), byte by byte, and the reader with
// which `pando timeline` merges such files.
//
//   0               TimelineHead
//   kNamesOffset    names, one after another: u32 length, then the text. A name's id is its index.
//   kChunksOffset   chunks of kChunkBytes, each of one track: TimelineChunkHead, then its records
//
// Numbers are in the machine's byte order. The process writes through a shared mapping, so the file
// has everything that a killed process had written. The count excludes an unfinished record.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/strong_id.h"

namespace pando {

inline constexpr std::array<char, 8> kTimelineMagic{'P', 'A', 'N', 'D', 'O', 'T', 'L', '1'};
inline constexpr size_t kNamesOffset = 4096;
inline constexpr size_t kNamesBytesMax = (1 << 20) - kNamesOffset;
inline constexpr size_t kChunksOffset = kNamesOffset + kNamesBytesMax;
inline constexpr size_t kChunkBytes = 1 << 16;

struct TimelineHead {
  std::array<char, 8> magic{};
  uint64_t incarnation = 0;
  int64_t steady_ns = 0;  // both clocks at the file's creation
  int64_t unix_ns = 0;
  uint64_t first_step = 0;  // steps recorded: [first, last)
  uint64_t last_step = 0;
  uint32_t process_id = 0;
  uint32_t reserved = 0;
  std::array<char, 64> process{};  // "worker 1"; each text ends with a zero
  std::array<char, 64> boot{};     // identifies a machine's boot; each has one steady clock
  std::array<char, 256> host{};
  // These grow while the process lives.
  uint64_t names_bytes = 0;
  uint64_t chunk_count = 0;
  uint64_t lost_count = 0;  // records that had no room
};
static_assert(sizeof(TimelineHead) <= kNamesOffset);

enum class TimelineKind : uint32_t {
  kSpan,   // what a thread does; spans do not overlap
  kFlow,   // an activity beside a thread; spans may overlap
  kMark,   // an instant of the whole run
  kClock,  // duration_ns: the scheduler's clock minus ours; number: the round trip in us
};

inline int64_t TimelineNow() {  // the clock of all records; one per machine
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

struct TimelineRecord {
  int64_t begin_ns = 0;  // on the steady clock
  int64_t duration_ns = 0;
  uint64_t step = 0;
  uint32_t name = 0;    // the name's id
  uint32_t number = 0;  // micro-batch, shard, ...: the name says which; a mark has its text's id
  TimelineKind kind = TimelineKind::kSpan;
  uint32_t reserved = 0;
};
static_assert(sizeof(TimelineRecord) == 40);

struct TimelineChunkHead {
  uint64_t record_count = 0;
  uint32_t track = 0;  // the id of the track's name
  uint32_t reserved = 0;
};
inline constexpr size_t kRecordsPerChunk =
    (kChunkBytes - sizeof(TimelineChunkHead)) / sizeof(TimelineRecord);

// An entry of the table of names.
struct TimelineName {
  std::string text;      // "conv1 forward"
  std::string category;  // "compute"
  std::string number;    // the meaning of TimelineRecord::number: "micro_batch"
};
using TimelineNameId = StrongId<struct TimelineNameTag, uint32_t>;  // its place in the table
std::string PackName(const TimelineName& name);
TimelineName UnpackName(const std::string& packed);

struct TimelineTrackRecords {
  std::string name;
  std::vector<TimelineRecord> records;  // in the order of Add
};
struct TimelineFile {
  std::string path;
  TimelineHead head;
  std::string process, boot, host;  // copied from the head
  std::vector<TimelineName> names;
  std::vector<TimelineTrackRecords> tracks;  // in the order of their first chunks
};

// Reads a timeline. kCorrupt: the file is not a whole one; the error names the file and the place.
Result<TimelineFile> ReadTimelineFile(const std::string& path);

}  // namespace pando
