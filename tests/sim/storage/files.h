// Files that travel in the simulator (P45): the real FileStore beside the simulated scheduler, over
// the virtual disk, and the real FileClient in each server, with a queue of records before it.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "files/file_client.h"
#include "files/file_store.h"
#include "scheduler/scheduler.h"
#include "tests/sim/loop.h"
#include "tests/sim/storage/disk.h"

namespace pando::sim {

// The client's lane: behind those of any server.
inline constexpr uint16_t kClientLane = 240;
// So small that a record has several.
inline constexpr FileClient::Sizes kSmallParts{.part = 1000, .window = 4000};

// The virtual disk as a folder of files, one per record.
class VirtualFolder : public FileDisk {
 public:
  // Once `is_ours` is false, a scheduler that no longer leads has the folder, and files vanish.
  VirtualFolder(VirtualDisk& disk, std::function<bool()> is_ours)
      : disk_(disk), is_ours_(std::move(is_ours)) {}
  bool Has(const std::string& name) override;
  Result<std::unique_ptr<FileDraft>> Create(const std::string& name) override;
  Result<Part> Read(const std::string& name, uint64_t offset, uint64_t size) override;
  uint64_t CountBytes(const std::string&) override { return 0; }
  std::vector<std::string> List(const std::string& prefix, const std::string& after,
                                size_t count) override;

 private:
  VirtualDisk& disk_;
  const std::function<bool()> is_ours_;
};

// Stands for the product's FileService: the store beside a life of the scheduler.
class SchedulerFiles {
 public:
  SchedulerFiles(VirtualFolder folder, Loop& loop, const PeerId& scheduler, JobId job);
  Loop& loop() { return loop_; }
  const PeerId& self() const { return self_; }
  void Admit(const Scheduler& scheduler);

 private:
  const PeerId self_;
  VirtualFolder folder_;
  Loop& loop_;
  FileStore* store_;  // the loop's core
};

// Stands for the product's SnapshotStore: it stores and restores records, one after the
// other, through the client.
class RecordQueue {
 public:
  using Answer = std::function<void(SnapshotEvent)>;
  // `loop` has the client as its core, and calls Advance after each event.
  RecordQueue(Loop& loop, FileClient& client, Incarnation self)
      : loop_(loop), client_(client), self_(self) {}

  void Push(std::variant<StoreRequest, LoadRequest> request, Answer answer);
  void Advance();

 private:
  struct Queued {
    std::variant<StoreRequest, LoadRequest> request;
    Answer answer;
  };
  // Begins or goes on with the first request. False: the client has to do something.
  bool Store(const StoreRequest& request, const Answer& answer);
  bool Load(const LoadRequest& request, const Answer& answer);

  Loop& loop_;
  FileClient& client_;
  const Incarnation self_;
  std::deque<Queued> queue_;
  uint64_t file_count_ = 0;
  enum class Doing : uint8_t { kNothing, kStoring, kListing, kOpening, kReading };
  Doing doing_ = Doing::kNothing;
  std::string name_;
  std::vector<std::byte> bytes_;  // of the file being stored or read
  std::deque<std::string> names_;
};

}  // namespace pando::sim
