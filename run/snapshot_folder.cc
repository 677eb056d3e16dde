#include "run/snapshot_folder.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/atomic_file.h"
#include "common/hash.h"
#include "job/job_file.h"
#include "optim/version_maker.h"
#include "run/snapshot_file.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

void Remove(const fs::path& path) {
  std::error_code ignored;  // a file that stays only takes space
  fs::remove(path, ignored);
}

bool IsSame(const SnapshotManifest& a, const SnapshotManifest& b) {
  const auto same_file = [](const StoredShard& x, const StoredShard& y) {
    return x.file == y.file;
  };
  return a.snapshot == b.snapshot && std::ranges::equal(a.shards, b.shards, same_file);
}

constexpr const char* kUnreadableSuffix = ".unreadable";

std::string ManifestName(const SnapshotRef& snapshot) { return SnapshotName(snapshot) + ".json"; }

Result<SnapshotManifest> ReadManifest(const std::string& path);

}  // namespace

SnapshotFolder::SnapshotFolder(std::string path, std::span<const SnapshotManifest> complete)
    : path_(std::move(path)) {
  for (const SnapshotManifest& manifest : complete) complete_[manifest.snapshot] = manifest;
  for (const auto& [file, snapshot] : FindSnapshotFiles(path_)) {
    if (file.extension() != kUnreadableSuffix) continue;
    left_.insert(file.filename());
    if (Result<SnapshotManifest> left = ReadManifest(file); left.ok()) Leave(*left);
  }
}

void SnapshotFolder::Leave(const SnapshotManifest& manifest) {
  for (const StoredShard& shard : manifest.shards) left_.insert(shard.file);
}

std::string SnapshotFolder::ManifestPath(const SnapshotRef& snapshot) const {
  return path_ + "/" + ManifestName(snapshot);
}

void SnapshotFolder::OnForgotten(const SnapshotRef& snapshot) {
  const auto it = complete_.find(snapshot);
  if (it == complete_.end()) return;
  Leave(it->second);
  complete_.erase(it);
  const std::string name = SnapshotName(snapshot) + kUnreadableSuffix;
  left_.insert(name);
  std::error_code ignored;  // if it fails, only this life knows the names
  fs::rename(ManifestPath(snapshot), path_ + "/" + name, ignored);
}

Status SnapshotFolder::OnComplete(const SnapshotManifest& manifest) {
  complete_[manifest.snapshot] = manifest;
  return WriteManifest(manifest);
}

Status SnapshotFolder::WriteManifest(const SnapshotManifest& manifest) const {
  nlohmann::ordered_json json;
  json["generation"] = manifest.snapshot.generation;
  json["step"] = manifest.snapshot.version.value();
  json["shards"] = nlohmann::ordered_json::array();
  for (const StoredShard& shard : manifest.shards) {
    json["shards"].push_back({{"hash", HexText(shard.hash)}, {"file", shard.file}});
  }
  const auto replace = nlohmann::json::error_handler_t::replace;
  return WriteFileAtomically(ManifestPath(manifest.snapshot),
                             json.dump(1, ' ', false, replace) + "\n", FileAccess::kAsFolder);
}

Status SnapshotFolder::WriteMissingManifests() const {
  for (const auto& [snapshot, manifest] : complete_) {
    std::error_code ignored;  // writing reports the fault
    if (fs::exists(ManifestPath(snapshot), ignored)) continue;
    PANDO_RETURN_IF_ERROR(WriteManifest(manifest));
  }
  return Status();
}

// Removes only that snapshot's files here: the names come from servers over the network.
void SnapshotFolder::OnDropped(const SnapshotManifest& dropped) {
  const auto whole = complete_.find(dropped.snapshot);
  if (whole != complete_.end() && IsSame(whole->second, dropped)) {
    complete_.erase(whole);
    Remove(ManifestPath(dropped.snapshot));
  }
  std::set<std::string> named;
  for (const StoredShard& shard : dropped.shards) named.insert(shard.file);
  RemoveUnwanted([&](const std::string& name, const SnapshotRef& snapshot) {
    const bool is_leftover = !complete_.empty() && snapshot < complete_.begin()->first;
    return is_leftover || (snapshot == dropped.snapshot && named.contains(name));
  });
}

void SnapshotFolder::OnEnd() {
  RemoveUnwanted([](const std::string&, const SnapshotRef&) { return true; });
}

void SnapshotFolder::RemoveUnwanted(
    const std::function<bool(const std::string& name, const SnapshotRef& snapshot)>& may_go) {
  const std::set<std::string> wanted = WantedNames();
  for (const auto& [path, snapshot] : FindSnapshotFiles(path_)) {
    const std::string name = path.filename();
    if (!wanted.contains(name) && may_go(name, snapshot)) Remove(path);
  }
}

std::set<std::string> SnapshotFolder::WantedNames() const {
  std::set<std::string> names = left_;
  for (const auto& [snapshot, manifest] : complete_) {
    names.insert(ManifestName(snapshot));
    for (const StoredShard& shard : manifest.shards) names.insert(shard.file);
  }
  return names;
}

// ---- reading ------------------------------------------------------------------------------------

namespace {

Result<SnapshotManifest> ReadManifest(const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(std::string text, ReadTextFile(path));
  SnapshotManifest manifest;
  try {
    const auto json = nlohmann::json::parse(text);
    for (const char* name : {"generation", "step"}) {
      if (!json.at(name).is_number_unsigned())
        return Corrupt(fmt::format("{}: {} is not a whole number", path, name));
    }
    json.at("generation").get_to(manifest.snapshot.generation);
    manifest.snapshot.version = Version(json.at("step").get<uint64_t>());
    for (const auto& entry : json.at("shards")) {
      StoredShard& shard = manifest.shards.emplace_back();
      const auto hash = entry.at("hash").get<std::string>();
      const std::optional<uint64_t> number = ParseHex(hash);
      if (!number) return Corrupt(fmt::format("{}: '{}' is not a hash", path, hash));
      shard.hash = *number;
      entry.at("file").get_to(shard.file);
      if (SnapshotOfFile(shard.file) != manifest.snapshot ||
          shard.file.find('/') != std::string::npos) {
        return Corrupt(fmt::format("{}: '{}' is not a file of this snapshot", path, shard.file));
      }
    }
  } catch (const nlohmann::json::exception& error) {
    return Corrupt(fmt::format("{}: not a snapshot's manifest: {}", path, error.what()));
  }
  return manifest;
}

}  // namespace

Result<std::vector<SnapshotManifest>> ReadManifests(const std::string& folder) {
  std::vector<SnapshotManifest> manifests;
  for (const auto& [path, snapshot] : FindSnapshotFiles(folder)) {
    if (path.extension() != ".json") continue;
    PANDO_ASSIGN_OR_RETURN(SnapshotManifest manifest, ReadManifest(path.string()));
    manifests.push_back(std::move(manifest));
  }
  std::ranges::sort(manifests, {}, &SnapshotManifest::snapshot);
  return manifests;
}

namespace {

using OnRecord = std::function<void(uint32_t shard, StoredRecord record)>;
using CheckFile = std::function<Status(const SafetensorsFile& file)>;

// Reads shard after shard, up to the first one that is missing or differs from the manifest.
Status ReadRecords(const std::string& folder, const SnapshotManifest& manifest, const JobPlan& plan,
                   const CheckFile& check, const OnRecord& on_record) {
  const VersionMaker maker(plan);
  if (manifest.shards.size() != plan.shards.shard_count()) {
    return InvalidArgument(fmt::format("{}/{} has {} shards, and this job has {}", folder,
                                       ManifestName(manifest.snapshot), manifest.shards.size(),
                                       plan.shards.shard_count()));
  }
  std::map<std::string, Result<SafetensorsFile>> files;
  for (uint32_t s = 0; s < plan.shards.shard_count(); ++s) {
    const auto& [hash, name] = manifest.shards[s];
    auto file = files.find(name);
    if (file == files.end()) {
      file = files.emplace(name, SafetensorsFile::Open(folder + "/" + name)).first;
    }
    if (!file->second.ok()) return file->second.status();
    PANDO_RETURN_IF_ERROR(check(*file->second));
    if (!HoldsShard(*file->second, ShardId(s))) {
      return Corrupt(fmt::format("{}/{}: shard {} is missing", folder, name, s));
    }
    PANDO_ASSIGN_OR_RETURN(
        StoredRecord record,
        ReadRecord(*file->second, {.snapshot = manifest.snapshot,
                                   .shard = ShardId(s),
                                   .parameter_floats = plan.shards.range(ShardId(s)).size(),
                                   .state_floats = maker.state_floats(ShardId(s))}));
    if (record.hash != hash) {
      return Corrupt(fmt::format("{}/{}: shard {} has hash {}, and the manifest says {}", folder,
                                 name, s, HexText(record.hash), HexText(hash)));
    }
    on_record(s, std::move(record));
  }
  return Status();
}

}  // namespace

Result<SnapshotImage> ReadSnapshot(const std::string& folder, const SnapshotManifest& manifest,
                                   const JobPlan& plan) {
  SnapshotImage image{FloatBuffer(plan.layout.float_count()), {}};
  PANDO_RETURN_IF_ERROR(ReadRecords(
      folder, manifest, plan, [](const SafetensorsFile&) { return Status(); },
      [&](uint32_t shard, StoredRecord record) {
        const uint64_t first = plan.shards.range(ShardId(shard)).first;
        std::ranges::copy(record.parameters->span(), image.parameters.data() + first);
        image.states.push_back(std::move(record.state));
      }));
  return image;
}

Result<std::string> FindDifference(const std::string& folder, const SnapshotManifest& manifest,
                                   const JobPlan& plan, std::span<const float> flat) {
  std::string text;
  PANDO_RETURN_IF_ERROR(ReadRecords(
      folder, manifest, plan, [](const SafetensorsFile&) { return Status(); },
      [&](uint32_t shard, const StoredRecord& record) {
        const std::span<const float> stored = record.parameters->span();
        const float* sent = flat.data() + plan.shards.range(ShardId(shard)).first;
        if (!text.empty() || std::memcmp(stored.data(), sent, stored.size_bytes()) == 0) return;
        text = fmt::format(
            "the parameters of shard {} of version {} that its server sent are not those that it "
            "stored in {}",
            shard, manifest.snapshot.version.value(), manifest.shards[shard].file);
      }));
  return text;
}

SnapshotCheck CheckSnapshot(const std::string& folder, const SnapshotManifest& manifest, JobId job,
                            const JobPlan& plan) {
  SnapshotCheck check;
  for (const StoredShard& shard : manifest.shards) {
    std::error_code ignored;  // an unreadable file fails when it is read
    if (SnapshotOfFile(shard.file) != manifest.snapshot ||
        shard.file.find('/') != shard.file.npos || !shard.file.ends_with(".safetensors")) {
      check.status = InvalidArgument(
          fmt::format("a server has stored '{}', which is not the name of a file of this snapshot",
                      shard.file));
      return check;
    }
    if (!fs::is_regular_file(fs::path(folder) / shard.file, ignored)) {
      check.status = NotFound(fmt::format(
          "a server has stored {}, and it is not in {}: it was removed, or, with "
          "snapshot.store = \"folder\", that server reaches another folder under this path",
          shard.file, folder));
      return check;
    }
    check.shard = ShardId(check.shard.value() + 1);
  }
  check.shard = ShardId(0);
  const auto is_of_job = [&](const SafetensorsFile& file) {
    return IsOfJob(file, job) ? Status() : Corrupt(file.path() + ": it is of another run");
  };
  check.status =
      ReadRecords(folder, manifest, plan, is_of_job,
                  [&](uint32_t shard, const StoredRecord&) { check.shard = ShardId(shard + 1); });
  return check;
}

}  // namespace pando
