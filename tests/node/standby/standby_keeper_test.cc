// The keeper of a leader with one standby, a real etcd and real sockets (P47).
#include "node/standby/standby_keeper.h"

#include <algorithm>

#include "common/endpoint.h"
#include "tests/await.h"
#include "tests/etcd_server.h"
#include "tests/node/standby/standby_thread.h"
#include "tests/run/etcd_proxy.h"

namespace pando {
namespace {

using Fate = EtcdProxy::Fate;

// A leader with one standby. The leader's requests to etcd go through the proxy.
struct KeeperFixture {
  KeeperFixture() {
    leader.Append("metrics.csv", "row\n");
    Put("leader", "leading");
    Put("complete", "leading\n");
    Put("schedulers/leading", "tcp://127.0.0.1:9");
    mirror = MustStart(context, leader);
    const auto election = client.Get(prefix + "leader");
    REQUIRE(election.ok());
    keeper = std::make_unique<StandbyKeeper>(
        StandbyKeeper::Options{
            {proxy.options(), prefix},
            "leading",
            {prefix + "leader", EtcdCompare::Revision::kCreate, election->front().create_revision},
            [this](const std::string& event, const std::string&) {
              if (event.empty()) return;
              const std::string list = List();
              const std::lock_guard lock(mutex);
              changes.push_back({event, list});
            }},
        *mirror);
  }
  void Put(const std::string& key, const std::string& value) {
    const std::lock_guard lock(client_mutex);
    REQUIRE(client.Transact({.success = {EtcdPut{prefix + key, value}}}).ok());
  }
  void Announce() { Put("schedulers/one", standby->endpoint()); }
  // Ends the standby, as etcd and the leader see it.
  void EndStandby() {
    standby.reset();
    const std::lock_guard lock(client_mutex);
    REQUIRE(client.Transact({.success = {EtcdDelete{prefix + "schedulers/one", {}}}}).ok());
  }
  // The folders that may lead, as etcd has them.
  std::string List() {
    const std::lock_guard lock(client_mutex);
    const auto found = client.Get(prefix + "complete");
    return found.ok() && !found->empty() ? found->front().value : "";
  }
  // Waits, while the run's members answer with the list that they get.
  void AwaitThat(const std::function<bool()>& is_so) {
    Await([&] {
      const uint64_t hash = keeper->awaited_hash();
      if (hash != 0 && do_members_answer) keeper->NoteMembersKnow(hash);
      return is_so();
    });
  }
  // Waits for the n-th change. Returns its event, and the list at that moment.
  std::pair<std::string, std::string> ChangeAt(size_t n) {
    AwaitThat([&] {
      const std::lock_guard lock(mutex);
      return changes.size() > n;
    });
    const std::lock_guard lock(mutex);
    return changes[n];
  }
  // The leader asks etcd at least twice more, and so has seen all that was there before.
  void AwaitLooks() {
    const size_t seen = proxy.count();
    AwaitThat([&] { return proxy.count() >= seen + 4; });
  }

  const std::string prefix = EtcdServer::NewPrefix();
  EtcdProxy proxy{EtcdServer::Shared().url()};
  std::mutex client_mutex;
  EtcdClient client{EtcdServer::Shared().options()};
  bool do_members_answer = true;
  ZmqContext context;
  MirroredFolder leader, folder;
  std::unique_ptr<StandbyThread> standby = std::make_unique<StandbyThread>(context, folder);
  std::mutex mutex;
  std::vector<std::pair<std::string, std::string>> changes;
  std::unique_ptr<Mirror> mirror;
  std::unique_ptr<StandbyKeeper> keeper;
};

TEST_CASE("a standby is listed once it has everything, and is off the list before it is given up") {
  if (!EtcdServer::IsInstalled()) return;
  KeeperFixture f;
  CHECK(f.keeper->HasReached(f.keeper->Mark()));  // there is no standby
  f.Announce();
  CHECK(f.ChangeAt(0) == std::pair<std::string, std::string>("standby-ready", "leading\none\n"));
  CHECK(f.folder.Content() == f.leader.Content());
  f.EndStandby();
  CHECK(f.ChangeAt(1) == std::pair<std::string, std::string>("standby-lost", "leading\n"));
  CHECK(f.keeper->HasReached(f.keeper->Mark()));
}

TEST_CASE("a standby is listed once all members know where it listens") {
  if (!EtcdServer::IsInstalled()) return;
  KeeperFixture f;
  f.do_members_answer = false;
  f.Announce();
  f.AwaitThat([&] { return f.keeper->awaited_hash() != 0; });
  const std::vector<std::string> endpoints{"tcp://127.0.0.1:9", f.standby->endpoint()};
  CHECK(f.keeper->awaited_hash() == HashEndpoints(endpoints));
  const std::vector<SchedulerPlace> places = f.keeper->Places();
  REQUIRE(places.size() == 2);
  CHECK(places[0].state == "leads");
  CHECK(places[1].state == "gets the run folder");
  f.AwaitLooks();
  CHECK(f.List() == "leading\n");
  f.do_members_answer = true;
  CHECK(f.ChangeAt(0).second == "leading\none\n");
  CHECK(f.keeper->Places()[1].state == "may lead");
}

TEST_CASE("the leader waits for a lost standby until etcd has it off the list") {
  if (!EtcdServer::IsInstalled()) return;
  KeeperFixture f;
  f.Announce();
  CHECK(f.ChangeAt(0).first == "standby-ready");
  f.proxy.SetFateOfWrites(Fate::kRefused);
  f.EndStandby();
  f.leader.Append("metrics.csv", "another row\n");
  const uint64_t mark = f.keeper->Mark();
  f.AwaitLooks();
  CHECK_FALSE(f.keeper->HasReached(mark));
  f.proxy.SetFateOfWrites({});
  CHECK(f.ChangeAt(1) == std::pair<std::string, std::string>("standby-lost", "leading\n"));
  CHECK(f.keeper->HasReached(mark));
}

TEST_CASE("a standby that etcd has listed without an answer is taken off the list, too") {
  if (!EtcdServer::IsInstalled()) return;
  KeeperFixture f;
  f.proxy.SetFateOfWrites(Fate::kAnswerLost);
  f.Announce();
  f.AwaitThat([&] { return f.List() == "leading\none\n"; });
  CHECK_FALSE(f.keeper->HasReached(f.keeper->Mark() + 1));  // the leader waits for it
  f.proxy.SetFateOfWrites(Fate::kRefused);
  f.EndStandby();
  f.AwaitLooks();
  CHECK(f.List() == "leading\none\n");
  f.proxy.SetFateOfWrites({});
  CHECK(f.ChangeAt(0) == std::pair<std::string, std::string>("standby-lost", "leading\n"));
}

TEST_CASE("a leader whose election is over changes no list") {
  if (!EtcdServer::IsInstalled()) return;
  KeeperFixture f;
  REQUIRE(f.client.Transact({.success = {EtcdDelete{f.prefix + "leader", {}}}}).ok());
  f.Put("leader", "another");
  f.Announce();
  f.AwaitThat([&] { return f.mirror->ReachedBy(1).size() == 1; });
  f.AwaitLooks();
  CHECK(f.List() == "leading\n");
  CHECK_FALSE(f.keeper->TellEnd("its exit code is 0"));
}

}  // namespace
}  // namespace pando
