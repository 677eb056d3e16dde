// EtcdJournal with lost answers, late requests, garbage of other lives, and at the limits of etcd.
// The cases that every journal passes are in tests/run/stored_journal_test.cc.
#include "run/etcd/etcd_journal.h"

#include <doctest/doctest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "common/hash.h"
#include "tests/contains.h"
#include "tests/etcd_server.h"
#include "tests/run/etcd_proxy.h"
#include "tests/run/journal_states.h"

namespace pando {
namespace {

using Fate = EtcdProxy::Fate;

SchedulerState MustReadState(EtcdJournal& journal) {
  Result<std::optional<SchedulerState>> state = journal.ReadState();
  REQUIRE_MESSAGE(state.ok(), state.status().message());
  REQUIRE(state->has_value());
  return **state;
}

// A run's keys in the shared etcd, read and written directly.
struct EtcdRun {
  const std::string prefix = EtcdServer::NewPrefix();
  EtcdClient client{EtcdServer::Shared().options()};
  uint64_t readers = 1000;

  EtcdJournal Open(uint64_t leader) const {
    return {EtcdServer::Shared().options(), prefix, leader};
  }
  SchedulerState Read() {
    EtcdJournal journal = Open(++readers);
    return MustReadState(journal);
  }
  std::vector<EtcdRecord> Records(const std::string& below = {}) {
    const std::string from = prefix + below;
    std::string end = from;
    ++end.back();
    return *client.Get(from, end);
  }
  void Put(const std::string& key, const std::string& value) {
    REQUIRE(client.Transact({.success = {EtcdPut{prefix + key, value}}}).ok());
  }
};

// A state whose entry has some pieces.
SchedulerState LargeState() {
  SchedulerState state = SmallState();
  for (uint32_t node = 100; node < 5'100; ++node) {
    state.view.nodes.push_back({.node = NodeId(node), .public_key = std::string(200, 'k')});
  }
  return state;
}

TEST_CASE("a run's keys are a head and a log, readable as JSON") {
  if (!EtcdServer::IsInstalled()) return;
  EtcdRun run;
  EtcdJournal journal = run.Open(0xabc);
  REQUIRE(journal.Commit(SmallState()).ok());
  SchedulerState state = SmallState();
  state.next_node = 11;
  REQUIRE(journal.Commit(state).ok());
  const std::vector<EtcdRecord> records = run.Records();
  REQUIRE(records.size() == 3);
  CHECK(records[0].key == run.prefix + "head");
  CHECK(records[0].value ==
        R"({"schema":12,"term":3,"leader":"0000000000000abc","log":"0000000000000abc",)"
        R"("base":0,"last":1})");
  CHECK(records[1].key == run.prefix + "log/0000000000000abc/0000000000/0000000000/0000000000");
  CHECK(records[2].key == run.prefix + "log/0000000000000abc/0000000000/0000000001/0000000000");
  CHECK(records[2].value.starts_with(R"({"changed":[["state","","{\"job\":)"));
  CHECK(records[2].value.ends_with(R"("]],"removed":[]})"));
}

TEST_CASE("after some entries a new base replaces the log") {
  if (!EtcdServer::IsInstalled()) return;
  EtcdRun run;
  run.Put("log/00000000000000ff/0000000007/0000000000/0000000000", "garbage of an earlier life");
  EtcdJournal journal = run.Open(1);
  SchedulerState state = SmallState();
  for (uint32_t i = 0; i <= EtcdJournal::kEntriesMax; ++i) {
    state.view.id.number = 100 + i;
    REQUIRE(journal.Commit(state).ok());
    CHECK(run.Records("log/").size() == i + 1);
  }
  REQUIRE(journal.Commit(state).ok());
  REQUIRE(run.Records("log/").size() == 1);
  // Only the newest view stays, because all have the same lanes.
  const std::string base = run.Records("log/")[0].value;
  CHECK(base.find(R"(["views")") == base.rfind(R"(["views")"));
  CHECK(AllRows(run.Read()) == AllRows(state));
}

TEST_CASE("a large state makes a new base after some megabytes") {
  if (!EtcdServer::IsInstalled()) return;
  EtcdRun run;
  EtcdJournal journal = run.Open(1);
  SchedulerState state = LargeState();
  for (int i = 0; i < 8; ++i) {
    ++state.view.id.number;
    REQUIRE(journal.Commit(state).ok());
    size_t bytes = 0;
    for (const EtcdRecord& record : run.Records("log/")) bytes += record.value.size();
    CHECK(bytes < 12'000'000);
    for (const EtcdRecord& record : run.Records("log/"))
      CHECK(record.value.size() <= EtcdJournal::kPieceBytesMax);
  }
  CHECK(Contains(run.Records()[0].value, R"("base":1)"));
  CHECK(AllRows(run.Read()) == AllRows(state));
}

// ---- lost answers -------------------------------------------------------------------------------

TEST_CASE("a commit whose answer was lost is neither lost nor doubled") {
  if (!EtcdServer::IsInstalled()) return;
  for (const bool is_large : {false, true}) {
    for (size_t lost = 0; lost < 4; ++lost) {
      for (const Fate fate : {Fate::kAnswerLost, Fate::kRefused, Fate::kLate}) {
        CAPTURE(is_large);
        CAPTURE(lost);
        CAPTURE(static_cast<int>(fate));
        EtcdRun run;
        EtcdProxy proxy(EtcdServer::Shared().url());
        EtcdJournal journal(proxy.options(), run.prefix, 1);
        SchedulerState state = is_large ? LargeState() : SmallState();
        REQUIRE(journal.Commit(state).ok());
        ++state.view.id.number;
        proxy.SetFate([&](size_t n) { return n == lost ? fate : Fate::kPassed; });
        const Status status = journal.Commit(state);
        CHECK(status.ok() == (lost >= proxy.count()));
        proxy.SetFate(Fate::kPassed);
        if (!status.ok()) CHECK(status.code() == StatusCode::kUnavailable);
        CHECK_FALSE(journal.is_fenced());
        // The caller may have another state by now.
        state.next_node = 50;
        REQUIRE(journal.Commit(state).ok());
        proxy.SendLate();
        CHECK(AllRows(MustReadState(journal)) == AllRows(state));
        state.next_node = 51;
        REQUIRE(journal.Commit(state).ok());
        CHECK(AllRows(run.Read()) == AllRows(state));
      }
    }
  }
}

TEST_CASE("answers that are lost at random lose no commit") {
  if (!EtcdServer::IsInstalled()) return;
  EtcdRun run;
  EtcdProxy proxy(EtcdServer::Shared().url());
  EtcdJournal journal(proxy.options(), run.prefix, 1);
  std::mt19937_64 random(3);  // NOLINT(*-msc5*): the same numbers in each run
  proxy.SetFate([&](size_t) { return static_cast<Fate>(random() % 6 % 4); });
  SchedulerState state = SmallState();
  for (uint32_t i = 1; i <= 150; ++i) {
    state.next_node = i;
    if (i % 5 == 0) ++state.view.id.number;
    while (!journal.Commit(state).ok()) REQUIRE_FALSE(journal.is_fenced());
    if (i % 10 == 0) proxy.SendLate();
    if (i % 50 == 0) {
      EtcdClient reader(EtcdServer::Shared().options());
      CHECK(
          Contains(reader.Get(run.prefix + "head")->at(0).value, R"("leader":"0000000000000001")"));
    }
  }
  CHECK(AllRows(run.Read()) == AllRows(state));
}

TEST_CASE("late requests of a fenced life change nothing") {
  if (!EtcdServer::IsInstalled()) return;
  EtcdRun run;
  EtcdProxy proxy(EtcdServer::Shared().url());
  EtcdJournal old_one(proxy.options(), run.prefix, 1);
  SchedulerState state = LargeState();
  REQUIRE(old_one.Commit(state).ok());
  // It stops after its first piece of the next commit, and with its last request under way.
  SchedulerState lost = state;
  ++lost.view.id.number;
  proxy.SetFate([](size_t n) { return n == 0 ? Fate::kPassed : Fate::kLate; });
  CHECK_FALSE(old_one.Commit(lost).ok());
  EtcdJournal new_one = run.Open(2);
  CHECK(AllRows(MustReadState(new_one)) == AllRows(state));
  proxy.SendLate();
  SchedulerState newer = state;
  ++newer.term;
  REQUIRE(new_one.Commit(newer).ok());
  proxy.SetFate(Fate::kPassed);
  const Status status = old_one.Commit(lost);
  CHECK(old_one.is_fenced());
  CHECK(status.message() == "etcd's journal " + run.prefix +
                                ": another scheduler leads this run (term 4, and this one had 3); "
                                "this one leaves");
  CHECK(AllRows(MustReadState(new_one)) == AllRows(newer));
  // The first commit of the new life has removed the log of the old one, and its pieces.
  for (const EtcdRecord& record : run.Records("log/"))
    CHECK(Contains(record.key, "log/0000000000000002/"));
}

TEST_CASE("while etcd is down a commit fails, and it succeeds afterwards") {
  if (!EtcdServer::IsInstalled()) return;
  EtcdServer server;
  EtcdJournal journal(server.options(), "/pando/x/", 1);
  SchedulerState state = SmallState();
  REQUIRE(journal.Commit(state).ok());
  server.Kill();
  state.next_node = 77;
  const Status status = journal.Commit(state);
  CHECK(status.code() == StatusCode::kUnavailable);
  CHECK(Contains(status.message(), server.url() + ": "));
  CHECK(Contains(status.message(), "cannot use /pando/x/head in etcd"));
  CHECK_FALSE(journal.is_fenced());
  server.Start();
  REQUIRE(journal.Commit(state).ok());
  CHECK(MustReadState(journal).next_node == 77);
}

TEST_CASE("a full database is said with advice, and freed space lets the commit through") {
  if (!EtcdServer::IsInstalled()) return;
  EtcdServer server({"--quota-backend-bytes=16000000"});
  EtcdJournal journal(server.options(), "/pando/x/", 1);
  SchedulerState state = LargeState();
  Status status;
  for (int i = 0; i < 20 && status.ok(); ++i) {
    ++state.view.id.number;
    status = journal.Commit(state);
  }
  CHECK(status.code() == StatusCode::kNoSpace);
  CHECK(Contains(status.message(), "database space exceeded; compact and defragment etcd"));
  CHECK_FALSE(journal.is_fenced());
  CHECK(journal.Commit(state).code() == StatusCode::kNoSpace);
  const int64_t revision =
      EtcdClient(server.options()).Transact({.success = {EtcdGet{"/"}}})->revision;
  httplib::Client admin(server.url());
  const auto post = [&](const std::string& path, const std::string& body) {
    const auto answer = admin.Post("/v3/" + path, body, "application/json");
    REQUIRE(answer);
    REQUIRE_MESSAGE(answer->status == 200, answer->body);
    return nlohmann::json::parse(answer->body);
  };
  post("kv/compaction", R"({"physical":true,"revision":")" + std::to_string(revision) + R"("})");
  post("maintenance/defragment", "{}");
  nlohmann::json alarm = post("maintenance/alarm", R"({"action":"GET"})").at("alarms").at(0);
  alarm["action"] = "DEACTIVATE";
  post("maintenance/alarm", alarm.dump());
  status = journal.Commit(state);
  REQUIRE_MESSAGE(status.ok(), status.message());
  CHECK(AllRows(MustReadState(journal)) == AllRows(state));
}

// ---- elections, and keys that others change -----------------------------------------------------

TEST_CASE("a life that has lost the election writes nothing") {
  if (!EtcdServer::IsInstalled()) return;
  EtcdRun run;
  run.Put("leader", "us");
  const int64_t won = run.client.Get(run.prefix + "leader")->at(0).create_revision;
  EtcdJournal journal(EtcdServer::Shared().options(), run.prefix, 1,
                      EtcdCompare{run.prefix + "leader", EtcdCompare::Revision::kCreate, won});
  SchedulerState state = SmallState();
  REQUIRE(journal.Commit(state).ok());
  REQUIRE(run.client.Transact({.success = {EtcdDelete{run.prefix + "leader"}}}).ok());
  run.Put("leader", "us");  // with another create_revision
  SchedulerState lost = state;
  ++lost.next_node;
  CHECK(journal.Commit(lost).message() == "etcd's journal " + run.prefix +
                                              ": this scheduler no longer has " + run.prefix +
                                              "leader; this scheduler leaves");
  CHECK(journal.is_fenced());
  CHECK_FALSE(journal.ReadState().ok());
  CHECK(AllRows(run.Read()) == AllRows(state));
}

TEST_CASE("keys that were deleted end the scheduler that led with them") {
  if (!EtcdServer::IsInstalled()) return;
  EtcdRun run;
  EtcdJournal journal = run.Open(1);
  REQUIRE(journal.Commit(SmallState()).ok());
  REQUIRE(run.client.Transact({.success = {EtcdDelete{run.prefix + "head"}}}).ok());
  CHECK(Contains(journal.Commit(SmallState()).message(), ": its keys were deleted; "));
  CHECK(journal.is_fenced());
  EtcdJournal next = run.Open(2);
  CHECK_FALSE(next.ReadState()->has_value());
  CHECK(next.Commit(SmallState()).ok());
}

TEST_CASE("keys that do not fit are named") {
  if (!EtcdServer::IsInstalled()) return;
  const auto error_after = [](const std::string& key, const std::string& value) {
    EtcdRun run;
    EtcdJournal journal = run.Open(1);
    SchedulerState state = SmallState();
    REQUIRE(journal.Commit(state).ok());
    REQUIRE(journal.Commit(state).ok());
    run.Put(key, value);
    EtcdJournal next = run.Open(2);
    const Status status = next.ReadState().status();
    const std::string place = "etcd's journal " + run.prefix;
    CHECK(status.message().starts_with(place));
    return status.message().substr(place.size());
  };
  const std::string log = "log/0000000000000001/0000000000/";
  CHECK(error_after("head", R"({"schema":10,"epoch":3})") ==
        " has the records of another release of Pando (schema 10, and this one has 12); continue "
        "with that release");
  CHECK(error_after("head", "x").starts_with(" is damaged: head: expected JSON, found x; "));
  CHECK(error_after("head", R"({"schema":12})").starts_with(" is damaged: head: term: is missing"));
  CHECK(error_after("head", R"({"schema":12,"term":3,"leader":"1","log":"1","base":0,"last":2})")
            .starts_with(" is damaged: "));
  CHECK(error_after("head",
                    R"({"schema":12,"term":3,"leader":"1","log":"1","base":0,"last":4000000000})")
            .starts_with(" is damaged: head: last: is too large; "));
  CHECK(Contains(error_after(log + "0000000001/0000000000", R"({"changed":[["faults"]]})"),
                 "/0000000000/, entry 1: changed[0]: expected a list of 3, found "));
  CHECK(Contains(error_after(log + "0000000001/0000000000",
                             R"({"changed":[["songs","1","{}"]],"removed":[]})"),
                 " is damaged: section songs, key '1': the section is unknown; "));
  CHECK(Contains(
      error_after(log + "0000000001/0000000000", R"({"changed":[],"removed":[["state",""]]})"),
      " is damaged: section state is missing; "));
  CHECK(Contains(error_after(log + "0000000001/0000000001", "tail"), ", entry 1: "));
}

}  // namespace
}  // namespace pando
