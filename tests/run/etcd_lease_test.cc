#include "run/etcd/etcd_lease.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <functional>

#include "tests/deadline.h"
#include "tests/etcd_server.h"
#include "tests/run/etcd_proxy.h"

namespace pando {
namespace {

void Await(const std::function<bool()>& is_so) {
  for (const Micros deadline = SteadyNow() + kEventDeadline; !is_so(); usleep(1000))
    REQUIRE(SteadyNow() < deadline);
}

TEST_CASE("a lease is kept alive until it is revoked") {
  if (!EtcdServer::IsInstalled()) return;
  const auto lease = *EtcdLease::Grant(EtcdServer::Shared().options());
  const Micros granted = lease->deadline();
  CHECK(granted > SteadyNow());
  CHECK(granted <= SteadyNow() + EtcdLease::kLeaseSeconds);
  Await([&] { return lease->deadline() >= granted + 2 * EtcdLease::kLeaseSeconds; });
  CHECK_FALSE(lease->is_lost());
  EtcdClient client(EtcdServer::Shared().options());
  REQUIRE(client.Revoke(lease->id()).ok());
  Await([&] { return lease->is_lost(); });
  CHECK(client.Revoke(lease->id()).code() == StatusCode::kNotFound);
}

TEST_CASE("a lease is not lost because etcd is silent") {
  if (!EtcdServer::IsInstalled()) return;
  EtcdProxy proxy(EtcdServer::Shared().url());
  const auto lease = *EtcdLease::Grant(proxy.options());
  proxy.SetFate(EtcdProxy::Fate::kAnswerLost);
  Await([&] { return lease->deadline() < SteadyNow(); });
  CHECK_FALSE(lease->is_lost());
  proxy.SetFate(EtcdProxy::Fate::kPassed);
  Await([&] { return lease->deadline() > SteadyNow(); });
  proxy.SetFate(EtcdProxy::Fate::kRefused);
  EtcdClient client(EtcdServer::Shared().options());
  Await([&] { return client.KeepAlive(-1).ok() && client.Revoke(lease->id()).ok(); });
  CHECK_FALSE(lease->is_lost());
  proxy.SetFate(EtcdProxy::Fate::kPassed);
  Await([&] { return lease->is_lost(); });
}

TEST_CASE("of two processes one wins the election, and the other one after its end") {
  if (!EtcdServer::IsInstalled()) return;
  const EtcdOptions options = EtcdServer::Shared().options();
  const std::string key = EtcdServer::NewPrefix() + "leader";
  EtcdClient client(options);
  auto one = *EtcdLease::Grant(options);
  const auto other = *EtcdLease::Grant(options);
  const EtcdElection won = *Campaign(client, *one, key, "one");
  CHECK(won.is_won);
  CHECK(won.leader == "one");
  const EtcdElection lost = *Campaign(client, *other, key, "other");
  CHECK_FALSE(lost.is_won);
  CHECK(lost.leader == "one");
  CHECK(lost.create_revision == won.create_revision);
  const EtcdElection again = *Campaign(client, *one, key, "one");  // its answer was lost
  CHECK(again.is_won);
  CHECK(again.create_revision == won.create_revision);
  one.reset();
  Await([&] { return Campaign(client, *other, key, "other")->is_won; });
  CHECK(client.Get(key)->at(0).create_revision > won.create_revision);
}

TEST_CASE("of two processes that campaign at once one wins, even if answers are lost") {
  if (!EtcdServer::IsInstalled()) return;
  EtcdProxy proxy(EtcdServer::Shared().url());
  const std::string key = EtcdServer::NewPrefix() + "leader";
  EtcdClient client(proxy.options());
  const auto lease = *EtcdLease::Grant(EtcdServer::Shared().options());
  proxy.SetFate(EtcdProxy::Fate::kAnswerLost);
  CHECK(Campaign(client, *lease, key, "us").status().code() == StatusCode::kUnavailable);
  proxy.SetFate(EtcdProxy::Fate::kPassed);
  CHECK(Campaign(client, *lease, key, "us")->is_won);
}

}  // namespace
}  // namespace pando
