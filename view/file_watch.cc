#include "view/file_watch.h"

#include <sys/stat.h>

namespace pando {
namespace {

// The age up to which a change is new: file systems' times are coarse, and other clocks differ.
constexpr std::chrono::seconds kNewMax{2};

FileWatch::WallTime ReadTime(const timespec& time) {
  return FileWatch::WallTime(std::chrono::seconds(time.tv_sec) +
                             std::chrono::nanoseconds(time.tv_nsec));
}

}  // namespace

bool FileWatch::HasChanged(WallTime now) {
  struct stat facts {};
  Stamp stamp;
  if (stat(path_.c_str(), &facts) == 0) {
    stamp = {.inode = facts.st_ino,
             .bytes = facts.st_size,
             .modified_at = ReadTime(facts.st_mtim),
             .changed_at = ReadTime(facts.st_ctim)};
  }
  const bool is_same = stamp == stamp_ && is_settled_;
  stamp_ = stamp;
  is_settled_ = now - stamp.changed_at > kNewMax;
  return !is_same;
}

}  // namespace pando
