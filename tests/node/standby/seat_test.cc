// Which scheduler of a run leads: seats that meet in a real etcd (P47).
#include "node/standby/seat.h"

#include <filesystem>
#include <fstream>

#include "tests/etcd_server.h"
#include "tests/run/etcd_proxy.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

// A scheduler: its seat, its lease, and its last turn.
struct Contender {
  Contender(const EtcdPlace& place, const std::string& run_dir, bool is_standby) {
    Result<std::unique_ptr<Seat>> opened = Seat::Open(place, run_dir, is_standby);
    REQUIRE_MESSAGE(opened.ok(), opened.status().message());
    seat = *std::move(opened);
    auto granted = EtcdLease::Grant(place.options);
    REQUIRE(granted.ok());
    lease = *std::move(granted);
  }
  Result<Turn> Try(MayBegin may_begin) { return seat->TryToLead(lease, may_begin); }
  bool Leads(MayBegin may_begin) {
    Result<Turn> turn = Try(may_begin);
    REQUIRE_MESSAGE(turn.ok(), turn.status().message());
    if (auto* won = std::get_if<Lead>(&*turn)) lead = std::move(*won);
    return lead.has_value();
  }
  std::string WhyNot(MayBegin may_begin) {
    Result<Turn> turn = Try(may_begin);
    REQUIRE_MESSAGE(turn.ok(), turn.status().message());
    const auto* waits = std::get_if<StandsBy>(&*turn);
    return waits == nullptr ? "" : waits->why;
  }
  // The process is gone, and so is its lease.
  void End() {
    lead.reset();
    lease.reset();
  }

  std::unique_ptr<Seat> seat;
  std::unique_ptr<EtcdLease> lease;
  std::optional<Lead> lead;
};

struct SeatFixture {
  Contender Open(const std::string& name, bool is_standby = false) {
    return {place, temp.File(name), is_standby};
  }
  void Put(const std::string& key, const std::string& value) {
    REQUIRE(client.Transact({.success = {EtcdPut{place.prefix + key, value}}}).ok());
  }
  std::string Get(const std::string& key) {
    const auto found = client.Get(place.prefix + key);
    REQUIRE(found.ok());
    return found->empty() ? "" : found->front().value;
  }

  TempFolder temp;
  EtcdPlace place{EtcdServer::Shared().options(), EtcdServer::NewPrefix()};
  EtcdClient client{place.options};
};

TEST_CASE("one scheduler begins the run, and a standby leads after it once it is listed") {
  if (!EtcdServer::IsInstalled()) return;
  SeatFixture f;
  Contender standby = f.Open("standby", true);
  CHECK(standby.WhyNot(MayBegin::kNone) == "the run has not begun");
  Contender first = f.Open("first");
  CHECK(first.Leads(MayBegin::kNewRun));
  CHECK(f.Get("complete") == first.seat->folder() + "\n");
  CHECK(standby.WhyNot(MayBegin::kNone).starts_with("other folders have everything of the run"));
  f.Put("complete", WriteFolders({first.seat->folder(), standby.seat->folder()}));
  CHECK(standby.WhyNot(MayBegin::kNone) == "another scheduler leads");
  first.End();
  CHECK(standby.Leads(MayBegin::kNone));
  CHECK(f.Get("complete") == standby.seat->folder() + "\n");  // it names itself alone
  Contender back = f.Open("first");
  CHECK(back.WhyNot(MayBegin::kNewRun).starts_with("other folders have everything of the run"));
}

// A request may take effect without an answer, when etcd changes its leader.
TEST_CASE("a scheduler whose election was won without an answer leads at the next try") {
  if (!EtcdServer::IsInstalled()) return;
  SeatFixture f;
  EtcdProxy proxy(EtcdServer::Shared().url());
  const EtcdPlace through{proxy.options(), f.place.prefix};
  Contender first(through, f.temp.File("first"), false);
  proxy.SetFateOfWrites(EtcdProxy::Fate::kAnswerLost);
  CHECK(first.Try(MayBegin::kNewRun).status().code() == StatusCode::kUnavailable);
  CHECK_FALSE(f.Get("leader").empty());
  proxy.SetFateOfWrites({});
  CHECK(first.Leads(MayBegin::kNewRun));
}

TEST_CASE("a second run of the same name is refused, and says what to do") {
  if (!EtcdServer::IsInstalled()) return;
  SeatFixture f;
  Contender first = f.Open("first");
  CHECK(first.Leads(MayBegin::kNewRun));
  Contender second = f.Open("second");
  CHECK(second.WhyNot(MayBegin::kNewRun).ends_with("another run needs another --etcd-prefix"));
  const Result<Turn> forced = second.Try(MayBegin::kAnyRun);
  CHECK(forced.status().code() == StatusCode::kInvalidArgument);
  CHECK(forced.status().message().starts_with("--force: another scheduler leads the run /pando/"));
}

TEST_CASE("with --force a run begins without the journal of the one before") {
  if (!EtcdServer::IsInstalled()) return;
  SeatFixture f;
  Contender first = f.Open("first");
  CHECK(first.Leads(MayBegin::kNewRun));
  f.Put("head", "{}");
  f.Put("log/1/1", "{}");
  first.End();
  Contender second = f.Open("second");
  CHECK_FALSE(second.Leads(MayBegin::kNewRun));
  CHECK(second.Leads(MayBegin::kAnyRun));
  CHECK(f.Get("head").empty());
  CHECK(f.Get("log/1/1").empty());
  CHECK(f.Get("complete") == second.seat->folder() + "\n");
}

TEST_CASE("a run that has ended begins again in a folder that has it, or in a new one") {
  if (!EtcdServer::IsInstalled()) return;
  SeatFixture f;
  Contender first = f.Open("first");
  CHECK(first.Leads(MayBegin::kNewRun));
  f.Put("ended", "its exit code is 0");
  first.End();
  Contender standby = f.Open("standby", true);
  const Result<Turn> turn = standby.Try(MayBegin::kNone);
  REQUIRE(turn.ok());
  REQUIRE(std::holds_alternative<RunEnded>(*turn));
  CHECK(std::get<RunEnded>(*turn).how == "its exit code is 0");
  Contender again = f.Open("first");
  CHECK(again.Leads(MayBegin::kNewRun));
  CHECK(f.Get("ended").empty());
}

TEST_CASE("a folder whose run etcd has lost does not lead") {
  if (!EtcdServer::IsInstalled()) return;
  SeatFixture f;
  Contender first = f.Open("first");
  CHECK(first.Leads(MayBegin::kNewRun));
  first.End();
  REQUIRE(f.client.Transact({.success = {EtcdDelete{f.place.prefix + "complete", {}}}}).ok());
  Contender back = f.Open("first");
  CHECK(back.WhyNot(MayBegin::kNewRun).starts_with("etcd has lost this run"));
}

TEST_CASE("a folder of another run, or with files of something else, is refused") {
  if (!EtcdServer::IsInstalled()) return;
  SeatFixture f;
  f.Open("first");
  const EtcdPlace other{f.place.options, EtcdServer::NewPrefix()};
  const auto of_another = Seat::Open(other, f.temp.File("first"), false);
  CHECK(of_another.status().code() == StatusCode::kInvalidArgument);
  CHECK(of_another.status().message().find(f.place.prefix) != std::string::npos);
  fs::create_directories(f.temp.File("used"));
  std::ofstream(f.temp.File("used/notes.txt")) << "mine";
  CHECK(Seat::Open(f.place, f.temp.File("used"), true).status().code() ==
        StatusCode::kInvalidArgument);
  CHECK(fs::exists(f.temp.File("used/notes.txt")));
}

TEST_CASE("a folder that may be listed gets another name before a session fills it") {
  if (!EtcdServer::IsInstalled()) return;
  SeatFixture f;
  Contender standby = f.Open("standby", true);
  const std::string name = standby.seat->folder();
  CHECK(standby.seat->BeginSession(5));  // it was never filled
  CHECK(standby.seat->folder() == name);
  CHECK_FALSE(standby.seat->BeginSession(4));  // of an earlier leader
  CHECK(standby.seat->folder() == name);
  CHECK_FALSE(standby.seat->BeginSession(6));
  CHECK(standby.seat->folder() != name);
  CHECK(standby.seat->BeginSession(6));
  Contender restarted = f.Open("standby", true);
  CHECK(restarted.seat->folder() == standby.seat->folder());
  CHECK_FALSE(restarted.seat->BeginSession(5));
}

}  // namespace
}  // namespace pando
