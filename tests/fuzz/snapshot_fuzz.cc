// Files of a snapshot folder. An input's first byte says what the rest is: "m", a manifest, "f", a
// file of shards, or "n", the name of a file.
#include "common/check.h"
#include "common/hash.h"
#include "files/folder_files.h"
#include "run/snapshot_file.h"
#include "run/snapshot_folder.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_file.h"

namespace pando {
namespace {

constexpr SnapshotRef kSnapshot{1, Version(500)};
constexpr Incarnation kProcess{0xa};
constexpr size_t kParameterFloats = 4, kStateFloats = 2;
constexpr uint32_t kShardCount = 2;

StoreRequest Record(uint32_t shard) {
  StoreRequest record{kSnapshot, ShardId(shard), 0, std::make_shared<FloatBuffer>(kParameterFloats),
                      std::make_shared<FloatBuffer>(kStateFloats)};
  for (float& value : record.parameters->span()) value = 0.5f;
  for (float& value : record.state->span()) value = 0.25f;
  record.hash = RecordHash(kSnapshot.version, record.parameters->span(), record.state->span());
  return record;
}

void ReadShards(const std::string& path) {
  const Result<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok()) return;
  (void)IsOfJob(*file, JobId(7));
  for (uint32_t shard = 0; shard < kShardCount; ++shard) {
    if (!HoldsShard(*file, ShardId(shard))) continue;
    const Result<StoredRecord> record =
        ReadRecord(*file, {kSnapshot, ShardId(shard), kParameterFloats, kStateFloats});
    if (!record.ok()) continue;
    PANDO_CHECK(record->parameters->size() == kParameterFloats);
    PANDO_CHECK(record->state->size() == kStateFloats);
  }
}

// No manifest leads out of the folder.
void ReadManifestsIn(const std::string& folder) {
  const Result<std::vector<SnapshotManifest>> manifests = ReadManifests(folder);
  if (!manifests.ok()) return;
  for (const SnapshotManifest& manifest : *manifests) {
    for (const StoredShard& shard : manifest.shards) {
      PANDO_CHECK(SnapshotOfFile(shard.file) == manifest.snapshot);
      PANDO_CHECK(shard.file.find('/') == std::string::npos);
    }
  }
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const InputFolder folder;
  const std::string name = SnapshotFileName(kSnapshot, kProcess, 0);
  const std::vector<StoreRequest> records{Record(0), Record(1)};
  FolderFiles files(folder.path());
  PANDO_CHECK(WriteSnapshotFile(files, name, JobId(7), kSnapshot, records).ok());
  SnapshotFolder snapshots(folder.path(), {});
  const SnapshotManifest manifest{kSnapshot, {{records[0].hash, name}, {records[1].hash, name}}};
  PANDO_CHECK(snapshots.OnComplete(manifest).ok());
  return {"m" + folder.Read(SnapshotName(kSnapshot) + ".json"), "f" + folder.Read(name),
          "n" + name};
}

}  // namespace pando

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pando;
  static InputFile input;
  static const InputFolder folder;
  static const std::string manifest = folder.Link(SnapshotName(kSnapshot) + ".json", input);
  if (size == 0) return 0;
  const std::string_view rest = TextIn(data + 1, size - 1);
  if (data[0] == 'n') {
    (void)SnapshotOfFile(rest);
    return 0;
  }
  input.Write(rest);
  if (data[0] == 'f')
    ReadShards(input.path());
  else
    ReadManifestsIn(folder.path());
  return 0;
}
