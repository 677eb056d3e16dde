// The files of a snapshot (P29): each holds the records of some shards at one version, as one
// server process stored them at once. Used by the snapshot store, and by the commands that read
// what a run left behind.
//
// clang-format off
//   name     | gGGG-vVVVVVVVVV-INCARNATION-N.safetensors: generation, version, the process, its Nth
//   tensors  | "shard.17.parameters", "shard.17.state"; empty for an optimizer without state
//   metadata | "job", "generation", "version"; by shard "shard.17.hash": RecordHash; job and hashes
//            | as 16 hex digits
// clang-format on
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "run/safetensors_file.h"
#include "server/snapshot_port.h"

namespace pando {

// "g000-v000000500": what the names of all of a snapshot's files begin with.
std::string SnapshotName(const SnapshotRef& snapshot);
std::string SnapshotFileName(const SnapshotRef& snapshot, Incarnation process, uint64_t number);
// The snapshot that a file, its temporary or a manifest belongs to; none for other files.
std::optional<SnapshotRef> SnapshotOfFile(std::string_view file_name);
// These files in the folder, in the order of their names. None if the folder cannot be read.
std::vector<std::pair<std::filesystem::path, SnapshotRef>> FindSnapshotFiles(
    const std::string& folder);

// REQUIRES: `records` are of this snapshot, each shard once.
Status WriteSnapshotFile(RunFiles& files, const std::string& name, JobId job,
                         const SnapshotRef& snapshot, std::span<const StoreRequest> records);

bool IsOfJob(const SafetensorsFile& file, JobId job);

bool HoldsShard(const SafetensorsFile& file, ShardId shard);

struct StoredRecord {
  SharedBuffer parameters;
  SharedBuffer state;
  uint64_t hash = 0;
};
// Checks generation, version, sizes and hash.  REQUIRES: HoldsShard(file, wanted.shard).
Result<StoredRecord> ReadRecord(const SafetensorsFile& file, const LoadRequest& wanted);

}  // namespace pando
