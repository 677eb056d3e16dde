#include "scheduler/members/leases.h"

#include <doctest/doctest.h>

#include <string>

namespace pando {
namespace {

using std::chrono::milliseconds;

constexpr Micros kLease = milliseconds(1000);
constexpr NodeId kFirst{1};
constexpr NodeId kSecond{2};

struct LeasesFixture {
  LeasesFixture() : leases(kLease, [](NodeId) { return kLease; }) {
    leases.Add(kFirst);
    leases.Add(kSecond);
    leases.Begin(now);
    leases.Judge(now);
  }
  // Lets the time pass in steps that are short compared to a lease; `heard` sends at each.
  std::vector<Leases::Expired> Wait(Micros time, std::optional<NodeId> heard) {
    std::vector<Leases::Expired> dead;
    for (const Micros until = now + time; now < until;) {
      now += milliseconds(100);
      if (heard) {
        leases.OnHeardOfRun(now);
        leases.OnHeard(now, *heard);
      }
      for (const Leases::Expired& expired : leases.Judge(now)) {
        dead.push_back(expired);
        leases.Remove(expired.node);
      }
    }
    return dead;
  }
  Micros now{1'000'000};
  Leases leases;
};

TEST_CASE("a member that is silent for longer than its lease is dead") {
  LeasesFixture f;
  CHECK(f.Wait(kLease, kFirst).empty());
  const auto dead = f.Wait(milliseconds(100), kFirst);
  REQUIRE(dead.size() == 1);
  CHECK(dead[0].node == kSecond);
  CHECK(std::string(dead[0].detected_by) == "lease");
}

TEST_CASE("a member whose connection broke is dead after a short grace, unless it sends") {
  LeasesFixture f;
  f.leases.OnDisconnect(f.now, kFirst);
  f.leases.OnDisconnect(f.now, kSecond);
  CHECK(f.leases.IsSuspected(kFirst));
  const auto dead = f.Wait(Leases::kSuspectGrace, kFirst);
  CHECK_FALSE(f.leases.IsSuspected(kFirst));
  REQUIRE(dead.size() == 1);
  CHECK(dead[0].node == kSecond);
  CHECK(std::string(dead[0].detected_by) == "socket");
}

TEST_CASE("a pause of this process renews all leases (P27)") {
  LeasesFixture f;
  f.now += 10 * kLease;
  CHECK(f.leases.Judge(f.now).empty());
  CHECK(f.leases.IsUnheard(f.now, kFirst));
  CHECK(f.Wait(kLease / 2, kFirst).empty());
}

TEST_CASE("while no member sends none is dead, and that is reported once (P27)") {
  LeasesFixture f;
  CHECK_FALSE(f.leases.TakeDeafness(f.now));
  CHECK(f.Wait(10 * kLease, std::nullopt).empty());
  CHECK(f.leases.TakeDeafness(f.now) == std::optional<Micros>(10 * kLease));
  CHECK_FALSE(f.leases.TakeDeafness(f.now));
  f.Wait(milliseconds(100), kFirst);
  f.Wait(2 * kLease, std::nullopt);
  CHECK(f.leases.TakeDeafness(f.now).has_value());
}

TEST_CASE("the next deadline is soon enough to notice a pause, a broken connection or a lease") {
  LeasesFixture f;
  CHECK(f.leases.NextDeadline() == f.now + kLease / 4);
  f.leases.Judge(f.now);
  f.leases.OnDisconnect(f.now - kLease / 4, kFirst);
  CHECK(f.leases.NextDeadline() == f.now - kLease / 4 + Leases::kSuspectGrace);
}

}  // namespace
}  // namespace pando
