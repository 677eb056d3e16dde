#include "node/standby/mirror_parts.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <span>

#include "common/atomic_file.h"

namespace pando {

void MirrorParts::Add(const std::vector<MirrorChange>& changes) {
  for (const MirrorChange& change : changes) {
    const auto [known, is_new] = waiting_numbers_.try_emplace(change.name, added_count_ + 1);
    if (is_new) {
      ++added_count_;
      waiting_.push_back(change);
      continue;
    }
    MirrorChange& waiting = waiting_[waiting_.size() - 1 - (added_count_ - known->second)];
    const uint64_t from = change.from == 0 ? 0 : waiting.from;
    waiting = change;
    waiting.from = from;
  }
}

Result<std::optional<MirrorPart>> MirrorParts::Next() {
  if (!reading_ && waiting_.empty()) return std::optional<MirrorPart>();
  if (!reading_) PANDO_RETURN_IF_ERROR(Open());
  MirrorPart part{.kind = reading_->change.kind, .name = reading_->change.name};
  if (part.kind != MirrorKind::kRemoved) PANDO_RETURN_IF_ERROR(Read(&part));
  if (IsLast(part)) {
    if (part.kind == MirrorKind::kWhole) part.hash = reading_->hash->Hex();
    reading_.reset();
  }
  return std::optional(std::move(part));
}

// Opens the file of the next change. A file that is not as MirrorScan saw it is sent from its
// beginning, or removed; MirrorScan will also find that change.
Status MirrorParts::Open() {
  MirrorChange& change = waiting_.front();
  UniqueFd fd;
  if (change.kind != MirrorKind::kRemoved) {
    const std::string path = run_dir_ + "/" + change.name;
    fd = UniqueFd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    const bool is_gone = !fd.is_open() && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP);
    if (!fd.is_open() && !is_gone) return FileError("open", path, errno);
    struct stat info {};
    const bool is_file = !is_gone && fstat(fd.get(), &info) == 0 && S_ISREG(info.st_mode);
    const auto size = static_cast<uint64_t>(info.st_size);
    const bool is_as_seen = info.st_ino == change.inode && size >= change.to;
    if (!is_file) change.kind = MirrorKind::kRemoved;
    if (change.kind == MirrorKind::kWhole || !is_as_seen) {
      change.from = 0;
      change.to = size;
    }
  }
  reading_.emplace();
  reading_->at = change.from;
  reading_->fd = std::move(fd);
  waiting_numbers_.erase(change.name);
  reading_->change = std::move(change);
  waiting_.pop_front();
  return Status();
}

// Reads the part's bytes. If the file has become shorter, it begins again.
Status MirrorParts::Read(MirrorPart* part) {
  Reading& file = *reading_;
  auto bytes =
      std::make_shared<std::vector<std::byte>>(std::min(kPartBytesMax, file.change.to - file.at));
  const ssize_t count =
      pread(file.fd.get(), bytes->data(), bytes->size(), static_cast<off_t>(file.at));
  struct stat info {};
  if (count < 0 || fstat(file.fd.get(), &info) != 0)
    return FileError("read", run_dir_ + "/" + part->name, errno);
  if (count == 0 && !bytes->empty()) {
    file.change.to = file.at == 0 ? 0 : static_cast<uint64_t>(info.st_size);
    file.at = 0;
    file.hash.emplace();
    return Read(part);
  }
  bytes->resize(static_cast<size_t>(count));
  part->offset = file.at;
  part->size = file.change.to;
  file.at += bytes->size();
  if (part->kind == MirrorKind::kWhole) file.hash->Update(*bytes);
  const std::span<const std::byte> all = *bytes;
  part->payload = Blob(all, std::move(bytes));
  return Status();
}

}  // namespace pando
