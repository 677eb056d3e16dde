#include "run/snapshot_folder.h"

#include <doctest/doctest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/hash.h"
#include "files/folder_files.h"
#include "run/snapshot_checker.h"
#include "run/snapshot_file.h"
#include "tests/deadline.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr Incarnation kFolderProcess{1};

SnapshotRef RefAt(uint64_t version, uint32_t generation = 0) {
  return {generation, Version(version)};
}

// Shards' files in their order; each is made, with a byte in it.
SnapshotManifest Made(const TempFolder& temp, SnapshotRef snapshot,
                      const std::vector<uint64_t>& numbers) {
  SnapshotManifest manifest{snapshot, {}};
  for (uint64_t number : numbers) {
    manifest.shards.push_back({number, SnapshotFileName(snapshot, kFolderProcess, number)});
    std::ofstream(temp.path() + "/" + manifest.shards.back().file) << "x";
  }
  return manifest;
}

std::vector<std::string> NamesIn(const TempFolder& temp) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(temp.path())) {
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

TEST_CASE("manifests are written, read back in order, and written again where one is missing") {
  TempFolder temp;
  const SnapshotManifest old_one = Made(temp, RefAt(1000), {0, 0, 3});
  const SnapshotManifest new_one = Made(temp, RefAt(500, 1), {UINT64_MAX});
  SnapshotFolder folder(temp.path(), {});
  REQUIRE(folder.OnComplete(new_one).ok());
  REQUIRE(folder.OnComplete(old_one).ok());
  fs::remove(temp.path() + "/g000-v000001000.json");
  const std::vector<SnapshotManifest> both{old_one, new_one};
  REQUIRE(SnapshotFolder(temp.path(), both).WriteMissingManifests().ok());
  Result<std::vector<SnapshotManifest>> read = ReadManifests(temp.path());
  REQUIRE_MESSAGE(read.ok(), read.status().message());
  REQUIRE(read->size() == 2);
  CHECK((*read)[0].snapshot == RefAt(1000));
  CHECK((*read)[0].shards.size() == 3);
  CHECK((*read)[0].shards[2].file == old_one.shards[2].file);
  CHECK((*read)[1].snapshot == RefAt(500, 1));
  CHECK((*read)[1].shards[0].hash == UINT64_MAX);
  CHECK(ReadManifests(temp.path() + "/none")->empty());
}

TEST_CASE("a dropped snapshot goes with its manifest, and what dead processes left of older ones") {
  TempFolder temp;
  Made(temp, RefAt(400), {7});  // no manifest names it
  std::ofstream(temp.path() + "/" + SnapshotFileName(RefAt(450), kFolderProcess, 8) + ".tmp")
      << "x";
  std::ofstream(temp.path() + "/notes.txt") << "x";
  const SnapshotManifest first = Made(temp, RefAt(500), {0, 1});
  const SnapshotManifest second = Made(temp, RefAt(1000), {2, 2});
  const SnapshotManifest pending = Made(temp, RefAt(1500), {3});
  SnapshotFolder folder(temp.path(), {});
  REQUIRE(folder.OnComplete(first).ok());
  REQUIRE(folder.OnComplete(second).ok());
  folder.OnDropped(first);
  CHECK(NamesIn(temp) == std::vector<std::string>{second.shards[0].file, "g000-v000001000.json",
                                                  pending.shards[0].file, "notes.txt"});
}

TEST_CASE("of a snapshot that was given up, or stored twice, only the named files go") {
  TempFolder temp;
  const SnapshotManifest complete = Made(temp, RefAt(1000), {0, 1});
  const SnapshotManifest copy = Made(temp, RefAt(1000), {2});
  SnapshotManifest given_up = Made(temp, RefAt(1500), {3, 4});
  SnapshotFolder folder(temp.path(), {});
  REQUIRE(folder.OnComplete(complete).ok());
  folder.OnDropped({RefAt(1000), {{}, copy.shards[0]}});
  given_up.shards[1] = {};
  folder.OnDropped(given_up);
  CHECK(NamesIn(temp) ==
        std::vector<std::string>{complete.shards[0].file, complete.shards[1].file,
                                 "g000-v000001000.json",
                                 SnapshotFileName(RefAt(1500), kFolderProcess, 4)});
  folder.OnEnd();
  CHECK(NamesIn(temp).size() == 3);
}

TEST_CASE("a forgotten snapshot's files are left as they are, by later lives too") {
  TempFolder temp;
  const SnapshotManifest first = Made(temp, RefAt(500), {0});
  const SnapshotManifest second = Made(temp, RefAt(1000), {1});
  {
    SnapshotFolder folder(temp.path(), {});
    REQUIRE(folder.OnComplete(first).ok());
    REQUIRE(folder.OnComplete(second).ok());
    folder.OnForgotten(RefAt(500));
    CHECK_FALSE(folder.IsComplete(RefAt(500)));
  }
  const std::vector<SnapshotManifest> complete{second};
  SnapshotFolder later(temp.path(), complete);
  later.OnDropped({RefAt(400), {}});
  later.OnEnd();
  CHECK(NamesIn(temp) == std::vector<std::string>{first.shards[0].file,
                                                  "g000-v000000500.unreadable",
                                                  second.shards[0].file, "g000-v000001000.json"});
  CHECK(ReadManifests(temp.path())->size() == 1);
}

TEST_CASE("a file name from the wire reaches nothing but the snapshot's files") {
  TempFolder temp;
  std::ofstream(temp.path() + "/job.toml") << "x";
  const SnapshotManifest other = Made(temp, RefAt(1000), {0});
  SnapshotFolder folder(temp.path(), {});
  folder.OnDropped(
      {RefAt(500), {{0, "job.toml"}, {0, other.shards[0].file}, {0, "../x"}, {0, ""}}});
  CHECK(NamesIn(temp).size() == 2);
}

TEST_CASE("a manifest that is none is named") {
  TempFolder temp;
  const std::string path = temp.path() + "/g000-v000000500.json";
  for (
      const char* text :
      {"", "{", "[]", R"({"generation": 0, "step": 500})",
       R"({"generation": -1, "step": 500, "shards": []})",
       R"({"generation": 0, "step": 1e300, "shards": []})",
       R"({"generation": 0, "step": 500, "shards": [{"hash": "x", "file": ""}]})",
       R"({"generation": 0, "step": 500, "shards": [{"hash": "1", "file": "/etc/passwd"}]})",
       R"({"generation": 0, "step": 500, "shards": [{"hash": "1", "file": "g000-v000000500-/../x"}]})"}) {
    CAPTURE(text);
    std::ofstream(path) << text;
    Result<std::vector<SnapshotManifest>> read = ReadManifests(temp.path());
    REQUIRE_FALSE(read.ok());
    CHECK(read.status().message().starts_with(path + ": "));
  }
}

// ---- snapshots put together --------------------------------------------------------------------

JobPlan SmallPlan(OptimizerKind optimizer = OptimizerKind::kSgd) {
  Job job;
  job.optimizer.kind = optimizer;
  job.steps = 10;
  return JobPlan(
      job, {.train_samples = 1000},
      TensorLayout(
          {{.name = "a", .shape = {3000}}, {.name = "b", .shape = {5}}, MetricTensorSpec()}));
}

// Every float of the flat vector is its index; each shard is in a separate file.
SnapshotManifest Stored(const TempFolder& temp, const JobPlan& plan, uint32_t state_count) {
  const SnapshotRef snapshot = RefAt(7, 2);
  SnapshotManifest manifest{snapshot, {}};
  for (uint32_t s = 0; s < plan.shards.shard_count(); ++s) {
    const ShardRange& range = plan.shards.range(ShardId(s));
    StoreRequest record{snapshot, ShardId(s), 0, std::make_shared<FloatBuffer>(range.size()),
                        std::make_shared<FloatBuffer>(range.size() * state_count)};
    for (size_t i = 0; i < range.size(); ++i) {
      record.parameters->data()[i] = static_cast<float>(range.first + i);
    }
    record.hash = RecordHash(snapshot.version, record.parameters->span(), record.state->span());
    manifest.shards.push_back({record.hash, SnapshotFileName(snapshot, kFolderProcess, s)});
    FolderFiles files(temp.path());
    REQUIRE(
        WriteSnapshotFile(files, manifest.shards[s].file, JobId(7), snapshot, std::span(&record, 1))
            .ok());
  }
  return manifest;
}

TEST_CASE("a snapshot is put together from its shards' files") {
  TempFolder temp;
  const JobPlan plan = SmallPlan(OptimizerKind::kAdam);
  REQUIRE(plan.shards.shard_count() > 1);
  const SnapshotManifest manifest = Stored(temp, plan, 2);
  Result<SnapshotImage> image = ReadSnapshot(temp.path(), manifest, plan);
  REQUIRE_MESSAGE(image.ok(), image.status().message());
  for (size_t i = 0; i < plan.layout.float_count(); ++i) {
    CHECK(image->parameters.data()[i] == static_cast<float>(i));
  }
  CHECK(image->states.size() == plan.shards.shard_count());
}

TEST_CASE("one other bit in the final weights names its shard and the file") {
  TempFolder temp;
  const JobPlan plan = SmallPlan();
  const SnapshotManifest manifest = Stored(temp, plan, 0);
  FloatBuffer flat(plan.layout.float_count());
  for (size_t i = 0; i < flat.size(); ++i) flat.data()[i] = static_cast<float>(i);
  const auto difference = [&] { return FindDifference(temp.path(), manifest, plan, flat.span()); };
  CHECK(difference()->empty());
  flat.data()[0] = -flat.data()[0];  // 0 and -0 compare as equal
  CHECK(difference()->find("shard 0 of version 7") != std::string::npos);
  CHECK(difference()->find(manifest.shards[0].file) != std::string::npos);
  std::filesystem::remove(temp.path() + "/" + manifest.shards[1].file);
  CHECK_FALSE(difference().ok());
}

TEST_CASE(
    "a snapshot whose files hold other records than reported does not count, and says which") {
  TempFolder temp;
  const JobPlan plan = SmallPlan();
  const SnapshotManifest good = Stored(temp, plan, 0);
  CHECK(CheckSnapshot(temp.path(), good, JobId(7), plan).status.ok());
  const auto expect = [&](uint32_t shard, const char* part, auto change) {
    CAPTURE(part);
    SnapshotManifest manifest = good;
    change(manifest.shards[shard]);
    const SnapshotCheck check = CheckSnapshot(temp.path(), manifest, JobId(7), plan);
    CHECK(check.shard == ShardId(shard));
    CHECK(check.status.message().find(part) != std::string::npos);
  };
  expect(1, "and the manifest says", [](StoredShard& shard) { shard.hash ^= 1; });
  expect(1, "another folder under this path", [](StoredShard& shard) {
    shard.file = SnapshotFileName(RefAt(7, 2), kFolderProcess, 99);
  });
  for (const char* name : {"", "/etc/passwd", "g002-v000000008-1-0.safetensors",
                           "g002-v000000007-1-0.json", "g002-v000000007-/../x.safetensors"})
    expect(1, "not the name of a file of this snapshot",
           [&](StoredShard& shard) { shard.file = name; });
  expect(0, "is missing", [&](StoredShard& shard) { shard.file = good.shards[1].file; });
  CHECK(CheckSnapshot(temp.path(), good, JobId(8), plan).status.message().find("another run") !=
        std::string::npos);
  const std::string path = temp.path() + "/" + good.shards[1].file;
  std::fstream(path, std::ios::in | std::ios::out | std::ios::ate).seekp(-1, std::ios::end) << 'x';
  expect(1, "its bytes have changed", [](StoredShard&) {});
  std::filesystem::resize_file(path, 20);
  expect(1, path.c_str(), [](StoredShard&) {});
}

TEST_CASE("a snapshot is read on the checker's own thread, once") {
  const SnapshotManifest wanted{RefAt(10), {}};
  std::atomic<int> count = 0;
  const std::thread::id here = std::this_thread::get_id();
  SnapshotChecker checker([&](const SnapshotManifest& manifest) {
    ++count;
    const bool is_elsewhere = std::this_thread::get_id() != here;
    return SnapshotCheck{is_elsewhere ? Corrupt("damaged") : Status(),
                         ShardId(manifest.snapshot.generation)};
  });
  REQUIRE_FALSE(checker.Check(wanted));
  CHECK_FALSE(checker.Check(wanted));
  pollfd ready{checker.fd(), POLLIN, 0};
  REQUIRE(poll(&ready, 1, static_cast<int>(std::chrono::milliseconds(kEventDeadline).count())) ==
          1);
  checker.TakeResults();
  const std::optional<SnapshotCheck> found = checker.Check(wanted);
  REQUIRE(found);
  CHECK(found->status.message() == "damaged");
  CHECK(checker.Check(wanted));
  CHECK(count == 1);
  CHECK_FALSE(checker.Check({RefAt(11), {}}));
}

TEST_CASE("a snapshot that lacks a file, a shard or the right bytes says which") {
  TempFolder temp;
  const JobPlan plan = SmallPlan();
  const SnapshotManifest good = Stored(temp, plan, 0);
  const auto error = [&](auto change) {
    SnapshotManifest manifest = good;
    change(manifest);
    Result<SnapshotImage> image = ReadSnapshot(temp.path(), manifest, plan);
    REQUIRE_FALSE(image.ok());
    CHECK(image.status().message().find(temp.path()) != std::string::npos);
    return image.status().message();
  };
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(contains(error([](auto& m) { m.shards.pop_back(); }), "shards, and this job has"));
  CHECK(
      contains(error([](auto& m) { m.shards[1].file = m.shards[0].file; }), "shard 1 is missing"));
  CHECK(contains(error([](auto& m) { m.shards[1].hash ^= 1; }), "and the manifest says"));
  CHECK(contains(error([](auto& m) { m.shards[0].file = "g002-v000000007-none.safetensors"; }),
                 "No such file"));
  CHECK(contains(error([](auto& m) { m.snapshot.generation = 3; }), "expected 3"));
}

}  // namespace
}  // namespace pando
