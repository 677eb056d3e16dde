// FileStore is the scheduler's side of the file store (P45). It sends the run's members the files
// that they need, and takes files from them, each whole or not at all. Threads: one at a time;
// node/file_service runs it on a thread beside the scheduler's.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/blob.h"
#include "common/hash128.h"
#include "common/recent_map.h"
#include "common/result.h"
#include "proto/message_limits.h"
#include "proto/protocol_core.h"

namespace pando {

// A file that is still being written. Without Commit() nothing remains.
class FileDraft {
 public:
  virtual ~FileDraft() = default;
  virtual Status Append(std::span<const std::byte> bytes) = 0;
  virtual Status Commit() = 0;  // the file is then whole and durable
};

// The disk on which the store keeps its files. A name has a folder, "snapshots/...", or none.
class FileDisk {
 public:
  struct Part {
    uint64_t file_size = 0;
    Blob bytes;  // fewer bytes than requested mean the file's end
  };
  virtual ~FileDisk() = default;
  virtual bool Has(const std::string& name) = 0;
  virtual Result<std::unique_ptr<FileDraft>> Create(const std::string& name) = 0;
  // Reads a part of a file. kNotFound: there is no such file.
  virtual Result<Part> Read(const std::string& name, uint64_t offset, uint64_t size) = 0;
  // Returns the bytes of the files in the folders of members' files whose names contain this text.
  virtual uint64_t CountBytes(const std::string& part_of_name) = 0;
  // Returns at most `count` names that begin with `prefix` and come after `after`, ascending.
  virtual std::vector<std::string> List(const std::string& prefix, const std::string& after,
                                        size_t count) = 0;
};

class FileStore : public ProtocolCore {
 public:
  // The most files under way at once; further ones wait. Each holds a descriptor.
  static constexpr size_t kDraftsMax = 256;
  // A draft that gets no bytes for this time makes room for another one.
  static constexpr Micros kDraftPatience = std::chrono::seconds(60);

  // The most files of one process life, so that it does not keep out the files of others.
  static constexpr size_t kDraftsPerLifeMax = 8;
  static constexpr size_t kGroupFilesMax = 65'536;

  // `disk` and `outbox` outlive the store. `life_bytes_max` is the most bytes that the files of one
  // process life have together.
  FileStore(const PeerId& self, JobId job, FileDisk& disk, Outbox& outbox,
            uint64_t life_bytes_max = UINT64_MAX)
      : self_(self), job_(job), disk_(disk), outbox_(outbox), life_bytes_max_(life_bytes_max) {}

  // Makes the store answer this member. Call it again for members in use, to keep them.
  void Admit(Incarnation member, Role role) { members_.Touch(member) = role; }

  // Returns the time of the last request by a member.
  Micros asked_at() const { return asked_at_; }  // any thread

  void OnMessage(Micros now, const Envelope& envelope) override;
  void Tick(Micros) override {}
  Micros NextDeadline() const override { return kNever; }

 private:
  struct Draft {
    std::string name;
    uint64_t size = 0;
    std::string hash;
    std::unique_ptr<FileDraft> file;
    uint64_t stored = 0;
    Hash128 so_far;
    Micros heard_at{0};
  };
  using Drafts = std::map<std::pair<Incarnation, uint16_t>, Draft>;

  StoreFileAck OnStore(Micros now, const PeerId& sender, const StoreFile& part);
  Status Append(Draft& draft, const StoreFile& part) const;
  Status CheckQuota(const PeerId& sender, const StoreFile& part) const;
  Result<Drafts::iterator> FindDraft(Micros now, const PeerId& sender, const StoreFile& part);
  FilePart OnRead(const ReadFile& wanted);
  std::vector<std::string> List(const ListFiles& wanted);

  const PeerId self_;
  const JobId job_;
  FileDisk& disk_;
  Outbox& outbox_;
  const uint64_t life_bytes_max_;
  RecentMap<Incarnation, Role> members_{kNodesMax};
  std::atomic<Micros> asked_at_{Micros(0)};
  Drafts drafts_;  // one per member and lane
};

// Return whether a member may store or read the file. "group/..." has allreduce workers' addresses.
bool MayStoreFile(const std::string& name, Incarnation member, Role role);
bool MayReadFile(const std::string& name);

}  // namespace pando
