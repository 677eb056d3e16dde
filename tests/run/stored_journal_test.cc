// The promises of all journals (scheduler/journal.h, run/stored_journal.h). Each case runs with
// SQLite and with etcd.
#include "run/stored_journal.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include "run/etcd/etcd_journal.h"
#include "run/sqlite_journal.h"
#include "tests/etcd_server.h"
#include "tests/run/journal_states.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

SchedulerState MustRead(StoredJournal& journal) {
  Result<std::optional<SchedulerState>> state = journal.ReadState();
  REQUIRE_MESSAGE(state.ok(), state.status().message());
  REQUIRE(state->has_value());
  return **state;
}

// A place opens a journal for each life of the scheduler. All are of one run.
class SqlitePlace {
 public:
  static bool IsHere() { return true; }
  std::unique_ptr<StoredJournal> Open(uint64_t leader = kLeader) const {
    Result<SqliteJournal> journal = SqliteJournal::Open(path_, leader);
    REQUIRE_MESSAGE(journal.ok(), journal.status().message());
    return std::make_unique<SqliteJournal>(*std::move(journal));
  }
  std::string name() const { return path_; }
  SchedulerState Read() const { return MustRead(*Open()); }

 private:
  TempFolder temp_;
  std::string path_ = temp_.File("scheduler.db");
};

class EtcdPlace {
 public:
  static bool IsHere() { return EtcdServer::IsInstalled(); }
  std::unique_ptr<StoredJournal> Open(uint64_t leader = kLeader) const {
    return std::make_unique<EtcdJournal>(EtcdServer::Shared().options(), prefix_, leader);
  }
  std::string name() const { return "etcd's journal " + prefix_; }
  // As another life of the scheduler: no two have the same incarnation.
  SchedulerState Read() { return MustRead(*Open(++readers_)); }

 private:
  const std::string prefix_ = EtcdServer::NewPrefix();
  uint64_t readers_ = kLeader;
};

TEST_CASE_TEMPLATE("a new journal has no state, and an empty state survives", Place, SqlitePlace,
                   EtcdPlace) {
  if (!Place::IsHere()) return;
  Place place;
  const auto journal = place.Open();
  CHECK_FALSE(journal->ReadState()->has_value());
  REQUIRE(journal->Commit(SchedulerState{}).ok());
  CHECK(AllRows(place.Read()) == AllRows(SchedulerState{}));
}

TEST_CASE_TEMPLATE("every field survives, the largest numbers and unknown times included", Place,
                   SqlitePlace, EtcdPlace) {
  if (!Place::IsHere()) return;
  Place place;
  const SchedulerState state = SmallState();
  REQUIRE(place.Open()->Commit(state).ok());
  const SchedulerState read = place.Read();
  CHECK(AllRows(read) == AllRows(state));
  CHECK(read.job == state.job);
  CHECK(read.view.id == ViewId{3, 42});
  CHECK(read.view.restore == SnapshotRef{1, Version(500)});
  CHECK(read.view.nodes[0].lane_endpoints[1] == "ipc:///tmp/\"x\"");
  CHECK(read.view.nodes[1].role == Role::kWorker);
  CHECK(read.view.shards[0].syncing_backups[0] == SyncingBackup{Server(3, 7), {3, 41}});
  CHECK(read.view.shards[1].primary == PeerId{});
  CHECK(read.view.owners[0].previous == NodeId(8));
  CHECK(read.view.owners[1].worker == kUnknownNode);
  CHECK(read.members[0].peer == Server(1));
  CHECK(read.members[0].registration.process_id == UINT32_MAX);
  CHECK(read.members[0].ready.probe_hash == UINT64_MAX);
  CHECK(read.members[0].is_draining);
  CHECK_FALSE(read.members[1].is_ready);
  CHECK(read.snapshots[0].shards[0].hash == UINT64_MAX);
  CHECK(read.given_up.below == Version(100));
  CHECK(read.given_up.versions == state.given_up.versions);
  CHECK(read.evaluations[0].loss_sum == 1.0 / 3);
  CHECK(read.evaluations[0].classes.empty());
  CHECK(read.evaluations[1].top5_count == 4);
  CHECK(read.evaluations[1].classes == state.evaluations[1].classes);
  CHECK(read.evaluations[1].confusion == state.evaluations[1].confusion);
  CHECK(read.faults[0].injected_ms == 0);
  CHECK(read.faults[0].recovered_ms == 20.25);
  CHECK(read.faults[1].injected_ms == -1);
  CHECK(read.faults[1].detected_by == "");
  CHECK(read.verification.settled_below == Step(77));
  CHECK(read.verification.unverified_count == 2);
  REQUIRE(read.verification.open_dispute);
  CHECK(read.verification.open_dispute->first.name == "worker 0");
  CHECK(read.verification.open_dispute->first.hash == UINT64_MAX);
}

TEST_CASE_TEMPLATE("a loss that is not a finite number stays as it is", Place, SqlitePlace,
                   EtcdPlace) {
  if (!Place::IsHere()) return;
  Place place;
  SchedulerState state;
  state.evaluations = {{Version(1), 10, 1, std::numeric_limits<double>::quiet_NaN()}};
  const auto journal = place.Open();
  REQUIRE(journal->Commit(state).ok());
  CHECK(std::isnan(MustRead(*journal).evaluations[0].loss_sum));
  state.evaluations[0].loss_sum = -std::numeric_limits<double>::infinity();
  REQUIRE(journal->Commit(state).ok());
  CHECK(MustRead(*journal).evaluations[0].loss_sum == state.evaluations[0].loss_sum);
  state.evaluations[0].sums = {0.5, std::numeric_limits<double>::quiet_NaN(),
                               std::numeric_limits<double>::infinity()};
  REQUIRE(journal->Commit(state).ok());
  const std::vector<double> sums = MustRead(*journal).evaluations[0].sums;
  CHECK(sums[0] == 0.5);
  CHECK_FALSE(std::isfinite(sums[1]));
  CHECK_FALSE(std::isfinite(sums[2]));
}

TEST_CASE_TEMPLATE("commits follow each other: rows come, change and go, and the newest view holds",
                   Place, SqlitePlace, EtcdPlace) {
  if (!Place::IsHere()) return;
  Place place;
  SchedulerState state = SmallState();
  const auto journal = place.Open();
  REQUIRE(journal->Commit(state).ok());
  state.view = SmallView(43);
  state.members.erase(state.members.begin());
  state.snapshots.erase(state.snapshots.begin());
  state.faults[1].recovered_ms = 9;
  state.is_completed = true;
  REQUIRE(journal->Commit(state).ok());
  CHECK(AllRows(MustRead(*journal)) == AllRows(state));
  state.faults.clear();
  REQUIRE(journal->Commit(state).ok());
  CHECK(AllRows(place.Read()) == AllRows(state));
}

TEST_CASE_TEMPLATE(
    "the next life of the scheduler goes on in the same journal and drops what it does not know",
    Place, SqlitePlace, EtcdPlace) {
  if (!Place::IsHere()) return;
  Place place;
  SchedulerState state = SmallState();
  REQUIRE(place.Open(1)->Commit(state).ok());
  state.term = 4;
  state.view = SmallView(1);
  state.view.id = {4, 1};
  state.members.clear();
  state.faults.clear();
  REQUIRE(place.Open(2)->Commit(state).ok());
  CHECK(AllRows(place.Read()) == AllRows(state));
}

TEST_CASE_TEMPLATE("of two schedulers on one journal only the newer term can commit", Place,
                   SqlitePlace, EtcdPlace) {
  if (!Place::IsHere()) return;
  Place place;
  const auto old_one = place.Open(1);
  SchedulerState state = SmallState();
  REQUIRE(old_one->Commit(state).ok());
  const auto new_one = place.Open(2);
  SchedulerState newer = state;
  newer.term = 4;
  REQUIRE(new_one->Commit(newer).ok());
  CHECK_FALSE(old_one->Commit(state).ok());
  CHECK(old_one->is_fenced());
  CHECK(old_one->Commit(state).message() ==
        place.name() +
            ": another scheduler leads this run (term 4, and this one had 3); this one leaves");
  CHECK(new_one->Commit(newer).ok());
  // A fenced journal stays fenced for any term.
  state.term = 5;
  CHECK_FALSE(old_one->Commit(state).ok());
  CHECK(place.Read().term == 4);
}

TEST_CASE_TEMPLATE("of two schedulers that took the same term the first to commit leads", Place,
                   SqlitePlace, EtcdPlace) {
  if (!Place::IsHere()) return;
  Place place;
  const auto one = place.Open(1);
  const auto other = place.Open(2);
  const SchedulerState state = SmallState();
  CHECK(one->Commit(state).ok());
  CHECK_FALSE(other->Commit(state).ok());
  CHECK(one->Commit(state).ok());
}

TEST_CASE_TEMPLATE("a scheduler that has read the journal leads: nothing is added afterwards",
                   Place, SqlitePlace, EtcdPlace) {
  if (!Place::IsHere()) return;
  Place place;
  const auto old_one = place.Open(1);
  SchedulerState state = SmallState();
  REQUIRE(old_one->Commit(state).ok());
  REQUIRE(old_one->ReadState().ok());
  REQUIRE(old_one->Commit(state).ok());
  const auto new_one = place.Open(2);
  REQUIRE(new_one->ReadState().ok());
  ++state.view.id.number;
  CHECK_FALSE(old_one->Commit(state).ok());
  CHECK(old_one->is_fenced());
  ++state.term;
  CHECK(new_one->Commit(state).ok());
}

TEST_CASE_TEMPLATE("a state of megabytes survives, and so does its next change", Place, SqlitePlace,
                   EtcdPlace) {
  if (!Place::IsHere()) return;
  Place place;
  SchedulerState state = SmallState();
  for (uint32_t node = 100; node < 10'100; ++node) {
    NodeInfo info = state.view.nodes[0];
    info.node = NodeId(node);
    info.public_key = std::string(200, 'k');
    state.view.nodes.push_back(info);
  }
  REQUIRE(MakeRow(state.view).second.size() > size_t{3} << 20);
  const auto journal = place.Open(1);
  for (int i = 0; i < 3; ++i) {
    ++state.view.id.number;
    ++state.next_node;
    REQUIRE(journal->Commit(state).ok());
  }
  CHECK(AllRows(place.Read()) == AllRows(state));
}

TEST_CASE_TEMPLATE("hundreds of commits, then the next life reads the last of them", Place,
                   SqlitePlace, EtcdPlace) {
  if (!Place::IsHere()) return;
  Place place;
  SchedulerState state = SmallState();
  const auto journal = place.Open(1);
  for (uint64_t i = 1; i <= 200; ++i) {
    state.next_node = static_cast<uint32_t>(i);
    state.faults.push_back({.id = 2 + i, .action = "kill"});
    if (i % 3 == 0) state.faults.erase(state.faults.begin());
    REQUIRE(journal->Commit(state).ok());
    if (i % 41 == 0) CHECK(AllRows(MustRead(*journal)) == AllRows(state));
  }
  CHECK(AllRows(place.Read()) == AllRows(state));
}

// A reader needs only the holders of the shards from the views before the newest one.
TEST_CASE_TEMPLATE("the lanes that held a shard survive hundreds of commits and a change of lives",
                   Place, SqlitePlace, EtcdPlace) {
  if (!Place::IsHere()) return;
  Place place;
  SchedulerState state = SmallState();
  state.view.shards[0].primary = Server(77);
  REQUIRE(place.Open(1)->Commit(state).ok());
  const auto journal = place.Open(2);
  state = MustRead(*journal);
  ++state.term;
  state.view.id = {state.term, 1};
  state.view.shards[0].primary = Server(78);
  REQUIRE(journal->Commit(state).ok());
  state.view.id.number = 2;
  state.view.shards[0].primary = Server(79);
  for (uint64_t i = 1; i <= 150; ++i) {
    ++state.next_node;
    REQUIRE(journal->Commit(state).ok());
  }
  SchedulerState read = place.Read();
  for (const uint32_t node : {77, 78, 79}) {
    CAPTURE(node);
    CHECK(read.holders.Has(ShardId(0), Server(node)));
  }
  state.view.generation = 3;  // all replicas are loaded again
  state.view.id.number = 3;
  ++state.term;
  REQUIRE(place.Open(3)->Commit(state).ok());
  read = place.Read();
  CHECK_FALSE(read.holders.Has(ShardId(0), Server(77)));
  CHECK(read.holders.Has(ShardId(0), Server(79)));
}

TEST_CASE_TEMPLATE("of interleaved lives only the one that read the journal last commits", Place,
                   SqlitePlace, EtcdPlace) {
  if (!Place::IsHere()) return;
  Place place;
  SchedulerState state = SmallState();
  REQUIRE(place.Open(1)->Commit(state).ok());
  struct Life {
    std::unique_ptr<StoredJournal> journal;
    SchedulerState state;
  };
  std::vector<Life> lives;
  std::mt19937_64 random(7);  // NOLINT(*-msc5*): the same numbers in each run
  for (uint64_t i = 0; i < 150; ++i) {
    if (lives.empty() || random() % 8 == 0) {
      Life& life = lives.emplace_back(Life{place.Open(100 + i), {}});
      life.state = MustRead(*life.journal);
      CHECK(AllRows(life.state) == AllRows(state));
      ++life.state.term;
    }
    const size_t newest = lives.size() - 1;
    const size_t who = newest - std::min<size_t>(newest, random() % 3);
    Life& life = lives[who];
    ++life.state.next_node;
    life.state.view.id = {life.state.term, life.state.view.id.number + 1};
    const bool is_committed = life.journal->Commit(life.state).ok();
    CHECK(is_committed == (who == newest));
    CHECK(life.journal->is_fenced() == (who != newest));
    if (is_committed) state = life.state;
  }
  CHECK(lives.size() > 5);
}

}  // namespace
}  // namespace pando
