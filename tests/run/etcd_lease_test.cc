#include "run/etcd/etcd_lease.h"

#include <doctest/doctest.h>
#include <memory>
#include <string>

#include "tests/await.h"
#include "tests/etcd_server.h"
#include "tests/run/etcd_proxy.h"

namespace pando {
namespace {

std::unique_ptr<EtcdLease> MustGrant(const EtcdOptions& options) {
  auto lease = EtcdLease::Grant(options);
  REQUIRE_MESSAGE(lease.ok(), lease.status().message());
  return *std::move(lease);
}

bool HasKey(EtcdClient& client, const std::string& key) {
  const auto found = client.Get(key);
  return found.ok() && !found->empty();
}

TEST_CASE("a lease is kept alive until it is revoked") {
  if (!EtcdServer::IsInstalled()) return;
  const EtcdOptions options = EtcdServer::Shared().options();
  std::unique_ptr<EtcdLease> lease = MustGrant(options);
  CHECK(lease->deadline() <= SteadyNow() + EtcdLease::kLeaseSeconds);
  Micros granted = lease->deadline();
  Await([&] {
    if (lease->is_lost()) {  // on a machine that stood still for a while
      lease = MustGrant(options);
      granted = lease->deadline();
    }
    return lease->deadline() >= granted + 2 * EtcdLease::kLeaseSeconds;
  });
  EtcdClient client(options);
  (void)client.Revoke(lease->id());
  Await([&] { return lease->is_lost(); });
  CHECK(client.Revoke(lease->id()).code() == StatusCode::kNotFound);
}

TEST_CASE("a lease that has ended counts as lost only after an answer of etcd") {
  if (!EtcdServer::IsInstalled()) return;
  EtcdClient client(EtcdServer::Shared().options());
  const std::string key = EtcdServer::NewPrefix() + "key";
  EtcdProxy proxy(EtcdServer::Shared().url());
  const auto lease = MustGrant(proxy.options());
  proxy.SetFate(EtcdProxy::Fate::kRefused);
  (void)client.Transact({.success = {EtcdPut{key, "", lease->id()}}});  // may be too late
  Await([&] { return lease->deadline() < SteadyNow() && !HasKey(client, key); });
  CHECK_FALSE(lease->is_lost());
  proxy.SetFate(EtcdProxy::Fate::kPassed);
  Await([&] { return lease->is_lost(); });
}

TEST_CASE("a lease goes on after a silence that etcd has bridged") {
  if (!EtcdServer::IsInstalled()) return;
  EtcdProxy proxy(EtcdServer::Shared().url());
  const auto lease = MustGrant(proxy.options());
  proxy.SetFate(EtcdProxy::Fate::kAnswerLost);
  Await([&] { return lease->deadline() < SteadyNow(); });
  CHECK_FALSE(lease->is_lost());
  proxy.SetFate(EtcdProxy::Fate::kPassed);
  Await([&] { return lease->deadline() > SteadyNow() || lease->is_lost(); });
}

TEST_CASE("of two processes one wins the election, and the other one after its end") {
  if (!EtcdServer::IsInstalled()) return;
  const EtcdOptions options = EtcdServer::Shared().options();
  EtcdClient client(options);
  const auto other = MustGrant(options);
  while (true) {
    const std::string key = EtcdServer::NewPrefix() + "leader";
    auto one = MustGrant(options);
    const auto won = Campaign(client, *one, key, "one");
    const auto lost = Campaign(client, *other, key, "other");
    const auto again = Campaign(client, *one, key, "one");  // its answer was lost
    if (one->deadline() <= SteadyNow()) continue;  // on a machine that stood still for a while
    CHECK(won->is_won);
    CHECK(won->leader == "one");
    CHECK_FALSE(lost->is_won);
    CHECK(lost->leader == "one");
    CHECK(lost->create_revision == won->create_revision);
    CHECK(again->is_won);
    CHECK(again->create_revision == won->create_revision);
    one.reset();  // revokes it
    const auto successor = MustGrant(options);
    Await([&] {
      const auto next = Campaign(client, *successor, key, "next");
      return next.ok() && next->is_won && next->create_revision > won->create_revision;
    });
    return;
  }
}

TEST_CASE("a campaign whose answer was lost is won by the next one") {
  if (!EtcdServer::IsInstalled()) return;
  EtcdProxy proxy(EtcdServer::Shared().url());
  EtcdClient client(proxy.options());
  const std::string key = EtcdServer::NewPrefix() + "leader";
  const auto lease = MustGrant(EtcdServer::Shared().options());
  proxy.SetFate(EtcdProxy::Fate::kAnswerLost);
  CHECK(Campaign(client, *lease, key, "us").status().code() == StatusCode::kUnavailable);
  proxy.SetFate(EtcdProxy::Fate::kPassed);
  const auto next = Campaign(client, *lease, key, "us");
  // The other case is that of a machine that stood still for a while.
  CHECK((next.ok() ? next->is_won : next.status().code() == StatusCode::kNotFound));
}

}  // namespace
}  // namespace pando
