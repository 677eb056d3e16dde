#include "run/snapshot_store.h"

#include <fmt/core.h>

#include <map>
#include <optional>
#include <utility>

#include "common/system.h"
#include "run/safetensors_file.h"
#include "run/snapshot_file.h"

namespace pando {
namespace {

Status QueueIsFull(const std::string& folder) {
  return Unavailable(fmt::format(
      "{}: too many requests wait for this folder; it is slower than snapshots are due, so raise "
      "snapshot.every or use a faster disk",
      folder));
}

// SnapshotReader opens each file of one restore once, and ignores files of other jobs.
class SnapshotReader {
 public:
  SnapshotReader(RunFiles& files, JobId job, const SnapshotRef& snapshot)
      : location_(files.location()) {
    const Result<std::vector<std::string>> names = files.List(SnapshotName(snapshot) + "-");
    if (!names.ok()) files_.push_back(names.status());
    if (!names.ok()) return;
    for (const std::string& name : *names) {
      if (!name.ends_with(".safetensors")) continue;
      Result<SafetensorsFile> file = SafetensorsFile::Open(files, name);
      if (!file.ok() || IsOfJob(*file, job)) files_.push_back(std::move(file));
    }
  }

  // Reads a record from the first sound file that has it: two processes may have stored a shard.
  Result<StoredRecord> Read(const LoadRequest& wanted) const {
    std::optional<Status> failure;
    for (const Result<SafetensorsFile>& file : files_) {
      if (!file.ok()) {
        failure = file.status();
      } else if (HoldsShard(*file, wanted.shard)) {
        Result<StoredRecord> record = ReadRecord(*file, wanted);
        if (record.ok()) return record;
        failure = record.status();
      }
    }
    if (failure) return *failure;
    return NotFound(fmt::format("no file {}/{}-*.safetensors holds shard {}", location_,
                                SnapshotName(wanted.snapshot), wanted.shard.value()));
  }

 private:
  const std::string location_;
  std::vector<Result<SafetensorsFile>> files_;
};

}  // namespace

SnapshotStore::SnapshotStore(Options options)
    : options_(std::move(options)),
      queue_(options_.queued_requests_max),
      writer_([this] { Run(); }) {}

SnapshotStore::~SnapshotStore() {
  queue_.Close();
  options_.files->Interrupt();
  writer_.join();
}

void SnapshotStore::Port::Store(StoreRequest request) {
  RecordStored failed{request.snapshot, request.shard, request.hash, "", Status()};
  if (store_.queue_.Push({std::move(request), events_})) return;
  failed.status = QueueIsFull(store_.options_.files->location());
  (void)events_->Push(std::move(failed));  // it is never full and never closed
}

void SnapshotStore::Port::Load(LoadRequest request) {
  if (store_.queue_.Push({request, events_})) return;
  (void)events_->Push(RecordLoaded{request.snapshot, request.shard,
                                   QueueIsFull(store_.options_.files->location()), nullptr,
                                   nullptr});
}

// ---- the writer ---------------------------------------------------------------------------------

void SnapshotStore::Run() {
  TakeBatchTimeSlices();
  while (std::optional<Queued> first = queue_.Pop()) {
    if (queue_.is_closed()) return;
    std::deque<Queued> requests = queue_.Drain();
    requests.push_front(*std::move(first));
    std::map<SnapshotRef, std::vector<Queued>> stores;
    std::vector<Queued> loads;
    for (Queued& queued : requests) {
      const auto* store = std::get_if<StoreRequest>(&queued.request);
      (store ? stores[store->snapshot] : loads).push_back(std::move(queued));
    }
    LoadAll(loads);  // first, because lanes wait for them
    for (const auto& [snapshot, records] : stores) StoreFile(snapshot, records);
  }
}

void SnapshotStore::StoreFile(const SnapshotRef& snapshot, const std::vector<Queued>& stores) {
  std::map<ShardId, StoreRequest> records;  // a shard's second request has the same bits
  for (const Queued& queued : stores) {
    const auto& request = std::get<StoreRequest>(queued.request);
    records.emplace(request.shard, request);
  }
  std::vector<StoreRequest> unique;
  for (auto& [shard, request] : records) unique.push_back(std::move(request));
  const std::string name = SnapshotFileName(snapshot, options_.process, file_count_++);
  const Status status = WriteSnapshotFile(*options_.files, name, options_.job, snapshot, unique);
  for (const Queued& queued : stores) {
    const auto& request = std::get<StoreRequest>(queued.request);
    (void)queued.events->Push(
        RecordStored{snapshot, request.shard, request.hash, status.ok() ? name : "", status});
  }
}

void SnapshotStore::LoadAll(const std::vector<Queued>& loads) {
  std::map<SnapshotRef, SnapshotReader> readers;
  for (const Queued& queued : loads) {
    const auto& request = std::get<LoadRequest>(queued.request);
    const auto [reader, is_new] =
        readers.try_emplace(request.snapshot, *options_.files, options_.job, request.snapshot);
    RecordLoaded loaded{request.snapshot, request.shard, Status(), nullptr, nullptr};
    Result<StoredRecord> record = reader->second.Read(request);
    if (record.ok()) {
      loaded.parameters = std::move(record->parameters);
      loaded.state = std::move(record->state);
    } else {
      loaded.status = record.status();
    }
    (void)queued.events->Push(std::move(loaded));
  }
}

}  // namespace pando
