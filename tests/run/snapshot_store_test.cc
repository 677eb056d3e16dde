#include "run/snapshot_store.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "common/hash.h"
#include "common/philox.h"
#include "files/folder_files.h"
#include "run/snapshot_file.h"
#include "tests/contains.h"
#include "tests/deadline.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr Incarnation kProcess{0xabc};
constexpr SnapshotRef kAt500{2, Version(500)};

SharedBuffer MakeBuffer(size_t float_count, float first) {
  auto buffer = std::make_shared<FloatBuffer>(float_count);
  for (float& value : buffer->span()) value = first++;
  return buffer;
}

StoreRequest MakeRecord(uint32_t shard, SnapshotRef snapshot = kAt500) {
  StoreRequest request{snapshot, ShardId(shard), 0, MakeBuffer(48 + 16 * shard, 1.5f),
                       MakeBuffer(96 + 32 * shard, -3.0f)};
  request.hash = RecordHash(snapshot.version, request.parameters->span(), request.state->span());
  return request;
}

LoadRequest MakeLoad(const StoreRequest& stored) {
  return {stored.snapshot, stored.shard, stored.parameters->size(), stored.state->size()};
}

constexpr JobId kJob{77};

// A store in a folder, with one lane's port.
struct Disk {
  explicit Disk(std::string folder, size_t queued_requests_max = SnapshotStore::kQueuedRequestsMax)
      : Disk(folder, kJob, queued_requests_max) {}
  Disk(std::string folder, JobId job, size_t queued_requests_max)
      : store({std::make_unique<FolderFiles>(std::move(folder), "; a shared folder"), kProcess, job,
               queued_requests_max}) {}
  SnapshotStore store;
  SnapshotStore::Port port{store};

  template <class Event>
  std::vector<Event> Await(size_t count) {
    std::vector<Event> events;
    while (events.size() < count) {
      pollfd ready{port.fd(), POLLIN, 0};
      REQUIRE(poll(&ready, 1,
                   static_cast<int>(std::chrono::milliseconds(kEventDeadline).count())) == 1);
      for (SnapshotEvent& event : port.TakeEvents()) {
        events.push_back(std::get<Event>(std::move(event)));
      }
    }
    CHECK(events.size() == count);
    return events;
  }
  RecordStored Store(StoreRequest request) {
    port.Store(std::move(request));
    return Await<RecordStored>(1)[0];
  }
  RecordLoaded Load(const LoadRequest& request) {
    port.Load(request);
    return Await<RecordLoaded>(1)[0];
  }
};

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

bool IsEqual(const FloatBuffer& a, const FloatBuffer& b) {
  return std::ranges::equal(std::as_bytes(a.span()), std::as_bytes(b.span()));
}

TEST_CASE("a record comes back bit for bit, from another process's store") {
  TempFolder temp;
  const std::string folder = temp.path();
  const StoreRequest record = MakeRecord(17);
  {
    Disk disk(folder);
    const RecordStored stored = disk.Store(record);
    REQUIRE_MESSAGE(stored.status.ok(), stored.status.message());
    CHECK(stored.snapshot == kAt500);
    CHECK(stored.shard == ShardId(17));
    CHECK(stored.hash == record.hash);
    CHECK(stored.file == "g002-v000000500-0000000000000abc-0.safetensors");
    CHECK(NamesIn(folder) == std::vector{stored.file});
  }
  Disk disk(folder);
  const RecordLoaded loaded = disk.Load(MakeLoad(record));
  REQUIRE_MESSAGE(loaded.status.ok(), loaded.status.message());
  CHECK(loaded.snapshot == kAt500);
  CHECK(loaded.shard == ShardId(17));
  CHECK(IsEqual(*loaded.parameters, *record.parameters));
  CHECK(IsEqual(*loaded.state, *record.state));
}

TEST_CASE("an optimizer without state stores and restores none") {
  TempFolder temp;
  Disk disk(temp.path());
  StoreRequest record = MakeRecord(0);
  record.state = nullptr;
  record.hash = RecordHash(kAt500.version, record.parameters->span(), {});
  CHECK(disk.Store(record).status.ok());
  const RecordLoaded loaded =
      disk.Load({record.snapshot, record.shard, record.parameters->size(), 0});
  REQUIRE_MESSAGE(loaded.status.ok(), loaded.status.message());
  CHECK(loaded.state->size() == 0);
}

TEST_CASE("every request has one event, and records stored together share files") {
  TempFolder temp;
  Disk disk(temp.path());
  constexpr uint32_t kShards = 60;
  const SnapshotRef next{2, Version(1000)};
  for (uint32_t s = 0; s < kShards; ++s) disk.port.Store(MakeRecord(s));
  for (uint32_t s = 0; s < kShards; ++s) disk.port.Store(MakeRecord(s, next));
  std::set<std::pair<SnapshotRef, ShardId>> seen;
  std::set<std::string> files;
  for (const RecordStored& stored : disk.Await<RecordStored>(2 * kShards)) {
    CHECK(stored.status.ok());
    CHECK(seen.insert({stored.snapshot, stored.shard}).second);
    CHECK(SnapshotOfFile(stored.file) == stored.snapshot);
    files.insert(stored.file);
  }
  CHECK(NamesIn(temp.path()) == std::vector(files.begin(), files.end()));
  for (uint32_t s = 0; s < kShards; ++s) disk.port.Load(MakeLoad(MakeRecord(s, next)));
  for (const RecordLoaded& loaded : disk.Await<RecordLoaded>(kShards)) {
    CHECK_MESSAGE(loaded.status.ok(), loaded.status.message());
  }
}

TEST_CASE("the names of a snapshot's files say which it is") {
  CHECK(SnapshotName(kAt500) == "g002-v000000500");
  CHECK(SnapshotOfFile("g002-v000000500.json") == kAt500);
  CHECK(SnapshotOfFile("g002-v000000500-0000000000000abc-0.safetensors.tmp") == kAt500);
  const SnapshotRef large{1234, Version(12'345'678'901)};
  CHECK(SnapshotOfFile(SnapshotFileName(large, kProcess, 3)) == large);
  for (const char* other :
       {"", "g", "g1", "g1-", "g1-v", "g1-v2", "notes.txt", "g1-v2x.json", "g99999999999-v1.json",
        "v1-g1.json", "g1-v99999999999999999999.json"}) {
    CAPTURE(other);
    CHECK_FALSE(SnapshotOfFile(other).has_value());
  }
}

// ---- folders and disks that fail ---------------------------------------------------------------

TEST_CASE("a folder that is not there, or is none, fails the record and names the folder") {
  TempFolder temp;
  std::ofstream(temp.path() + "/file") << "x";
  for (const std::string& folder : {temp.path() + "/none/snapshots", temp.path() + "/file"}) {
    Disk disk(folder);
    const RecordStored stored = disk.Store(MakeRecord(3));
    REQUIRE_FALSE(stored.status.ok());
    CHECK(stored.file == "");
    CHECK(Contains(stored.status.message(), "cannot create " + folder + "/g002-v000000500-"));
    CHECK(Contains(stored.status.message(), "a shared folder"));
    const RecordLoaded loaded = disk.Load(MakeLoad(MakeRecord(3)));
    CHECK(Contains(loaded.status.message(), folder));
  }
}

TEST_CASE("an unwritable folder fails the record, and the next one is stored when it is mended") {
  if (geteuid() == 0) {
    MESSAGE("SKIPPED: root may write anywhere");
    return;
  }
  TempFolder temp;
  Disk disk(temp.path());
  fs::permissions(temp.path(), fs::perms::owner_read | fs::perms::owner_exec);
  const RecordStored stored = disk.Store(MakeRecord(3));
  CHECK(Contains(stored.status.message(), "Permission denied"));
  fs::permissions(temp.path(), fs::perms::owner_all);
  CHECK(disk.Store(MakeRecord(3)).status.ok());
}

TEST_CASE("a disk that fills in mid-file fails the record and leaves no file") {
  TempFolder temp;
  Disk disk(temp.path());
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  // The header fits, and then the first bytes of the tensors do: a short write, then an error.
  const rlimit tight{512, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &tight) == 0);
  const RecordStored stored = disk.Store(MakeRecord(3));
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK(Contains(stored.status.message(), "cannot write " + temp.path() + "/g002-v000000500-"));
  CHECK(NamesIn(temp.path()).empty());
  CHECK(disk.Store(MakeRecord(3)).status.ok());
  CHECK(NamesIn(temp.path()).size() == 1);
}

TEST_CASE("a folder is not made: it would be on this machine alone") {
  TempFolder temp;
  Disk disk(temp.path() + "/snapshots");
  CHECK(Contains(disk.Store(MakeRecord(3)).status.message(), "a shared folder"));
  CHECK(NamesIn(temp.path()).empty());
}

TEST_CASE("another job's files in the folder are not read") {
  TempFolder temp;
  const StoreRequest record = MakeRecord(3);
  REQUIRE(Disk(temp.path()).Store(record).status.ok());
  Disk other(temp.path(), JobId(78), SnapshotStore::kQueuedRequestsMax);
  CHECK(other.Load(MakeLoad(record)).status.code() == StatusCode::kNotFound);
}

TEST_CASE("a queue that is full fails the request at once") {
  TempFolder temp;
  Disk disk(temp.path(), /*queued_requests_max=*/0);
  CHECK(Contains(disk.Store(MakeRecord(3)).status.message(), "snapshot.every"));
  CHECK(Contains(disk.Load(MakeLoad(MakeRecord(3))).status.message(), temp.path()));
}

// ---- files that are not what they claim --------------------------------------------------------

TEST_CASE("a record of another generation, version, size or shard is not taken") {
  TempFolder temp;
  Disk disk(temp.path());
  const StoreRequest record = MakeRecord(3);
  const RecordStored stored = disk.Store(record);
  REQUIRE(stored.status.ok());
  const auto error = [&](auto change) {
    LoadRequest wanted = MakeLoad(record);
    change(wanted);
    const RecordLoaded loaded = disk.Load(wanted);
    CHECK(loaded.parameters == nullptr);
    return loaded.status.message();
  };
  CHECK(Contains(error([](auto& w) { w.snapshot.generation = 1; }), "g001-v000000500-*"));
  CHECK(Contains(error([](auto& w) { w.snapshot.version = Version(499); }), "holds shard 3"));
  CHECK(Contains(error([](auto& w) { w.shard = ShardId(4); }), "holds shard 4"));
  CHECK(Contains(error([](auto& w) { w.parameter_floats += 16; }), "96 floats, expected 112"));
  CHECK(Contains(error([](auto& w) { w.state_floats = 0; }), "shard.3.state has 192 floats"));
  // A file under another snapshot's name is that of its metadata.
  const SnapshotRef other{3, Version(500)};
  fs::copy(temp.path() + "/" + stored.file,
           temp.path() + "/" + SnapshotFileName(other, kProcess, 0));
  CHECK(Contains(error([&](auto& w) { w.snapshot = other; }), "generation is 2 there, expected 3"));
}

TEST_CASE("a changed byte in any place is an error that names the file, or harmless") {
  TempFolder temp;
  Disk disk(temp.path());
  const StoreRequest record = MakeRecord(0);
  const std::string path = temp.path() + "/" + disk.Store(record).file;
  std::ifstream file(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(file)), {});
  int refused_count = 0;
  for (uint32_t i = 0; i < 300; ++i) {
    const PhiloxBlock draw = Philox4x32({i, 0, 0, 0}, {4, 0});
    std::string changed = whole;
    char& byte = changed[draw[0] % changed.size()];
    byte = static_cast<char>(byte ^ (1 << draw[1] % 8));
    std::ofstream(path, std::ios::binary) << changed;
    const RecordLoaded loaded = disk.Load(MakeLoad(record));
    refused_count += !loaded.status.ok();
    CAPTURE(loaded.status.message());
    if (loaded.status.ok()) {
      CHECK(IsEqual(*loaded.parameters, *record.parameters));
      CHECK(IsEqual(*loaded.state, *record.state));
    } else {
      CHECK(Contains(loaded.status.message(), temp.path()));
    }
  }
  CHECK(refused_count > 250);
}

TEST_CASE("a sound copy of a shard is found behind a broken one") {
  TempFolder temp;
  Disk disk(temp.path());
  const StoreRequest record = MakeRecord(3);
  const std::string first = disk.Store(record).file;
  REQUIRE(disk.Store(record).status.ok());
  fs::resize_file(temp.path() + "/" + first, 300);
  CHECK(disk.Load(MakeLoad(record)).status.ok());
}

}  // namespace
}  // namespace pando
