// The files of a snapshot (P29). Each holds the records of some shards at one version, which one
// server process stored together. The snapshot store uses it, and so do the commands that read the
// files of a run.
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

// Returns for example "g000-v000000500", with which the names of all files of a snapshot begin.
std::string SnapshotName(const SnapshotRef& snapshot);
std::string SnapshotFileName(const SnapshotRef& snapshot, Incarnation process, uint64_t number);
// Returns the snapshot of a file of records, a temporary file or a manifest; none for other files.
std::optional<SnapshotRef> SnapshotOfFile(std::string_view file_name);
// Returns such files of the folder, sorted by name; none if the folder cannot be read.
std::vector<std::pair<std::filesystem::path, SnapshotRef>> FindSnapshotFiles(
    const std::string& folder);

// Writes a file of records. REQUIRES: `records` belong to this snapshot, each shard once.
Status WriteSnapshotFile(RunFiles& files, const std::string& name, JobId job,
                         const SnapshotRef& snapshot, std::span<const StoreRequest> records);

bool IsOfJob(const SafetensorsFile& file, JobId job);

bool HoldsShard(const SafetensorsFile& file, ShardId shard);

struct StoredRecord {
  SharedBuffer parameters;
  SharedBuffer state;
  uint64_t hash = 0;
};
// Reads a record, and checks its metadata and hash. REQUIRES: HoldsShard(file, wanted.shard).
Result<StoredRecord> ReadRecord(const SafetensorsFile& file, const LoadRequest& wanted);

}  // namespace pando
