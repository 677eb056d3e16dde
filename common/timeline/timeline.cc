#include "common/timeline/timeline.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "common/atomic_file.h"
#include "common/check.h"
#include "common/system.h"
#include "common/text.h"

namespace pando {
namespace {

// Writes the count after the entries that it counts, so that a reader finds only complete entries.
void Publish(uint64_t& count, uint64_t value) {
  std::atomic_ref(count).store(value, std::memory_order_release);
}

template <size_t N>
void CopyText(const std::string& text, std::array<char, N>* to) {
  const size_t length = std::min(text.size(), N - 1);
  std::copy_n(text.data(), length, to->data());
}

int64_t UnixNow() {
  return std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

TimelineHead MakeHead(const Timeline::Options& options) {
  TimelineHead head{.magic = kTimelineMagic,
                    .incarnation = options.incarnation,
                    .steady_ns = TimelineNow(),
                    .unix_ns = UnixNow(),
                    .first_step = options.steps.first,
                    .last_step = options.steps.last,
                    .process_id = static_cast<uint32_t>(getpid())};
  CopyText(options.process, &head.process);
  CopyText(BootId(), &head.boot);
  CopyText(options.host, &head.host);
  return head;
}

// Example: "worker-1-4f00c0de00000001.bin".
std::string FilePath(const Timeline::Options& options) {
  std::string name = options.process;
  std::ranges::replace(name, ' ', '-');
  return fmt::format("{}/{}-{:016x}.bin", options.folder, name, options.incarnation);
}

// Allocates blocks of the file, so that a full disk is an error here and not a SIGBUS later.
// Returns 0 or an error number.
int Allocate(int fd, size_t offset, size_t size) {
  if (fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(size)) == 0) return 0;
  if (errno != EOPNOTSUPP) return errno;
  const std::vector<char> zeros(size);
  const ssize_t written = pwrite(fd, zeros.data(), size, static_cast<off_t>(offset));
  if (written == static_cast<ssize_t>(size)) return 0;
  return written < 0 ? errno : ENOSPC;
}

// The name of each record whose own name has no room in the table.
constexpr const char* kNoName = "(the table of names is full)";

}  // namespace

std::optional<StepRange> ParseStepRange(std::string_view text) {
  if (text.empty()) return StepRange{};
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view first = text.substr(0, colon), last = text.substr(colon + 1);
  const auto from = first.empty() ? 0 : ParseNumber<uint64_t>(first);
  const auto to = last.empty() ? UINT64_MAX : ParseNumber<uint64_t>(last);
  if (!from || !to || *from >= *to) return std::nullopt;
  return StepRange{*from, *to};
}

// ---- the timeline -------------------------------------------------------------------------------

Result<std::unique_ptr<Timeline>> Timeline::Create(const Options& options) {
  PANDO_CHECK(options.bytes_max >= kChunksOffset);
  std::error_code error;
  const std::filesystem::path folder(options.folder);
  std::filesystem::create_directory(folder, folder.parent_path(), error);  // with its parent's mode
  if (error) return FileError("make the folder", options.folder, error.value());
  const std::string path = FilePath(options);
  const std::string temp_path = path + ".tmp";
  UniqueFd fd(open(temp_path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC,
                   ModeFor(temp_path, FileAccess::kAsFolder)));
  if (!fd.is_open()) return FileError("create", temp_path, errno);
  if (const int failed = Allocate(fd.get(), 0, kChunksOffset); failed != 0) {
    unlink(temp_path.c_str());
    return FileError("write", temp_path, failed);
  }
  void* bytes = mmap(nullptr, options.bytes_max, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (bytes == MAP_FAILED) {
    const int failed = errno;
    unlink(temp_path.c_str());
    return FileError("map", temp_path, failed);
  }
  *static_cast<TimelineHead*>(bytes) = MakeHead(options);
  std::unique_ptr<Timeline> timeline(
      new Timeline(options, std::move(fd), static_cast<std::byte*>(bytes)));
  if (rename(temp_path.c_str(), path.c_str()) != 0) return FileError("write", path, errno);
  return timeline;
}

Timeline::Timeline(const Options& options, UniqueFd fd, std::byte* bytes)
    : steps_(options.steps), bytes_max_(options.bytes_max), fd_(std::move(fd)), bytes_(bytes) {
  Insert(kNoName);
}

Timeline::~Timeline() { munmap(bytes_, bytes_max_); }

uint64_t Timeline::lost_count() const {
  auto* head = reinterpret_cast<TimelineHead*>(bytes_);
  return std::atomic_ref(head->lost_count).load();
}

TimelineNameId Timeline::Name(const TimelineName& name) {
  std::lock_guard lock(mutex_);
  return TimelineNameId(Insert(PackName(name)));
}

// REQUIRES: mutex_ held.
uint32_t Timeline::Insert(const std::string& packed) {
  if (const auto known = names_.find(packed); known != names_.end()) return known->second;
  const uint64_t used = head().names_bytes;
  const auto length = static_cast<uint32_t>(packed.size());
  if (used + sizeof(length) + length > kNamesBytesMax) return 0;
  std::byte* at = bytes_ + kNamesOffset + used;
  std::memcpy(at, &length, sizeof(length));
  std::memcpy(at + sizeof(length), packed.data(), length);
  Publish(head().names_bytes, used + sizeof(length) + length);
  return names_[packed] = static_cast<uint32_t>(names_.size());
}

TimelineTrack& Timeline::OpenTrack(const std::string& name) {
  std::lock_guard lock(mutex_);
  const uint32_t id = Insert(PackName({name, "track", fmt::format("{}", tracks_.size())}));
  tracks_.emplace_back(new TimelineTrack(*this, id));
  return *tracks_.back();
}

// Returns null if the timeline has reached its bound, or the disk is full.
TimelineChunkHead* Timeline::TakeChunk(uint32_t track) {
  std::lock_guard lock(mutex_);
  const size_t offset = kChunksOffset + chunks_taken_ * kChunkBytes;
  is_full_ = is_full_ || offset + kChunkBytes > bytes_max_ ||
             Allocate(fd_.get(), offset, kChunkBytes) != 0;
  if (is_full_) return nullptr;
  auto* chunk = reinterpret_cast<TimelineChunkHead*>(bytes_ + offset);
  *chunk = {.track = track};
  Publish(head().chunk_count, ++chunks_taken_);
  return chunk;
}

void Timeline::CountLost() {
  std::atomic_ref(head().lost_count).fetch_add(1, std::memory_order_relaxed);
}

void TimelineTrack::Add(const TimelineRecord& record) {
  if (chunk_ == nullptr || count_ == kRecordsPerChunk) {
    chunk_ = timeline_.TakeChunk(name_);
    count_ = 0;
  }
  if (chunk_ == nullptr) return timeline_.CountLost();
  reinterpret_cast<TimelineRecord*>(chunk_ + 1)[count_++] = record;
  Publish(chunk_->record_count, count_);
}

}  // namespace pando
