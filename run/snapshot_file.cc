#include "run/snapshot_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "common/hash.h"

namespace pando {

namespace fs = std::filesystem;

namespace {

// Returns for example "shard.17.state".
std::string KeyFor(ShardId shard, const char* what) {
  return fmt::format("shard.{}.{}", shard.value(), what);
}

// Removes `mark` and the number after it from the text's start. None: the text begins otherwise.
std::optional<uint64_t> TakeNumber(char mark, std::string_view* text) {
  if (text->empty() || text->front() != mark) return std::nullopt;
  uint64_t number = 0;
  const char* const last = text->data() + text->size();
  const auto [end, error] = std::from_chars(text->data() + 1, last, number);
  if (error != std::errc{}) return std::nullopt;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return number;
}

}  // namespace

std::string SnapshotName(const SnapshotRef& snapshot) {
  return fmt::format("g{:03}-v{:09}", snapshot.generation, snapshot.version.value());
}

std::string SnapshotFileName(const SnapshotRef& snapshot, Incarnation process, uint64_t number) {
  return fmt::format("{}-{:016x}-{}.safetensors", SnapshotName(snapshot), process.value(), number);
}

std::optional<SnapshotRef> SnapshotOfFile(std::string_view file_name) {
  std::string_view rest = file_name;
  const std::optional<uint64_t> generation = TakeNumber('g', &rest);
  if (!generation || *generation > UINT32_MAX || !rest.starts_with('-')) return std::nullopt;
  rest.remove_prefix(1);
  const std::optional<uint64_t> version = TakeNumber('v', &rest);
  if (!version || (!rest.starts_with('-') && !rest.starts_with('.'))) return std::nullopt;
  return SnapshotRef{static_cast<uint32_t>(*generation), Version(*version)};
}

std::vector<std::pair<fs::path, SnapshotRef>> FindSnapshotFiles(const std::string& folder) {
  std::vector<std::pair<fs::path, SnapshotRef>> files;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (const auto snapshot = SnapshotOfFile(entry.path().filename().string()))
      files.emplace_back(entry.path(), *snapshot);
  }
  std::ranges::sort(files);
  return files;
}

Status WriteSnapshotFile(RunFiles& files, const std::string& name, JobId job,
                         const SnapshotRef& snapshot, std::span<const StoreRequest> records) {
  SafetensorsMetadata metadata{{"job", HexText(job.value())},
                               {"generation", fmt::format("{}", snapshot.generation)},
                               {"version", fmt::format("{}", snapshot.version.value())}};
  std::vector<NamedTensor> tensors;
  for (const StoreRequest& record : records) {
    metadata[KeyFor(record.shard, "hash")] = HexText(record.hash);
    const auto add = [&](const char* what, const SharedBuffer& buffer) {
      std::span<const float> values;
      if (buffer != nullptr) values = std::as_const(*buffer).span();
      tensors.push_back({KeyFor(record.shard, what), {values.size()}, values});
    };
    add("parameters", record.parameters);
    add("state", record.state);
  }
  return WriteSafetensors(files, name, metadata, tensors);
}

bool IsOfJob(const SafetensorsFile& file, JobId job) {
  const auto found = file.metadata().find("job");
  return found != file.metadata().end() && found->second == HexText(job.value());
}

bool HoldsShard(const SafetensorsFile& file, ShardId shard) {
  return file.tensors().contains(KeyFor(shard, "parameters"));
}

// ---- reading ------------------------------------------------------------------------------------

namespace {

Status CheckMetadata(const SafetensorsFile& file, const std::string& key,
                     const std::string& expected) {
  const auto found = file.metadata().find(key);
  const std::string text = found == file.metadata().end() ? "nothing" : found->second;
  if (text == expected) return Status();
  return Corrupt(fmt::format("{}: {} is {} there, expected {}", file.path(), key, text, expected));
}

Result<SharedBuffer> ReadValues(const SafetensorsFile& file, const std::string& key,
                                size_t float_count) {
  const auto tensor = file.tensors().find(key);
  if (tensor == file.tensors().end()) return Corrupt(file.path() + ": no tensor " + key);
  if (tensor->second.float_count != float_count) {
    return Corrupt(fmt::format("{}: {} has {} floats, expected {}: it is of another job",
                               file.path(), key, tensor->second.float_count, float_count));
  }
  auto values = std::make_shared<FloatBuffer>(float_count);
  PANDO_RETURN_IF_ERROR(file.Read(tensor->second, values->span()));
  return values;
}

}  // namespace

Result<StoredRecord> ReadRecord(const SafetensorsFile& file, const LoadRequest& wanted) {
  const auto [generation, version] = wanted.snapshot;
  Status names = CheckMetadata(file, "generation", fmt::format("{}", generation));
  if (names.ok()) names = CheckMetadata(file, "version", fmt::format("{}", version.value()));
  if (!names.ok()) return names;
  PANDO_ASSIGN_OR_RETURN(auto parameters, ReadValues(file, KeyFor(wanted.shard, "parameters"),
                                                     wanted.parameter_floats));
  PANDO_ASSIGN_OR_RETURN(auto state,
                         ReadValues(file, KeyFor(wanted.shard, "state"), wanted.state_floats));
  const uint64_t hash = RecordHash(version, parameters->span(), state->span());
  Status s = CheckMetadata(file, KeyFor(wanted.shard, "hash"), HexText(hash));
  if (!s.ok()) return Corrupt(s.message() + ": its bytes have changed since they were stored");
  return StoredRecord{std::move(parameters), std::move(state), hash};
}

}  // namespace pando
