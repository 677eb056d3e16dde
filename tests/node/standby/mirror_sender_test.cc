// A leader's scan and sender, and a standby, over a wire that the test holds.
#include "node/standby/mirror_sender.h"

#include <sys/stat.h>

#include <random>
#include <set>

#include "common/clock.h"
#include "node/standby/mirror_receiver.h"
#include "proto/codec.h"
#include "tests/contains.h"
#include "tests/file_size_limit.h"
#include "tests/node/standby/mirror_fixture.h"

namespace pando {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct SenderFixture {
  // Looks at the leader's folder, as Mirror does. Returns the mark.
  uint64_t Look() {
    std::vector<MirrorChange> changes;
    const Status looked = scan.Look(now, &changes);
    REQUIRE_MESSAGE(looked.ok(), looked.message());
    change_count += changes.size();
    sender.Plan(changes, ++mark);
    return mark;
  }
  void ToStandby() {
    for (const Envelope& envelope : to_standby.Take()) {
      const Result<Envelope> decoded = Decode(Encode(envelope));
      REQUIRE(decoded.ok());
      receiver->OnMessage(now, *decoded);
    }
    receiver->Tick(now);
  }
  void ToLeader() {
    for (const Envelope& envelope : to_leader.Take()) OnAnswer(envelope.message);
  }
  void OnAnswer(const Message& answer) {
    if (const auto* ack = std::get_if<MirrorAck>(&answer)) sender.OnAck(now, *ack);
    const auto* started = std::get_if<MirrorStarted>(&answer);
    if (started != nullptr && sender.OnStarted(now, *started)) sender.Plan(scan.All(), mark);
  }
  // Lets messages through until there are none. No time passes.
  void Settle() {
    do {
      sender.Tick(now);
      ToStandby();
      ToLeader();
      sender.Tick(now);
    } while (!to_standby.sent.empty());
  }
  void Pass(Micros time) {
    now += time;
    Look();
    Settle();
  }
  void Restart() { receiver.emplace(standby.path(), to_leader); }
  void CheckEqual() const {
    CHECK(standby.Content() == leader.Content());
    CHECK(sender.reached() == mark);
  }

  MirroredFolder leader, standby;
  Micros now = seconds(1000);
  MirrorWire to_standby, to_leader;
  std::vector<std::string> warnings;
  MirrorScan scan{leader.path()};
  MirrorSender sender{
      {.run_dir = leader.path(),
       .self = {kUnknownNode, Incarnation(5), 0},
       .standby = {kSchedulerNode, Incarnation(), 2},
       .term = 7,
       .outbox = to_standby,
       .on_warning = [this](const std::string& text) { warnings.push_back(text); }}};
  std::optional<MirrorReceiver> receiver{std::in_place, standby.path(), to_leader};
  uint64_t mark = 0;
  size_t change_count = 0;
};

TEST_CASE("a standby gets the whole folder, and then what changes") {
  SenderFixture f;
  f.standby.Append("summary.json", "of an earlier run");
  f.leader.Replace("job.toml", "[job]");
  f.leader.Replace("init.safetensors", CountingText(3'000'001));
  f.leader.Append("metrics.csv", "step,loss\n");
  f.leader.Append("logs/scheduler.log", CountingText(700'000, 1));
  f.leader.Append("events.out.tfevents.1", "");
  f.leader.Replace("snapshots/g000/a", "a");
  f.Look();
  CHECK(f.sender.reached() == 0);
  f.Settle();
  f.CheckEqual();
  f.leader.Append("metrics.csv", "1,0.5\n");
  f.leader.Replace("job.toml", "[JOB]");  // as long as before
  f.leader.Remove("snapshots/g000/a");
  f.leader.Replace("snapshots/g001/b", "b");
  f.leader.Append("timeline-notes", "x");
  f.Pass(milliseconds(20));
  f.CheckEqual();
  std::filesystem::remove_all(f.leader.File("snapshots"));
  f.Pass(milliseconds(20));
  f.CheckEqual();
  const size_t change_count = f.change_count;
  f.Pass(milliseconds(20));
  f.Pass(seconds(3));
  CHECK(f.change_count == change_count);
  f.CheckEqual();
}

TEST_CASE("a file that was cut or replaced comes again") {
  SenderFixture f;
  f.leader.Append("metrics.csv", "step,loss\n1,2\n3,");
  f.leader.Append("logs/a.log", "before");
  f.Pass(milliseconds(20));
  std::filesystem::resize_file(f.leader.File("metrics.csv"), 14);
  f.leader.Replace("logs/a.log", "before, replaced");
  f.Pass(milliseconds(20));
  f.CheckEqual();
  f.leader.Append("metrics.csv", "3,4\n");
  f.Pass(milliseconds(20));
  f.CheckEqual();
}

TEST_CASE("a file that changes after the look is sent as it then is") {
  SenderFixture f;
  f.Pass(milliseconds(20));
  f.leader.Append("metrics.csv", "begin,");
  f.leader.Append("logs/a.log", "one");
  f.leader.Replace("snapshots/a", CountingText(900'000));
  f.leader.Replace("snapshots/b", "b");
  f.Look();
  f.leader.Remove("snapshots/b");
  f.leader.Replace("logs/a.log", "another file");
  std::filesystem::resize_file(f.leader.File("metrics.csv"), 3);
  f.Settle();
  CHECK(f.standby.Content() == f.leader.Content());
  f.Pass(milliseconds(20));
  f.CheckEqual();
  CHECK(f.warnings.empty());
}

TEST_CASE("changes of a file that waits become one, in one session") {
  SenderFixture f;
  f.leader.Append("metrics.csv", "step,loss\n");
  f.leader.Append("logs/a.log", "before");
  f.leader.Replace("snapshots/a", "a");
  f.Pass(milliseconds(20));
  for (const char* row : {"1,0.5\n", "2,0.25\n", "3,0.125\n"}) {
    f.leader.Append("metrics.csv", row);
    f.leader.Append("logs/a.log", row);
    f.leader.Replace("snapshots/a", row);
    f.Look();
  }
  f.leader.Replace("logs/a.log", "a new file");
  f.leader.Remove("snapshots/a");
  f.Look();
  f.sender.Tick(f.now);
  CHECK(f.to_standby.sent.size() == 3);
  f.Settle();
  f.CheckEqual();
  CHECK(f.warnings.empty());
}

TEST_CASE("a file below timeline/ is sent when it has rested") {
  SenderFixture f;
  f.leader.Append("timeline/worker-0.bin", "spans");
  f.Pass(milliseconds(20));
  CHECK(f.sender.reached() == f.mark);
  CHECK(f.standby.Content().empty());
  f.Pass(seconds(4));
  f.leader.Append("timeline/worker-0.bin", " and more");
  f.Pass(seconds(4));
  CHECK(f.standby.Content().empty());
  f.Pass(seconds(5));
  f.CheckEqual();
  CHECK(f.standby.Text("timeline/worker-0.bin") == "spans and more");
}

TEST_CASE("what belongs to the leader alone is not sent") {
  SenderFixture f;
  const MirroredFolder outside;
  for (const char* name : {".lock", "keys/admin.key", "scheduler.db", "scheduler.db-wal",
                           "endpoint", "files-endpoint", "summary.json.tmp", ".etcd/data", "a\nb"})
    f.leader.Append(name, name);
  outside.Append("secret", "x");
  std::filesystem::create_directory_symlink(outside.path(), f.leader.File("snapshots"));
  std::filesystem::create_symlink(outside.File("secret"), f.leader.File("metrics.csv"));
  REQUIRE(mkfifo(f.leader.File("events.jsonl").c_str(), 0600) == 0);
  f.Pass(milliseconds(20));
  CHECK(f.sender.reached() == f.mark);
  CHECK(std::filesystem::is_empty(f.standby.path()));
}

TEST_CASE("a folder that cannot be read is an error, and no removal") {
  SenderFixture f;
  f.leader.Append("metrics.csv", "row\n");
  f.Pass(milliseconds(20));
  const std::string aside = f.leader.path() + "-aside";
  std::filesystem::rename(f.leader.path(), aside);
  std::vector<MirrorChange> changes;
  CHECK(!f.scan.Look(f.now + seconds(5), &changes).ok());
  CHECK(changes.empty());
  std::filesystem::rename(aside, f.leader.path());
  f.Pass(seconds(6));
  f.CheckEqual();
}

TEST_CASE("at most 4 MiB are unanswered, and one part after a silence") {
  SenderFixture f;
  f.leader.Replace("a", CountingText(9'000'000));
  for (int i = 0; i < 200; ++i) f.leader.Replace("b/" + std::to_string(i), "b");
  f.sender.Tick(f.now);
  f.ToStandby();
  f.Look();
  f.ToLeader();
  f.sender.Tick(f.now);
  CHECK(f.to_standby.Take().size() == 16);
  Micros wait = MirrorSender::kRepeat;
  for (int i = 0; i < 5; ++i) {
    CHECK(f.sender.NextDeadline() == f.now + wait);
    f.now += wait - Micros(1);
    f.sender.Tick(f.now);
    CHECK(f.to_standby.sent.empty());
    f.now += Micros(1);
    f.sender.Tick(f.now);
    REQUIRE(f.to_standby.sent.size() == 1);
    if (i == 4) break;
    CHECK(std::get<MirrorPart>(f.to_standby.Take()[0].message).part == 1);
    wait = std::min(2 * wait, MirrorSender::kRepeatMax);
  }
  f.Settle();
  f.CheckEqual();
  CHECK(f.standby.Content().size() == 201);
}

TEST_CASE("many small files are at most 64 parts") {
  SenderFixture f;
  for (int i = 0; i < 200; ++i) f.leader.Replace("b/" + std::to_string(i), "b");
  f.sender.Tick(f.now);
  f.ToStandby();
  f.Look();
  f.ToLeader();
  f.sender.Tick(f.now);
  CHECK(f.to_standby.sent.size() == MirrorSender::kPartsMax);
}

TEST_CASE("a standby that is away is asked for, and one that restarts gets everything again") {
  SenderFixture f;
  f.leader.Append("metrics.csv", "row\n");
  f.Look();
  for (const int wait_ms : {0, 500, 1000, 2000, 4000, 4000}) {
    f.now += milliseconds(wait_ms);
    f.sender.Tick(f.now);
    REQUIRE(f.to_standby.sent.size() == 1);
    CHECK(std::holds_alternative<MirrorStart>(f.to_standby.Take()[0].message));
    CHECK(!f.sender.heard_at());
  }
  f.Pass(seconds(4));
  f.CheckEqual();
  f.Pass(seconds(1));
  CHECK(f.sender.heard_at() == f.now);  // an idle standby is asked, too
  f.Restart();
  f.standby.Append("metrics.csv", "row that only the standby has\n");
  f.Pass(seconds(1));
  CHECK(f.sender.reached() == 0);
  f.Pass(seconds(1));
  f.CheckEqual();
}

TEST_CASE("a second leader begins again, in the middle of the first one's file") {
  SenderFixture f;
  f.leader.Replace("a", CountingText(9'000'000));
  f.Look();
  f.sender.Tick(f.now);
  f.ToStandby();
  f.ToLeader();
  f.sender.Tick(f.now);
  f.ToStandby();
  CHECK(f.standby.Has("a.tmp"));
  MirroredFolder folder;
  folder.Append("metrics.csv", "row\n");
  MirrorScan scan{folder.path()};
  MirrorWire wire;
  MirrorSender second{{.run_dir = folder.path(), .term = 7, .outbox = wire}};
  std::vector<MirrorChange> changes;
  REQUIRE(scan.Look(f.now, &changes).ok());
  f.to_leader.Take();
  while (second.reached() == 0) {
    second.Tick(f.now);
    for (const Envelope& envelope : wire.Take()) f.receiver->OnMessage(f.now, envelope);
    f.receiver->Tick(f.now);
    for (const Envelope& answer : f.to_leader.Take()) {
      if (const auto* ack = std::get_if<MirrorAck>(&answer.message)) second.OnAck(f.now, *ack);
      const auto* started = std::get_if<MirrorStarted>(&answer.message);
      if (started != nullptr && second.OnStarted(f.now, *started)) second.Plan(scan.All(), 1);
    }
  }
  CHECK(f.standby.Content() == folder.Content());
  CHECK(!f.standby.Has("a.tmp"));
}

TEST_CASE("a standby's full disk is a warning, and it catches up later") {
  SenderFixture f;
  f.Pass(milliseconds(20));
  f.leader.Append("metrics.csv", "row\n");
  f.leader.Replace("a", CountingText(600'000));
  const uint64_t mark = f.Look();
  {
    const FileSizeLimit full(300'000);
    f.Settle();
    f.Pass(seconds(1));
    f.Pass(seconds(5));
    CHECK(f.sender.reached() < mark);
    CHECK(f.sender.heard_at() == f.now);
    REQUIRE(f.warnings.size() == 1);
    CHECK(Contains(f.warnings[0], "a standby's run folder is not up to date: cannot write"));
  }
  f.Pass(seconds(5));
  f.CheckEqual();
}

// ---- a wire that loses and repeats messages
// ------------------------------------------------------

// The files that the leader had when a mark was made.
struct MarkedContent {
  uint64_t mark;
  std::map<std::string, std::string> content;
};

void ChangeFolder(std::mt19937& random, const MirroredFolder& folder) {
  const auto draw = [&](unsigned count) { return static_cast<unsigned>(random() % count); };
  const std::string number = std::to_string(draw(4));
  const std::string text = CountingText(draw(8) == 0 ? 600'000 : draw(200), draw(1000));
  switch (draw(10)) {
    case 0:
      return folder.Replace("snapshots/" + number, text);
    case 1:
      return folder.Remove("snapshots/" + number);
    case 2:
      return folder.Replace("summary.json", text);
    case 3:
      return folder.Append("logs/" + number + ".log", text);
    case 4:
      return folder.Append("events.jsonl", text);
    case 5:
      return folder.Replace("group/of/" + number, text);
    default:
      return folder.Append("metrics.csv", text);
  }
}

// Checks that the standby has what the leader had at the mark, except what the leader has changed
// since.
void CheckHas(const MirroredFolder& standby, const MirroredFolder& leader,
              const MarkedContent& at) {
  for (const auto& [name, text] : at.content) {
    if (IsGrowing(name)) {
      CHECK_MESSAGE(standby.Text(name).starts_with(text), name);
    } else if (leader.Has(name) && leader.Text(name) == text) {
      CHECK_MESSAGE(standby.Text(name) == text, name);
    }
  }
}

TEST_CASE("a standby that has reached a mark has what was there, with lost and repeated parts") {
  for (unsigned seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    SenderFixture f;
    std::deque<MarkedContent> marked;
    const auto mangle = [&](MirrorWire& wire) {
      std::vector<Envelope> messages = wire.Take();
      const unsigned loss = random() % 4 == 0 ? 30 : 1;  // percent
      for (Envelope& message : messages) {
        if (random() % 100 < loss) continue;
        if (random() % 10 == 0) wire.Send(message);
        wire.Send(std::move(message));
      }
      if (random() % 5 == 0 && !wire.sent.empty()) wire.sent.pop_back();
    };
    for (int turn = 0; turn < 400; ++turn) {
      f.now += milliseconds(random() % 3 == 0 ? 400 : 7);
      if (random() % 3 != 0) ChangeFolder(random, f.leader);
      if (random() % 2 == 0) {
        const uint64_t mark = f.Look();
        marked.push_back({mark, f.leader.Content()});
      }
      if (random() % 100 == 0) f.Restart();
      f.sender.Tick(f.now);
      mangle(f.to_standby);
      f.ToStandby();
      mangle(f.to_leader);
      f.ToLeader();
      for (; !marked.empty() && marked.front().mark <= f.sender.reached(); marked.pop_front())
        CheckHas(f.standby, f.leader, marked.front());
    }
    for (int turn = 0; turn < 20; ++turn) f.Pass(seconds(1));
    f.CheckEqual();
  }
}

}  // namespace
}  // namespace pando
