#include "common/timeline/timeline_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "common/atomic_file.h"

namespace pando {
namespace {

constexpr char kSeparator = '\x1f';  // between a name's three parts

Status Damaged(const std::string& path, const std::string& what) {
  return Corrupt(fmt::format(
      "{}: {}; copy the file again, whole, or take it out of the folder to do without it", path,
      what));
}

template <class T>
T At(const std::string& bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <size_t N>
std::string ToText(const std::array<char, N>& text) {
  return {text.data(), strnlen(text.data(), N)};
}

// Returns none if a length reaches beyond the table.
std::optional<std::vector<TimelineName>> ReadNames(const std::string& bytes, size_t size) {
  std::vector<TimelineName> names;
  size_t at = kNamesOffset;
  const size_t end = kNamesOffset + size;
  while (at < end) {
    if (end - at < sizeof(uint32_t)) return std::nullopt;
    const auto length = At<uint32_t>(bytes, at);
    at += sizeof(uint32_t);
    if (length > end - at) return std::nullopt;
    names.push_back(UnpackName(bytes.substr(at, length)));
    at += length;
  }
  return names;
}

// Reads the names again, after the records. If the process is still running, records may use names
// that are newer than those read first.
void ReadNamesAgain(std::ifstream& stream, std::string* bytes) {
  TimelineHead head;
  stream.seekg(0);
  stream.read(reinterpret_cast<char*>(&head), sizeof(head));
  stream.seekg(kNamesOffset);
  stream.read(bytes->data() + kNamesOffset, kNamesBytesMax);
  if (!stream) return;
  std::memcpy(bytes->data() + offsetof(TimelineHead, names_bytes), &head.names_bytes,
              sizeof(head.names_bytes));
}

class Reader {
 public:
  Reader(std::string path, std::string bytes) : bytes_(std::move(bytes)) {
    file_.path = std::move(path);
  }
  Result<TimelineFile> Read();

 private:
  Status ReadHead();
  Status ReadChunk(size_t chunk);
  Status CheckRecord(const TimelineRecord& record, size_t offset) const;

  const std::string bytes_;
  TimelineFile file_;
  std::map<uint32_t, size_t> tracks_;  // from a name's id to an index in file_.tracks
};

Result<TimelineFile> Reader::Read() {
  PANDO_RETURN_IF_ERROR(ReadHead());
  for (size_t chunk = 0; chunk < file_.head.chunk_count; ++chunk) {
    PANDO_RETURN_IF_ERROR(ReadChunk(chunk));
  }
  return std::move(file_);
}

Status Reader::ReadHead() {
  const std::string& path = file_.path;
  if (bytes_.size() < sizeof(TimelineHead) || At<TimelineHead>(bytes_, 0).magic != kTimelineMagic)
    return Damaged(path, "is not a timeline of a Pando process");
  file_.head = At<TimelineHead>(bytes_, 0);
  const uint64_t chunks_max = bytes_.size() / kChunkBytes;
  const uint64_t chunk_count = file_.head.chunk_count;
  if (bytes_.size() < kChunksOffset || chunk_count > chunks_max ||
      bytes_.size() - kChunksOffset < chunk_count * kChunkBytes) {
    return Damaged(path, fmt::format("is cut short: has {} bytes instead of {}", bytes_.size(),
                                     kChunksOffset + chunk_count * kChunkBytes));
  }
  auto names = file_.head.names_bytes <= kNamesBytesMax ? ReadNames(bytes_, file_.head.names_bytes)
                                                        : std::nullopt;
  if (!names) return Damaged(path, "its table of names is damaged");
  file_.names = *std::move(names);
  file_.process = ToText(file_.head.process);
  file_.boot = ToText(file_.head.boot);
  file_.host = ToText(file_.head.host);
  return Status();
}

// A chunk that was taken but not begun has no records.
Status Reader::ReadChunk(size_t chunk) {
  const size_t offset = kChunksOffset + chunk * kChunkBytes;
  const auto head = At<TimelineChunkHead>(bytes_, offset);
  if (head.record_count == 0) return Status();
  if (head.record_count > kRecordsPerChunk || head.track >= file_.names.size()) {
    return Damaged(file_.path, fmt::format("the chunk at byte {} says {} records of track {}",
                                           offset, head.record_count, head.track));
  }
  const auto [at, is_new] = tracks_.try_emplace(head.track, file_.tracks.size());
  if (is_new) file_.tracks.push_back({file_.names[head.track].text, {}});
  std::vector<TimelineRecord>& records = file_.tracks[at->second].records;
  for (size_t i = 0; i < head.record_count; ++i) {
    const size_t place = offset + sizeof(TimelineChunkHead) + i * sizeof(TimelineRecord);
    records.push_back(At<TimelineRecord>(bytes_, place));
    PANDO_RETURN_IF_ERROR(CheckRecord(records.back(), place));
  }
  return Status();
}

Status Reader::CheckRecord(const TimelineRecord& record, size_t offset) const {
  const bool is_mark = record.kind == TimelineKind::kMark;
  const bool is_sound = record.name < file_.names.size() && record.kind <= TimelineKind::kClock &&
                        (!is_mark || record.number < file_.names.size()) &&
                        (record.kind == TimelineKind::kClock || record.duration_ns >= 0);
  if (is_sound) return Status();
  return Damaged(file_.path, fmt::format("the record at byte {} is damaged", offset));
}

}  // namespace

std::string PackName(const TimelineName& name) {
  return name.text + kSeparator + name.category + kSeparator + name.number;
}

TimelineName UnpackName(const std::string& packed) {
  const size_t first = std::min(packed.find(kSeparator), packed.size());
  const size_t second = std::min(packed.find(kSeparator, first + 1), packed.size());
  TimelineName name{packed.substr(0, first), "", ""};
  if (first < packed.size()) name.category = packed.substr(first + 1, second - first - 1);
  if (second < packed.size()) name.number = packed.substr(second + 1);
  return name;
}

Result<TimelineFile> ReadTimelineFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  if (stream) text << stream.rdbuf();
  if (!stream) return FileError("read", path, errno);
  std::string bytes = std::move(text).str();
  if (bytes.size() >= kChunksOffset) ReadNamesAgain(stream, &bytes);
  return Reader(path, std::move(bytes)).Read();
}

}  // namespace pando
