// Files on their way between a node and the scheduler's store (P45), message by message.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/hash.h"
#include "common/hash128.h"
#include "common/philox.h"
#include "files/file_client.h"
#include "files/file_store.h"
#include "files/folder_disk.h"
#include "tests/contains.h"
#include "tests/file_size_limit.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr JobId kJob{7};
constexpr Incarnation kLife{0xabc};
constexpr PeerId kServer{NodeId(3), kLife, 240};
constexpr PeerId kStore{kSchedulerNode, Incarnation(1), kFilesLane};
constexpr FileClient::Sizes kSizes{.part = 100, .window = 300};
const std::string kName = "snapshots/g000-v000000005-0000000000000abc-0.safetensors";

std::vector<std::byte> MakeBytes(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 % 251);
  return bytes;
}

struct Wire : Outbox {
  void Send(Envelope envelope) override { sent.push_back(std::move(envelope)); }
  std::deque<Envelope> sent;
};

// A server's client and a store over a run folder. Messages go when `Deliver` is called.
struct Fixture {
  TempFolder temp;
  FolderDisk disk{temp.path()};
  Wire wire;
  std::unique_ptr<FileStore> store;
  FileClient client{kServer, kJob, wire, kSizes};
  Micros now{0};

  Fixture() {
    fs::create_directory(temp.path() + "/snapshots");
    StartStore();
  }
  // Another life of the scheduler: it has forgotten what it had not finished.
  void StartStore() {
    store = std::make_unique<FileStore>(kStore, kJob, disk, wire);
    store->Admit(kLife, Role::kServer);
  }
  // All that is under way, and what it causes, except what `is_lost` says.
  void Deliver(const std::function<bool(const Envelope&)>& is_lost = {}) {
    while (!wire.sent.empty()) {
      const Envelope envelope = wire.sent.front();
      wire.sent.pop_front();
      if (is_lost && is_lost(envelope)) continue;
      if (envelope.sender == kServer) store->OnMessage(now, envelope);
      if (envelope.receiver == kServer) client.OnMessage(now, envelope);
      client.Tick(now);
    }
  }
  // Turns of the loop without an answer: what is sent meanwhile, in bytes.
  uint64_t CountSilent(Micros time) {
    uint64_t bytes = 0;
    for (const Micros end = now + time; now < end; now += std::chrono::milliseconds(250)) {
      client.Tick(now);
      for (const Envelope& envelope : wire.sent)
        bytes += std::get<StoreFile>(envelope.message).payload.size_bytes();
      wire.sent.clear();
    }
    return bytes;
  }
  // Until the request is done; all that waits for a repetition gets it.
  void Finish(const std::function<bool(const Envelope&)>& is_lost = {}) {
    for (int turn = 0; turn < 1000 && !client.is_done(); ++turn) {
      client.Tick(now);
      Deliver(is_lost);
      if (!client.is_done()) now = client.NextDeadline();
    }
    REQUIRE(client.is_done());
  }
  FilePart Ask(const std::string& name, uint64_t offset = 0, uint64_t size = 10) {
    wire.sent.clear();
    store->OnMessage(now,
                     {.job = kJob, .sender = kServer, .message = ReadFile{name, offset, size}});
    REQUIRE(wire.sent.size() == 1);
    return std::get<FilePart>(wire.sent[0].message);
  }
  StoreFileAck Offer(StoreFile part, PeerId sender = kServer) {
    wire.sent.clear();
    store->OnMessage(now, {.job = kJob, .sender = sender, .message = std::move(part)});
    REQUIRE(wire.sent.size() == 1);
    return std::get<StoreFileAck>(wire.sent[0].message);
  }
  std::vector<std::byte> ReadBack(const std::string& name) {
    client.Read(name, 0, {});
    Finish();
    REQUIRE(client.status().ok());
    std::vector<std::byte> bytes(client.file_size());
    client.Read(name, 0, bytes);
    Finish();
    REQUIRE_MESSAGE(client.status().ok(), client.status().message());
    return bytes;
  }
};

StoreFile Part(const std::vector<std::byte>& bytes, uint64_t offset, uint64_t count,
               const std::string& name = kName) {
  Hash128 hash;
  hash.Update(bytes);
  const auto copy = std::make_shared<std::vector<std::byte>>(bytes);
  return {name, offset, bytes.size(), hash.Hex(),
          Blob(std::span<const std::byte>(*copy).subspan(offset, count), copy)};
}

TEST_CASE("a file of any size, in any pieces, is stored and read bit for bit") {
  for (const size_t size : {1u, 99u, 100u, 101u, 300u, 1234u}) {
    Fixture f;
    const std::vector<std::byte> bytes = MakeBytes(size);
    const std::span<const std::byte> all = bytes;
    f.client.Store(kName, {all.first(size / 3), {}, all.subspan(size / 3)});
    f.Finish();
    REQUIRE_MESSAGE(f.client.status().ok(), f.client.status().message());
    CHECK(fs::file_size(f.temp.path() + "/" + kName) == size);
    CHECK(f.ReadBack(kName) == bytes);
  }
}

TEST_CASE("a range of a file is read alone, and one beyond its end is damage") {
  Fixture f;
  const std::vector<std::byte> bytes = MakeBytes(1000);
  f.client.Store(kName, {bytes});
  f.Finish();
  std::vector<std::byte> middle(555);
  f.client.Read(kName, 321, middle);
  f.Finish();
  CHECK(std::ranges::equal(middle, std::span(bytes).subspan(321, 555)));
  f.client.Read(kName, 900, middle);
  f.Finish();
  CHECK(f.client.status().code() == StatusCode::kCorrupt);
  CHECK(Contains(f.client.status().message(), "ends at byte 1000"));
}

TEST_CASE("lost messages of any kind cost time alone") {
  const std::vector<std::byte> bytes = MakeBytes(2000);
  for (uint32_t lost_share = 2; lost_share <= 5; ++lost_share) {
    Fixture f;
    uint32_t count = 0;
    const auto is_lost = [&](const Envelope&) {
      return Philox4x32({++count, 0, 0, 0}, {lost_share, 0})[0] % lost_share == 0;
    };
    f.client.Store(kName, {bytes});
    f.Finish(is_lost);
    REQUIRE(f.client.status().ok());
    std::vector<std::byte> back(bytes.size());
    f.client.Read(kName, 0, back);
    f.Finish(is_lost);
    CHECK(back == bytes);
    f.client.List("snapshots/g000-v000000005-");
    f.Finish(is_lost);
    CHECK(f.client.names() == std::vector{kName});
  }
}

TEST_CASE("a store that dies in mid-file gets the file again from its beginning") {
  Fixture f;
  const std::vector<std::byte> bytes = MakeBytes(1000);
  f.client.Store(kName, {bytes});
  f.client.Tick(f.now);
  int parts = 0;
  f.Deliver([&](const Envelope& envelope) {  // five arrive
    return std::holds_alternative<StoreFile>(envelope.message) && ++parts > 5;
  });
  CHECK_FALSE(fs::exists(f.temp.path() + "/" + kName));
  f.StartStore();
  f.Finish();
  CHECK(f.client.status().ok());
  CHECK(f.ReadBack(kName) == bytes);
}

TEST_CASE("while the store is away one part is repeated, ever more rarely") {
  Fixture f;
  const std::vector<std::byte> bytes = MakeBytes(1000);
  f.client.Store(kName, {bytes});
  CHECK(f.CountSilent(std::chrono::milliseconds(250)) == kSizes.window);
  CHECK(f.CountSilent(std::chrono::seconds(10)) <= 6 * kSizes.part);
  CHECK(f.CountSilent(std::chrono::seconds(60)) <= 16 * kSizes.part);
  f.Finish();
  CHECK(f.client.status().ok());
}

TEST_CASE("a lost answer to the last part is given again, and the file stays as it is") {
  Fixture f;
  const std::vector<std::byte> bytes = MakeBytes(250);
  f.client.Store(kName, {bytes});
  f.client.Tick(f.now);
  f.Deliver([](const Envelope& envelope) {
    const auto* ack = std::get_if<StoreFileAck>(&envelope.message);
    return ack != nullptr && ack->is_stored;
  });
  CHECK_FALSE(f.client.is_done());
  CHECK(fs::exists(f.temp.path() + "/" + kName));
  f.Finish();
  CHECK(f.client.status().ok());
}

TEST_CASE("parts in another order, twice or late change nothing") {
  Fixture f;
  const std::vector<std::byte> bytes = MakeBytes(300);
  CHECK(f.Offer(Part(bytes, 100, 100)).offset == 0);
  CHECK(f.Offer(Part(bytes, 0, 100)).offset == 100);
  CHECK(f.Offer(Part(bytes, 0, 100)).offset == 100);
  CHECK(f.Offer(Part(bytes, 200, 100)).offset == 100);
  CHECK(f.Offer(Part(bytes, 100, 100)).offset == 200);
  CHECK(f.Offer(Part(bytes, 200, 100)).is_stored);
  CHECK(f.Offer(Part(bytes, 100, 100)).is_stored);
}

TEST_CASE("a file whose bytes are not those of its hash gets no name") {
  Fixture f;
  std::vector<std::byte> bytes = MakeBytes(200);
  StoreFile first = Part(bytes, 0, 100);
  bytes[150] ^= std::byte{1};
  StoreFile second = Part(bytes, 100, 100);
  second.hash = first.hash;
  CHECK(f.Offer(first).offset == 100);
  const StoreFileAck ack = f.Offer(second);
  CHECK_FALSE(ack.is_stored);
  CHECK(Contains(ack.failure, "has changed on its way"));
  CHECK_FALSE(fs::exists(f.temp.path() + "/" + kName));
  second = Part(bytes, 100, 100);
  second.payload = Blob();
  f.Offer(Part(bytes, 0, 100));
  CHECK(Contains(f.Offer(second).failure, "is empty or goes beyond its end"));
}

TEST_CASE("another file of the same process takes the place of one that it gave up") {
  Fixture f;
  const std::vector<std::byte> bytes = MakeBytes(200);
  const std::string other = "snapshots/g000-v000000006-0000000000000abc-1.safetensors";
  CHECK(f.Offer(Part(bytes, 0, 100)).offset == 100);
  CHECK(f.Offer(Part(bytes, 0, 100, other)).offset == 100);
  CHECK(f.Offer(Part(bytes, 100, 100, other)).is_stored);
  CHECK(f.Offer(Part(bytes, 100, 100)).offset == 0);
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(f.temp.path() + "/snapshots"))
    left.insert(entry.path().filename());
  CHECK(left == std::set{other.substr(10)});
}

TEST_CASE("a disk that is full is an answer, and nothing is left") {
  Fixture f;
  const std::vector<std::byte> bytes = MakeBytes(5000);
  f.client.Store(kName, {bytes});
  {
    const FileSizeLimit limit(1000);
    f.Finish();
  }
  CHECK(f.client.status().code() == StatusCode::kUnavailable);
  CHECK(Contains(f.client.status().message(), "cannot write " + f.temp.path()));
  CHECK(fs::is_empty(f.temp.path() + "/snapshots"));
}

TEST_CASE("too many files under way wait until one has been silent for a minute") {
  Fixture f;
  const std::vector<std::byte> bytes = MakeBytes(200);
  const auto offer = [&](uint64_t life) {
    const PeerId sender{NodeId(9), Incarnation(life), 240};
    f.store->Admit(sender.incarnation, Role::kServer);
    const std::string name = "snapshots/g000-v000000005-" + HexText(life) + "-0.safetensors";
    return f.Offer(Part(bytes, 0, 100, name), sender).offset;
  };
  for (uint64_t life = 1; life <= FileStore::kDraftsMax; ++life) REQUIRE(offer(life) == 100);
  CHECK(offer(5000) == 0);
  f.now = FileStore::kDraftPatience + Micros(1);
  CHECK(offer(5000) == 100);
}

TEST_CASE("the files of one life keep no other's away, and have a bound in bytes") {
  Fixture f;
  const std::string other = "snapshots/g000-v000000005-0000000000000def-0.safetensors";
  f.store = std::make_unique<FileStore>(kStore, kJob, f.disk, f.wire, 1000);
  f.store->Admit(kLife, Role::kServer);
  f.store->Admit(Incarnation(0xdef), Role::kServer);
  const std::vector<std::byte> bytes = MakeBytes(200);
  const auto begin = [&](uint16_t lane) {
    const std::string name =
        fmt::format("snapshots/g000-v000000005-{}-{}.safetensors", HexText(kLife.value()), lane);
    return f.Offer(Part(bytes, 0, 20, name), {NodeId(3), kLife, lane});
  };
  uint64_t begun = 0;
  std::string failure;
  for (uint16_t lane = 0; lane < 300; ++lane) {
    const StoreFileAck ack = begin(lane);
    begun += ack.offset > 0;
    if (!ack.failure.empty()) failure = ack.failure;
  }
  CHECK(begun == 5);  // of 200 bytes
  f.StartStore();
  begun = 0;
  for (uint16_t lane = 0; lane < 300; ++lane) begun += begin(lane).offset > 0;
  CHECK(begun == FileStore::kDraftsPerLifeMax);
  f.store->Admit(Incarnation(0xdef), Role::kServer);
  CHECK(Contains(failure, "more than 1000, the most that a process of this job needs"));
  CHECK(f.Offer(Part(bytes, 0, 200, other), {NodeId(4), Incarnation(0xdef), 0}).is_stored);
  // Files on the disk count, and removed ones do not.
  f.StartStore();
  f.store = std::make_unique<FileStore>(kStore, kJob, f.disk, f.wire, 1000);
  f.store->Admit(kLife, Role::kServer);
  const std::vector<std::byte> large = MakeBytes(900);
  CHECK(f.Offer(Part(large, 0, 900)).is_stored);
  CHECK_FALSE(begin(1).failure.empty());
  fs::remove(f.temp.path() + "/" + kName);
  CHECK(begin(1).failure.empty());
}

TEST_CASE("no process but the one that a file names stores it, and no other file is given") {
  CHECK(MayStoreFile(kName, kLife, Role::kServer));
  CHECK_FALSE(MayStoreFile(kName, Incarnation(0xabd), Role::kServer));
  CHECK_FALSE(MayStoreFile(kName, kLife, Role::kWorker));
  CHECK(MayStoreFile("timeline/worker-1-0000000000000abc.bin", kLife, Role::kWorker));
  CHECK(MayStoreFile("group/00aa-bb", kLife, Role::kWorker));
  for (const char* name : {"job.toml", "scheduler.db", "final.safetensors", "init.safetensors",
                           "snapshots/../x-0000000000000abc-0.safetensors",
                           "snapshots//x-0000000000000abc-0.safetensors",
                           "snapshots/.x-0000000000000abc-0.safetensors", "snapshots/", "group/",
                           "group/a/b", "group/..", "/etc/passwd", "keys/admin", ""})
    for (const Role role : {Role::kServer, Role::kWorker})
      CHECK_FALSE_MESSAGE(MayStoreFile(name, kLife, role), name);
  for (const char* name : {"job.toml", "scheduler.db", "keys/member.key", "snapshots/../job.toml",
                           "snapshots/g000-v000000005.json", "../x", "", "timeline/a"})
    CHECK_FALSE_MESSAGE(MayReadFile(name), name);
  Fixture f;
  std::ofstream(f.temp.path() + "/job.toml") << "secret";
  CHECK(Contains(f.Ask("job.toml").failure, "gives no file"));
  CHECK(f.Ask("job.toml").payload.size_bytes() == 0);
  CHECK(f.Ask("init.safetensors").is_missing);
  f.client.List("");
  f.Finish();
  CHECK(f.client.names().empty());
}

TEST_CASE("a process that is no member, or of another job, is not answered") {
  Fixture f;
  PeerId stranger = kServer;
  stranger.incarnation = Incarnation(99);
  f.store->OnMessage(f.now,
                     {.job = kJob, .sender = stranger, .message = ListFiles{"snapshots/", ""}});
  f.store->OnMessage(f.now,
                     {.job = JobId(8), .sender = kServer, .message = ListFiles{"snapshots/", ""}});
  CHECK(f.wire.sent.empty());
}

TEST_CASE("of a complete snapshot only the files that its manifest names are given to read") {
  Fixture f;
  const std::string snapshot = "snapshots/g000-v000000005";
  for (int i = 0; i < 1100; ++i)  // another server's, more than an answer holds
    std::ofstream(f.temp.path() + "/" + snapshot + fmt::format("-0000-{:04}.safetensors", i));
  std::ofstream(f.temp.path() + "/" + kName);
  const auto list = [&] {
    f.wire.sent.clear();
    f.store->OnMessage(f.now,
                       {.job = kJob, .sender = kServer, .message = ListFiles{snapshot + "-", ""}});
    return std::get<FileNames>(f.wire.sent.at(0).message).names;
  };
  CHECK(list().size() == kFileNamesMax);
  std::ofstream(f.temp.path() + "/" + snapshot + ".json")
      << R"({"shards": [{"hash": "1", "file": ")" + kName.substr(10) + R"("}]})";
  CHECK(list() == std::vector{kName});
}

TEST_CASE("more names than an answer holds come in several") {
  Fixture f;
  std::vector<std::string> names;
  for (int i = 0; i < 2500; ++i) {
    names.push_back("snapshots/g000-v000000005-" + std::to_string(10'000 + i) + "-0.safetensors");
    std::ofstream(f.temp.path() + "/" + names.back());
  }
  f.client.List("snapshots/g000-v000000005-");
  f.Finish();
  CHECK(f.client.names() == names);
  f.client.List("snapshots/g000-v000000006-");
  f.Finish();
  CHECK(f.client.names().empty());
}

}  // namespace
}  // namespace pando
