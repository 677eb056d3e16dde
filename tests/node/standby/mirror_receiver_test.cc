#include "node/standby/mirror_receiver.h"

#include <sys/stat.h>

#include "tests/contains.h"
#include "tests/file_size_limit.h"
#include "tests/node/standby/mirror_fixture.h"

namespace pando {
namespace {

constexpr uint64_t kSession = 77;

// A standby, and a test that speaks as its leader.
struct ReceiverFixture {
  explicit ReceiverFixture(bool starts = true) {
    if (starts) Start(kSession);
  }
  Message Start(uint64_t session) { return Ask(MirrorStart{session}); }
  Message Ask(Message message) {
    receiver.OnMessage(Micros(0),
                       {.sender = leader, .receiver = self, .message = std::move(message)});
    receiver.Tick(Micros(0));
    const std::vector<Envelope> answers = wire.Take();
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].sender == self);
    CHECK(answers[0].receiver == leader);
    return answers[0].message;
  }
  MirrorAck Send(MirrorPart part) { return std::get<MirrorAck>(Ask(std::move(part))); }
  MirrorAck SendGrowing(uint64_t part, const std::string& name, uint64_t offset,
                        const std::string& text) {
    return Send({kSession, part, MirrorKind::kGrowing, name, offset, offset + text.size(), "",
                 TextBlob(text)});
  }
  // Sends bytes [offset, offset + count) of a file that has this text.
  MirrorAck SendWhole(uint64_t part, const std::string& name, const std::string& text,
                      uint64_t offset = 0, size_t count = std::string::npos) {
    return Send({kSession, part, MirrorKind::kWhole, name, offset, text.size(), HashText(text),
                 TextBlob(text.substr(offset, count))});
  }

  const PeerId leader{kUnknownNode, Incarnation(5), 0};
  const PeerId self{kSchedulerNode, Incarnation(), 3};
  TempFolder outside;
  MirroredFolder folder;
  MirrorWire wire;
  MirrorReceiver receiver{folder.path(), wire};
};

void CheckAck(const MirrorAck& ack, uint64_t session, uint64_t part, const std::string& failure) {
  CHECK(ack.session == session);
  if (session != 0) CHECK(ack.part == part);
  if (failure.empty()) CHECK(ack.failure == "");
  CHECK_MESSAGE(Contains(ack.failure, failure), ack.failure);
}

TEST_CASE("a whole file gets its name with its last part, and has its folder's access") {
  ReceiverFixture f;
  const std::string text = CountingText(1000);
  chmod(f.folder.path().c_str(), 0750);
  const std::string name = "snapshots/of/a.safetensors";
  CheckAck(f.SendWhole(1, name, text, 0, 600), kSession, 1, "");
  CHECK(!f.folder.Has(name));
  CheckAck(f.SendWhole(2, name, text, 600), kSession, 2, "");
  CHECK(f.folder.Text(name) == text);
  CHECK(!f.folder.Has(name + ".tmp"));
  struct stat info {};
  REQUIRE(stat(f.folder.File("snapshots/of").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0750);
  REQUIRE(stat(f.folder.File(name).c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0640);
  CheckAck(f.SendWhole(3, name, "other"), kSession, 3, "");
  CHECK(f.folder.Text(name) == "other");
  CheckAck(f.SendWhole(4, "empty.json", ""), kSession, 4, "");
  CHECK(f.folder.Has("empty.json"));
}

TEST_CASE("a file that changed on its way gets no name, and the session ends") {
  ReceiverFixture f;
  MirrorPart part{kSession, 1, MirrorKind::kWhole, "a.json",
                  0,        3, HashText("abc"),    TextBlob("abd")};
  CheckAck(f.Send(part), 0, 0, "a.json has changed on its way");
  CHECK(!f.folder.Has("a.json"));
  CheckAck(f.SendWhole(2, "b.json", "b"), 0, 0, "");
}

TEST_CASE("a growing file grows at its end, and begins again at offset 0") {
  ReceiverFixture f;
  CheckAck(f.SendGrowing(1, "metrics.csv", 0, "a,b\n"), kSession, 1, "");
  CheckAck(f.SendGrowing(2, "metrics.csv", 4, "1,2\n"), kSession, 2, "");
  CHECK(f.folder.Text("metrics.csv") == "a,b\n1,2\n");
  CheckAck(f.SendGrowing(3, "metrics.csv", 0, "c\n"), kSession, 3, "");
  CHECK(f.folder.Text("metrics.csv") == "c\n");
  CheckAck(f.SendGrowing(4, "logs/worker-0.log", 0, ""), kSession, 4, "");
  CHECK(f.folder.Has("logs/worker-0.log"));
  CheckAck(f.SendGrowing(5, "metrics.csv", 5, "d\n"), 0, 0,
           "metrics.csv has 2 bytes, and the next part begins at byte 5");
  CHECK(f.folder.Text("metrics.csv") == "c\n");
}

TEST_CASE("a removed file goes, also in the turn in which it came") {
  ReceiverFixture f;
  CheckAck(f.SendWhole(1, "snapshots/a", "a"), kSession, 1, "");
  CheckAck(f.Send({kSession, 2, MirrorKind::kRemoved, "snapshots/a"}), kSession, 2, "");
  CHECK(!f.folder.Has("snapshots/a"));
  CheckAck(f.Send({kSession, 3, MirrorKind::kRemoved, "snapshots/a"}), kSession, 3, "");
  const auto take = [&](MirrorPart part) {
    f.receiver.OnMessage(Micros(0),
                         {.sender = f.leader, .receiver = f.self, .message = std::move(part)});
  };
  take({kSession, 4, MirrorKind::kWhole, "b", 0, 1, HashText("b"), TextBlob("b")});
  take({kSession, 5, MirrorKind::kRemoved, "b"});
  take({kSession, 6, MirrorKind::kWhole, "c", 0, 1, HashText("1"), TextBlob("1")});
  take({kSession, 7, MirrorKind::kWhole, "c", 0, 1, HashText("2"), TextBlob("2")});
  CheckAck(f.Send({kSession, 0}), kSession, 7, "");
  CHECK(!f.folder.Has("b"));
  CHECK(f.folder.Text("c") == "2");
}

TEST_CASE("parts of one turn have one answer, when they are durable") {
  ReceiverFixture f;
  for (uint64_t part = 1; part <= 5; ++part)
    f.receiver.OnMessage(Micros(0),
                         {.sender = f.leader,
                          .receiver = f.self,
                          .message = MirrorPart{kSession, part, MirrorKind::kGrowing, "metrics.csv",
                                                part - 1, part, "", TextBlob("x")}});
  CHECK(f.wire.sent.empty());
  f.receiver.Tick(Micros(0));
  REQUIRE(f.wire.sent.size() == 1);
  CheckAck(std::get<MirrorAck>(f.wire.sent[0].message), kSession, 5, "");
  f.receiver.Tick(Micros(0));
  CHECK(f.wire.sent.size() == 1);
}

TEST_CASE("a repeated part changes nothing, and a part after a gap waits for its turn") {
  ReceiverFixture f;
  CheckAck(f.SendGrowing(2, "metrics.csv", 1, "b"), kSession, 0, "");
  CheckAck(f.SendGrowing(1, "metrics.csv", 0, "a"), kSession, 1, "");
  CheckAck(f.SendGrowing(1, "metrics.csv", 0, "a"), kSession, 1, "");
  CheckAck(f.SendGrowing(2, "metrics.csv", 1, "b"), kSession, 2, "");
  CheckAck(f.SendGrowing(1, "metrics.csv", 0, "a"), kSession, 2, "");
  CheckAck(f.Send({.session = kSession}), kSession, 2, "");
  CHECK(f.folder.Text("metrics.csv") == "ab");
}

TEST_CASE("a part of another session is answered with session 0") {
  ReceiverFixture f(false);
  CheckAck(f.SendWhole(1, "a.json", "a"), 0, 0, "");
  f.Start(kSession);
  CheckAck(f.SendWhole(1, "a.json", "a"), kSession, 1, "");
  CHECK(std::get<MirrorStarted>(f.Start(kSession)).session == kSession);
  CHECK(f.folder.Text("a.json") == "a");  // the same session, asked for again
  CHECK(std::get<MirrorStarted>(f.Start(78)).session == 78);
  CheckAck(f.SendWhole(2, "a.json", "a"), 0, 0, "");
  CheckAck(f.Send({.session = kSession}), 0, 0, "");
}

TEST_CASE("a session removes files of an earlier one, and nothing else") {
  ReceiverFixture f(false);
  const std::vector<std::string> own{".lock",          ".etcd/member",    "keys/admin.key",
                                     "endpoint",       "keys/x.tmp",      "scheduler.db",
                                     "files-endpoint", "scheduler.db-wal"};
  const std::vector<std::string> earlier{"metrics.csv", "logs/a.log", "summary.json.tmp",
                                         "snapshots/deep/er/a.x", "job.toml"};
  for (const std::string& name : own) f.folder.Append(name, name);
  for (const std::string& name : earlier) f.folder.Append(name, name);
  std::filesystem::create_directories(f.folder.File("empty/er"));
  f.outside.Write("treasure", {1, 2, 3});
  std::filesystem::create_directory_symlink(f.outside.path(), f.folder.File("linked"));
  std::filesystem::create_symlink(f.outside.File("treasure"), f.folder.File("treasure"));
  f.Start(kSession);
  for (const std::string& name : own) CHECK_MESSAGE(f.folder.Text(name) == name, name);
  CHECK(f.folder.Content().empty());
  for (const char* name : {"logs", "snapshots", "empty", "summary.json.tmp"})
    CHECK_MESSAGE(!f.folder.Has(name), name);
  CHECK(f.folder.Has("linked"));
  CHECK(f.folder.Has("treasure"));
  CHECK(std::filesystem::file_size(f.outside.File("treasure")) == 3);
}

TEST_CASE("hostile names are refused, and change nothing") {
  ReceiverFixture f;
  f.folder.Append("keys/admin.key", "secret");
  const std::string outside = "../" + std::filesystem::path(f.outside.path()).filename().string();
  const std::vector<std::string> names{"",
                                       "/etc/passwd",
                                       "..",
                                       "../a",
                                       outside + "/a",
                                       "a/../../b",
                                       "logs/..",
                                       "logs/./a",
                                       "logs//a",
                                       "logs/",
                                       ".",
                                       ".lock",
                                       ".etcd",
                                       "logs/.hidden",
                                       "keys",
                                       "keys/admin.key",
                                       "scheduler.db",
                                       "scheduler.db-wal",
                                       "endpoint",
                                       "files-endpoint",
                                       "a.tmp",
                                       std::string("a\0b", 3),
                                       "a\nb",
                                       std::string(5000, 'a')};
  for (const std::string& name : names)
    for (const MirrorKind kind : {MirrorKind::kWhole, MirrorKind::kGrowing, MirrorKind::kRemoved})
      CheckAck(f.Send({kSession, 1, kind, name, 0, 1, HashText("x"), TextBlob("x")}), kSession, 0,
               "a standby takes no file");
  CHECK(f.folder.Content().empty());
  CHECK(f.folder.Text("keys/admin.key") == "secret");
  CHECK(std::filesystem::is_empty(f.outside.path()));
  CheckAck(f.SendWhole(1, std::string(300, 'a'), "x"), kSession, 0, "File name too long");
  CheckAck(f.Send({kSession, 1, MirrorKind::kWhole, "a", 5, 4, "", Blob()}), 0, 0,
           "beyond its end");
}

TEST_CASE("links, folders and pipes in a standby's folder are not followed") {
  ReceiverFixture f;
  f.outside.Write("a", {});
  std::filesystem::create_directory_symlink(f.outside.path(), f.folder.File("snapshots"));
  std::filesystem::create_symlink(f.outside.File("a"), f.folder.File("metrics.csv"));
  std::filesystem::create_symlink(f.outside.File("a"), f.folder.File("job.toml"));
  std::filesystem::create_directory(f.folder.File("summary.json"));
  REQUIRE(mkfifo(f.folder.File("events.jsonl").c_str(), 0600) == 0);
  CheckAck(f.SendWhole(1, "snapshots/b", "x"), kSession, 0, "snapshots is a link");
  CheckAck(f.Send({kSession, 1, MirrorKind::kRemoved, "snapshots/a"}), kSession, 0, "is a link");
  CheckAck(f.SendGrowing(1, "metrics.csv", 0, "x"), kSession, 0, "metrics.csv");
  CheckAck(f.SendGrowing(1, "events.jsonl", 0, "x"), kSession, 0, "events.jsonl");
  CheckAck(f.Send({kSession, 1, MirrorKind::kRemoved, "metrics.csv"}), kSession, 1, "");
  CHECK(f.folder.Has("metrics.csv"));
  CheckAck(f.SendWhole(2, "job.toml", "x"), kSession, 2, "");  // it replaces the link itself
  CHECK(
      std::filesystem::is_regular_file(std::filesystem::symlink_status(f.folder.File("job.toml"))));
  CHECK(std::filesystem::file_size(f.outside.File("a")) == 0);
  CheckAck(f.SendWhole(3, "summary.json", "x"), 0, 0, "summary.json: Is a directory");
}

TEST_CASE("a full disk is an answer, and the part can come again") {
  ReceiverFixture f;
  const std::string text = CountingText(100'000);
  CheckAck(f.SendGrowing(1, "metrics.csv", 0, "begin\n"), kSession, 1, "");
  CheckAck(f.SendWhole(2, "a", text, 0, 30'000), kSession, 2, "");
  {
    const FileSizeLimit full(50'000);
    CheckAck(f.SendWhole(3, "a", text, 30'000, 60'000), kSession, 2, "cannot write");
    CheckAck(f.SendWhole(3, "a", text, 30'000, 60'000), kSession, 2, "cannot write");
  }
  CheckAck(f.SendWhole(3, "a", text, 30'000, 60'000), kSession, 3, "");
  CheckAck(f.SendWhole(4, "a", text, 90'000), kSession, 4, "");
  CHECK(f.folder.Text("a") == text);
  {
    const FileSizeLimit full(50'000);
    CheckAck(f.SendGrowing(5, "metrics.csv", 6, text), kSession, 4, "cannot write");
  }
  CHECK(f.folder.Text("metrics.csv") == "begin\n");
  CheckAck(f.SendGrowing(5, "metrics.csv", 6, text), kSession, 5, "");
  CHECK(f.folder.Text("metrics.csv") == "begin\n" + text);
}

TEST_CASE("a failure of one part holds up the later ones of the turn") {
  ReceiverFixture f;
  for (uint64_t part = 1; part <= 3; ++part)
    f.receiver.OnMessage(Micros(0), {.sender = f.leader,
                                     .receiver = f.self,
                                     .message = MirrorPart{kSession, part, MirrorKind::kRemoved,
                                                           part == 2 ? "keys" : "a"}});
  f.receiver.Tick(Micros(0));
  REQUIRE(f.wire.sent.size() == 1);
  CheckAck(std::get<MirrorAck>(f.wire.sent[0].message), kSession, 1, "takes no file 'keys'");
}

}  // namespace
}  // namespace pando
