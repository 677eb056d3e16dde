#include "node/standby/mirror_receiver.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <ranges>
#include <tuple>
#include <utility>

#include "common/atomic_file.h"
#include "node/standby/mirror_names.h"
#include "proto/dispatch.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

std::string DraftFor(const std::string& path) { return path + std::string(kDraftEnding); }
std::string ParentPath(const std::string& path) { return path.substr(0, path.rfind('/')); }

// Returns whether an earlier session may have left a file, draft or folder of this name.
bool MayBeMirrored(std::string name) {
  if (name.ends_with(kDraftEnding)) name.resize(name.size() - kDraftEnding.size());
  return IsMirrored(name);
}

}  // namespace

void MirrorReceiver::OnMessage(Micros, const Envelope& envelope) {
  Dispatch<Core::kStandby>(
      envelope.message, [&](const MirrorStart& start) { OnStart(envelope, start); },
      [&](const MirrorPart& part) { OnPart(envelope, part); });
}

void MirrorReceiver::Answer(const Envelope& question, Message message) {
  outbox_.Send({.job = question.job,
                .sender = question.receiver,
                .receiver = question.sender,
                .message = std::move(message)});
}

// ---- sessions ----------------------------------------------------------------------------------

void MirrorReceiver::OnStart(const Envelope& envelope, const MirrorStart& start) {
  if (start.session != session_) {
    if (!may_begin_(start.term)) return;
    std::ignore = Commit();
    draft_.reset();
    unanswered_.reset();
    failure_.clear();
    session_ = taken_ = 0;
    if (const Status removed = RemoveAll(); !removed.ok())
      return Answer(envelope, MirrorAck{.failure = removed.message()});
    session_ = start.session;
  }
  Answer(envelope, MirrorStarted{session_});
}

// Removes regular files, and folders that are then empty.
Status MirrorReceiver::RemoveAll() const {
  std::vector<fs::path> files, folders;
  std::error_code error;
  const fs::recursive_directory_iterator end;
  for (fs::recursive_directory_iterator at(run_dir_, error); !error && at != end;
       at.increment(error)) {
    const fs::file_type type = at->symlink_status(error).type();
    const bool may_go = MayBeMirrored(at->path().lexically_relative(run_dir_));
    if (type == fs::file_type::directory && !may_go) at.disable_recursion_pending();
    if (type == fs::file_type::directory && may_go) folders.push_back(at->path());
    if (type == fs::file_type::regular && may_go) files.push_back(at->path());
  }
  if (error) return FileError("empty", run_dir_, error.value());
  for (const fs::path& file : files)
    if (unlink(file.c_str()) != 0 && errno != ENOENT) return FileError("remove", file, errno);
  for (const fs::path& folder : folders | std::views::reverse) rmdir(folder.c_str());
  return Status();
}

void MirrorReceiver::OnPart(const Envelope& envelope, const MirrorPart& part) {
  if (session_ == 0 || part.session != session_) return Answer(envelope, MirrorAck{});
  unanswered_ =
      Envelope{.job = envelope.job, .sender = envelope.sender, .receiver = envelope.receiver};
  if (part.part != taken_ + 1 || !failure_.empty()) return;
  const Status status = Take(part);
  if (status.ok()) {
    ++taken_;
  } else {
    failure_ = status.message();
    if (status.code() == StatusCode::kCorrupt) session_ = 0;  // another session makes it fit
  }
}

void MirrorReceiver::Tick(Micros) {
  if (!unanswered_) return;
  if (const Status durable = Commit(); !durable.ok()) failure_ = durable.message();
  Answer(*std::exchange(unanswered_, std::nullopt),
         MirrorAck{session_, taken_, std::exchange(failure_, "")});
}

// ---- files -------------------------------------------------------------------------------------

// kCorrupt: the part does not fit the files that are there.
Status MirrorReceiver::Take(const MirrorPart& part) {
  if (!IsMirrored(part.name))
    return InvalidArgument(fmt::format("a standby takes no file '{}'", part.name));
  const uint64_t end = part.offset + part.payload.size_bytes();
  if (end > part.size) return Corrupt(fmt::format("a part of {} is beyond its end", part.name));
  PANDO_RETURN_IF_ERROR(MakeFolders(part.name));
  const std::string path = run_dir_ + "/" + part.name;
  if (part.kind == MirrorKind::kRemoved) return Remove(path);
  if (part.kind == MirrorKind::kWhole) return Fill(part);
  PANDO_ASSIGN_OR_RETURN(UniqueFd fd, Append(path, part));
  if (part.offset == 0) folders_.insert(ParentPath(path));
  written_[path] = std::move(fd);
  return Status();
}

Status MirrorReceiver::Remove(const std::string& path) {
  PANDO_RETURN_IF_ERROR(Commit());
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return Status();
  return unlink(path.c_str()) == 0 ? Status() : FileError("remove", path, errno);
}

Status MirrorReceiver::Fill(const MirrorPart& part) {
  const std::string path = run_dir_ + "/" + part.name;
  if (part.offset == 0) {
    if (std::ranges::count(finished_, path) != 0) PANDO_RETURN_IF_ERROR(Commit());
    draft_.emplace().name = part.name;
  }
  if (!draft_ || draft_->name != part.name)
    return Corrupt(fmt::format("the beginning of {} is missing", part.name));
  PANDO_ASSIGN_OR_RETURN(UniqueFd fd, Append(DraftFor(path), part));
  draft_->hash.Update(part.payload.bytes());
  if (part.offset + part.payload.size_bytes() < part.size) return Status();
  const std::string hash = draft_->hash.Hex();
  draft_.reset();
  if (hash != part.hash)
    return Corrupt(fmt::format("{} has changed on its way: its hash is {}, expected {}", part.name,
                               hash, part.hash));
  written_[DraftFor(path)] = std::move(fd);
  finished_.push_back(path);
  folders_.insert(ParentPath(path));
  return Status();
}

// Makes the folders of the file, each with its parent's mode.
Status MirrorReceiver::MakeFolders(const std::string& name) {
  for (size_t at = name.find('/'); at != std::string::npos; at = name.find('/', at + 1)) {
    const std::string folder = run_dir_ + "/" + name.substr(0, at);
    std::error_code error;
    if (fs::create_directory(folder, ParentPath(folder), error))
      folders_.insert(ParentPath(folder));
    if (error) return FileError("make folder", folder, error.value());
    if (!fs::is_directory(fs::symlink_status(folder, error)))
      return InvalidArgument(fmt::format("{} is a link, and no folder", folder));
  }
  return Status();
}

// Writes the part at the end of the file. If it fails, the file is as before.
Result<UniqueFd> MirrorReceiver::Append(const std::string& path, const MirrorPart& part) {
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  UniqueFd fd(open(path.c_str(), kFlags, ModeFor(path, FileAccess::kAsFolder)));
  struct stat info {};
  if (!fd.is_open() || fstat(fd.get(), &info) != 0) return FileError("open", path, errno);
  if (!S_ISREG(info.st_mode)) return InvalidArgument(path + " is no regular file");
  const auto cut = [&] { return ftruncate(fd.get(), static_cast<off_t>(part.offset)); };
  if (part.offset == 0) {
    if (cut() != 0) return FileError("cut", path, errno);
  } else if (static_cast<uint64_t>(info.st_size) != part.offset) {
    return Corrupt(fmt::format("{} has {} bytes, and the next part begins at byte {}", path,
                               info.st_size, part.offset));
  }
  const int error = WriteAll(fd.get(), part.payload.bytes());
  if (error == 0) return fd;
  (void)!cut();
  return FileError("write", path, error);
}

// Makes all that was written durable, and then gives finished drafts their names. If that fails,
// the session ends: its parts would be acknowledged without being there.
Status MirrorReceiver::Commit() {
  Status status;
  for (const auto& [path, fd] : written_)
    if (fdatasync(fd.get()) != 0) status = FileError("write", path, errno);
  for (const std::string& path : finished_) {
    if (status.ok() && rename(DraftFor(path).c_str(), path.c_str()) != 0)
      status = FileError("write", path, errno);
  }
  for (const std::string& folder : folders_)
    if (status.ok()) status = SyncFolder(folder);
  written_.clear();
  finished_.clear();
  folders_.clear();
  if (!status.ok()) session_ = 0;
  return status;
}

}  // namespace pando
