#include "files/file_store.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "common/hash.h"
#include "proto/dispatch.h"

namespace pando {
namespace {

constexpr std::string_view kInitialWeights = "init.safetensors";
constexpr std::string_view kFinalWeights = "final.safetensors";

// Returns NAME of "snapshots/NAME", if the file is in that folder and in none below it.
std::optional<std::string_view> NameIn(std::string_view folder, std::string_view name) {
  if (!name.starts_with(folder) || name.size() <= folder.size() + 1 || name[folder.size()] != '/')
    return std::nullopt;
  const std::string_view rest = name.substr(folder.size() + 1);
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  if (rest.front() == '.' || !std::ranges::all_of(rest, is_plain)) return std::nullopt;
  return rest;
}

// Timelines have at most 256 MiB (common/timeline/timeline); addresses have a few bytes.
uint64_t BytesMax(const std::string& name) {
  if (NameIn("group", name)) return 64 << 10;
  return NameIn("timeline", name) ? uint64_t{512} << 20 : kFileBytesMax;
}

}  // namespace

// The name of a server's file contains the server's incarnation (run/snapshot_file).
bool MayStoreFile(const std::string& name, Incarnation member, Role role) {
  if (NameIn("group", name)) return role == Role::kWorker;
  const std::string life = "-" + HexText(member.value());
  if (const auto file = NameIn("snapshots", name))
    return role == Role::kServer && file->find(life + "-") != file->npos &&
           file->ends_with(".safetensors");
  const auto file = NameIn("timeline", name);
  return file && file->ends_with(life + ".bin");
}

bool MayReadFile(const std::string& name) {
  const auto snapshot = NameIn("snapshots", name);
  return name == kInitialWeights || name == kFinalWeights || NameIn("group", name) ||
         (snapshot && snapshot->ends_with(".safetensors"));
}

void FileStore::OnMessage(Micros now, const Envelope& envelope) {
  const PeerId& sender = envelope.sender;
  if (envelope.job != job_ || members_.Find(sender.incarnation) == nullptr) return;
  asked_at_ = now;
  const auto answer = [&](Message message) {
    outbox_.Send({.job = job_, .sender = self_, .receiver = sender, .message = std::move(message)});
  };
  Dispatch<Core::kFiles>(
      envelope.message, [&](const StoreFile& part) { answer(OnStore(now, sender, part)); },
      [&](const ReadFile& wanted) { answer(OnRead(wanted)); },
      [&](const ListFiles& wanted) {
        FileNames found{wanted.prefix, wanted.after, {}};
        if (MayReadFile(wanted.prefix + "x.safetensors")) found.names = List(wanted);
        answer(std::move(found));
      });
}

// ---- storing -----------------------------------------------------------------------------------

StoreFileAck FileStore::OnStore(Micros now, const PeerId& sender, const StoreFile& part) {
  StoreFileAck ack{.name = part.name};
  if (!MayStoreFile(part.name, sender.incarnation, *members_.Find(sender.incarnation)) ||
      part.size > BytesMax(part.name)) {
    ack.failure = "the scheduler takes no file " + part.name + " of " + std::to_string(part.size) +
                  " bytes from this process";
    return ack;
  }
  if (disk_.Has(part.name)) {  // our earlier answer was lost
    ack.offset = part.size;
    ack.is_stored = true;
    return ack;
  }
  Result<Drafts::iterator> found = FindDraft(now, sender, part);
  if (!found.ok()) {
    ack.failure = found.status().message();
    return ack;
  }
  if (*found == drafts_.end()) return ack;
  Draft& draft = (*found)->second;
  draft.heard_at = now;
  const bool is_next = part.offset == draft.stored;
  if (const Status status = is_next ? Append(draft, part) : Status(); !status.ok()) {
    ack.failure = status.message();
  } else if (draft.stored == draft.size) {
    const Status committed = draft.file->Commit();
    ack.failure = committed.message();
    ack.is_stored = committed.ok();
  }
  ack.offset = draft.stored;
  if (ack.is_stored || !ack.failure.empty()) drafts_.erase(*found);
  return ack;
}

// Returns the end if no draft can begin: there are too many, or `part` is not a file's first.
Result<FileStore::Drafts::iterator> FileStore::FindDraft(Micros now, const PeerId& sender,
                                                         const StoreFile& part) {
  const std::pair key(sender.incarnation, sender.lane);
  const auto at = drafts_.find(key);
  if (at != drafts_.end()) {
    const Draft& draft = at->second;
    if (draft.name == part.name && draft.size == part.size && draft.hash == part.hash) return at;
    drafts_.erase(at);  // the sender has given up that file
  }
  if (part.offset != 0) return drafts_.end();
  const auto is_of_life = [&](const auto& entry) { return entry.first.first == key.first; };
  const auto is_full = [&] {
    return drafts_.size() >= kDraftsMax ||
           std::ranges::count_if(drafts_, is_of_life) >= ptrdiff_t{kDraftsPerLifeMax};
  };
  if (is_full())
    std::erase_if(drafts_,
                  [&](const auto& entry) { return now - entry.second.heard_at > kDraftPatience; });
  if (is_full()) return drafts_.end();
  PANDO_RETURN_IF_ERROR(CheckQuota(sender, part));
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<FileDraft> file, disk_.Create(part.name));
  Draft& draft = drafts_[key];
  draft.name = part.name;
  draft.size = part.size;
  draft.hash = part.hash;
  draft.file = std::move(file);
  return drafts_.find(key);
}

// Bytes that drafts have stored count as bytes on the disk. Files that the scheduler has removed do
// not count.
Status FileStore::CheckQuota(const PeerId& sender, const StoreFile& part) const {
  if (NameIn("group", part.name)) {
    if (disk_.List("group/", "", kGroupFilesMax).size() < kGroupFilesMax) return Status();
    return NoSpace("the group has " + std::to_string(kGroupFilesMax) + " addresses already");
  }
  uint64_t bytes = disk_.CountBytes("-" + HexText(sender.incarnation.value()));
  for (const auto& [key, draft] : drafts_)
    if (key.first == sender.incarnation) bytes += draft.size - draft.stored;
  if (bytes <= life_bytes_max_ && part.size <= life_bytes_max_ - bytes) return Status();
  return NoSpace(part.name + " of " + std::to_string(part.size) + " bytes beside " +
                 std::to_string(bytes) + " of this process would be more than " +
                 std::to_string(life_bytes_max_) + ", the most that a process of this job needs");
}

Status FileStore::Append(Draft& draft, const StoreFile& part) const {
  const std::span<const std::byte> bytes = part.payload.bytes();
  if (bytes.empty() || bytes.size() > draft.size - draft.stored)
    return Corrupt("part of " + draft.name + " at byte " + std::to_string(part.offset) +
                   " is empty or goes beyond its end");
  PANDO_RETURN_IF_ERROR(draft.file->Append(bytes));
  draft.so_far.Update(bytes);
  draft.stored += bytes.size();
  if (draft.stored < draft.size || draft.so_far.Hex() == draft.hash) return Status();
  return Corrupt(draft.name + " has changed on its way: its hash is " + draft.so_far.Hex() +
                 ", expected " + draft.hash);
}

// ---- reading -----------------------------------------------------------------------------------

// Lists only files that a complete snapshot's manifest names: any server may have stored more under
// its name. If the disk was full and the manifest is missing, nothing is left out.
std::vector<std::string> FileStore::List(const ListFiles& wanted) {
  constexpr size_t kAll = std::numeric_limits<size_t>::max();
  std::vector<std::string> names = disk_.List(wanted.prefix, wanted.after, kAll);
  const std::string snapshot = wanted.prefix.substr(0, wanted.prefix.rfind('-'));
  const Result<FileDisk::Part> manifest =
      disk_.Read(snapshot + ".json", 0, std::numeric_limits<uint32_t>::max());
  if (manifest.ok()) {
    const std::span<const std::byte> bytes = manifest->bytes.bytes();
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    std::erase_if(names, [&](const std::string& name) {
      return text.find('"' + name.substr(name.find('/') + 1) + '"') == text.npos;
    });
  }
  names.resize(std::min(names.size(), kFileNamesMax));
  return names;
}

FilePart FileStore::OnRead(const ReadFile& wanted) {
  FilePart part{.name = wanted.name, .offset = wanted.offset};
  if (!MayReadFile(wanted.name)) {
    part.failure = "the scheduler gives no file " + wanted.name;
    return part;
  }
  Result<FileDisk::Part> found = disk_.Read(wanted.name, wanted.offset, wanted.size);
  if (found.ok()) {
    part.file_size = found->file_size;
    part.payload = std::move(found->bytes);
    return part;
  }
  part.is_missing = found.status().code() == StatusCode::kNotFound;
  part.failure = found.status().message();
  return part;
}

}  // namespace pando
