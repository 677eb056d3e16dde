#include "node/standby/mirror_scan.h"

#include <cerrno>
#include <filesystem>
#include <set>

#include "common/atomic_file.h"
#include "node/standby/mirror_names.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

// A file system's clock may tick this slowly: a folder that changes twice within a tick shows it
// once. So a folder is listed again until this time after a change was noticed.
constexpr Micros kTick = std::chrono::milliseconds(100);

int64_t ChangeTime(const struct stat& info) {
  return info.st_mtim.tv_sec * int64_t{1'000'000'000} + info.st_mtim.tv_nsec;
}

MirrorKind KindFor(const std::string& name) {
  return IsGrowing(name) ? MirrorKind::kGrowing : MirrorKind::kWhole;
}

Status ReadError(const std::string& path, int error) {
  return error == ENOENT ? NotFound(path) : FileError("read", path, error);
}

}  // namespace

Status MirrorScan::Look(Micros now, std::vector<MirrorChange>* changes) {
  const bool lists = now >= list_at_;
  if (lists) list_at_ = now + kListInterval;
  Status status;
  // New folders come after the folder that they are in, so this loop also looks into them.
  for (auto at = folders_.begin(); at != folders_.end();) {
    const Status looked = LookInto(now, at->first, lists, changes);
    const bool is_gone = looked.code() == StatusCode::kNotFound && !at->first.empty();
    if (!looked.ok() && !is_gone) status = looked;
    if (is_gone)
      for (const auto& [name, file] : at->second.files) changes->push_back({.name = name});
    at = is_gone ? folders_.erase(at) : std::next(at);
  }
  return status;
}

Status MirrorScan::LookInto(Micros now, const std::string& name, bool lists,
                            std::vector<MirrorChange>* changes) {
  Folder& folder = folders_[name];
  struct stat info {};
  const bool is_known =
      name.empty() ? stat(run_dir_.c_str(), &info) == 0 : lstat(PathTo(name).c_str(), &info) == 0;
  if (!is_known) return ReadError(PathTo(name), errno);
  if (!S_ISDIR(info.st_mode)) return NotFound(PathTo(name));
  if (ChangeTime(info) != folder.changed_ns) folder.noticed_at = now;
  folder.changed_ns = ChangeTime(info);
  if (lists || folder.listed_at < folder.noticed_at + kTick) return List(now, name, changes);
  if (!MayHaveGrowing(name)) return Status();
  for (auto& [file_name, file] : folder.files) {
    if (!IsGrowing(file_name)) continue;
    const bool is_there = lstat(PathTo(file_name).c_str(), &info) == 0 && S_ISREG(info.st_mode);
    if (!is_there) return List(now, name, changes);
    Note(now, file_name, info, &file, changes);
  }
  return Status();
}

Status MirrorScan::List(Micros now, const std::string& name, std::vector<MirrorChange>* changes) {
  Folder& folder = folders_[name];
  std::set<std::string> found;
  std::error_code error;
  for (fs::directory_iterator at(PathTo(name), error), end; !error && at != end;
       at.increment(error)) {
    const std::string entry = (name.empty() ? "" : name + "/") + at->path().filename().string();
    struct stat info {};
    if (!IsMirrored(entry)) continue;
    if (lstat(PathTo(entry).c_str(), &info) != 0) {
      if (errno != ENOENT) return ReadError(PathTo(entry), errno);
    } else if (S_ISDIR(info.st_mode)) {
      folders_.try_emplace(entry);
    } else if (S_ISREG(info.st_mode)) {
      found.insert(entry);
      Note(now, entry, info, &folder.files[entry], changes);
    }
  }
  if (error) return ReadError(PathTo(name), error.value());
  std::erase_if(folder.files, [&](const auto& known) {
    if (found.contains(known.first)) return false;
    changes->push_back({.name = known.first});
    return true;
  });
  folder.listed_at = now;
  return Status();
}

void MirrorScan::Note(Micros now, const std::string& name, const struct stat& info, File* file,
                      std::vector<MirrorChange>* changes) const {
  const File seen{info.st_ino, static_cast<uint64_t>(info.st_size), ChangeTime(info), now, true};
  const bool is_same = file->inode == seen.inode && file->size == seen.size;
  const bool is_unchanged = is_same && (IsGrowing(name) || file->changed_ns == seen.changed_ns);
  const bool grows = IsGrowing(name) && file->inode == seen.inode && file->size < seen.size;
  const uint64_t from = grows ? file->size : 0;
  if (is_unchanged && (file->is_told || now - file->noticed_at < kRest)) return;
  *file = seen;
  file->is_told = is_unchanged || !IsRecording(name);
  if (file->is_told) changes->push_back({name, KindFor(name), seen.inode, from, seen.size});
}

std::vector<MirrorChange> MirrorScan::All() const {
  std::vector<MirrorChange> files;
  for (const auto& [folder_name, folder] : folders_)
    for (const auto& [name, file] : folder.files)
      if (file.is_told) files.push_back({name, KindFor(name), file.inode, 0, file.size});
  return files;
}

}  // namespace pando
