// The exchange over a group that the test plays, and over ranks that sum in memory.
#include <doctest/doctest.h>

#include <future>

#include "tests/worker/allreduce/exchange_fixture.h"

namespace pando {
namespace {

using std::chrono::milliseconds;

// A group of one rank that sums, or fails, or waits until it is closed.
class AloneGroup : public AllreduceGroup {
 public:
  enum class Kind { kSums, kFails, kWaits };
  explicit AloneGroup(Kind kind) : kind_(kind) {}
  Status Sum(std::span<float>) override {
    if (kind_ == Kind::kFails) return Unavailable("rank 1 is gone");
    if (kind_ != Kind::kWaits) return Status();
    closed_.get_future().wait();
    return Unavailable("closed");
  }
  Status Broadcast(std::span<std::byte>) override { return Status(); }
  void Close() override {
    if (!std::exchange(is_closed_, true)) closed_.set_value();
  }

 private:
  const Kind kind_;
  bool is_closed_ = false;
  std::promise<void> closed_;
};

TEST_CASE("what ranks bring in pieces is summed over all, step after step") {
  const JobPlan plan = SmallPlan();
  Hub hub(2);
  Rank first(plan, 0, [&] { return std::make_unique<HubGroup>(hub, 0); });
  Rank second(plan, 1, [&] { return std::make_unique<HubGroup>(hub, 1); });
  CHECK(first.exchange.buckets().size() == 2);
  first.exchange.Begin(Step(0), [](Step) { return 2; });
  second.exchange.Begin(Step(0), [](Step) { return 1; });
  for (uint64_t t = 0; t < 3; ++t) {
    const Step step(t);
    const auto k = static_cast<float>(t + 1);
    second.AddAll(plan, step, 3, 100 * k);
    first.AddAll(plan, step, 5, 10 * k);  // either node first
    first.AddAll(plan, step, 4, 1 * k);
    first.CheckStep(step, 111 * k);
    second.CheckStep(step, 111 * k);
    if (t == 2) break;
    for (Rank* rank : {&first, &second}) {
      rank->exchange.SetHash(Version(t + 1), 7);
      rank->exchange.SetWhole(Version(t + 1));
    }
  }
  for (Rank* rank : {&first, &second}) rank->exchange.SetHash(Version(3), 8);
  for (Rank* rank : {&first, &second}) {
    CHECK(Rank::Next(rank->agreed) == Version(2));  // due for evaluation
    CHECK(Rank::Next(rank->agreed) == Version(3));  // the last
    CHECK(rank->failed.Pop({}) == std::nullopt);
  }
}

TEST_CASE("a rank without a micro-batch brings zeros") {
  const JobPlan plan = SmallPlan();
  Hub hub(2);
  Rank first(plan, 0, [&] { return std::make_unique<HubGroup>(hub, 0); });
  Rank idle(plan, 1, [&] { return std::make_unique<HubGroup>(hub, 1); });
  first.exchange.Begin(Step(2), [](Step) { return 1; });
  idle.exchange.Begin(Step(2), [](Step) { return 0; });
  first.AddAll(plan, Step(2), 1, 5);
  first.CheckStep(Step(2), 5);
  idle.CheckStep(Step(2), 5);
  for (Rank* rank : {&first, &idle}) rank->exchange.SetHash(Version(3), 8);
  CHECK(Rank::Next(idle.agreed) == Version(3));  // not version 2, which it began from
}

TEST_CASE("a rank without work does not run ahead of its updates, whose sums it would overwrite") {
  const JobPlan plan = SmallPlan();
  Rank idle(plan, 0, [] { return std::make_unique<AloneGroup>(AloneGroup::Kind::kSums); });
  idle.exchange.Begin(Step(0), [](Step) { return 0; });
  idle.CheckStep(Step(0), 0);
  idle.CheckStep(Step(1), 0);
  idle.exchange.SetHash(Version(2), 7);  // due for evaluation
  CHECK_FALSE(idle.sums.Pop(std::chrono::steady_clock::now() + milliseconds(30)).has_value());
  idle.exchange.SetWhole(Version(1));
  idle.CheckStep(Step(2), 0);
}

TEST_CASE("a rank whose weights differ from rank 0's says which version it noticed at") {
  const JobPlan plan = SmallPlan();
  Hub hub(2);
  Rank first(plan, 0, [&] { return std::make_unique<HubGroup>(hub, 0); });
  Rank wrong(plan, 1, [&] { return std::make_unique<HubGroup>(hub, 1); });
  for (Rank* rank : {&first, &wrong}) {
    rank->exchange.Begin(Step(2), [](Step) { return 1; });
    rank->AddAll(plan, Step(2), 2, 1);
  }
  first.exchange.SetHash(Version(3), 8);
  wrong.exchange.SetHash(Version(3), 9);
  const auto failure = Rank::Next(wrong.failed);
  REQUIRE(failure.has_value());
  CHECK(failure->code() == StatusCode::kInternal);
  CHECK(failure->message().find("rank 1") != std::string::npos);
  CHECK(failure->message().find("version 3") != std::string::npos);
  CHECK(Rank::Next(first.agreed) == Version(3));
}

TEST_CASE("a group's failure is reported once, and an exchange that is stopped reports none") {
  const JobPlan plan = SmallPlan();
  Rank broken(plan, 0, [] { return std::make_unique<AloneGroup>(AloneGroup::Kind::kFails); });
  broken.exchange.Begin(Step(0), [](Step) { return 1; });
  broken.AddAll(plan, Step(0), 1, 5);
  const auto failure = Rank::Next(broken.failed);
  REQUIRE(failure.has_value());
  CHECK(failure->message() == "rank 1 is gone");
  for (const AloneGroup::Kind kind : {AloneGroup::Kind::kSums, AloneGroup::Kind::kWaits}) {
    Rank stopped(plan, 0, [kind] { return std::make_unique<AloneGroup>(kind); });
    stopped.exchange.Begin(Step(0), [](Step) { return 1; });
    stopped.AddAll(plan, Step(0), 1, 5);
    stopped.exchange.Stop();
    CHECK(stopped.failed.Pop({}) == std::nullopt);
  }
}

TEST_CASE("an exchange that cannot be stopped is given up, and stops when it can") {
  const JobPlan plan = SmallPlan();
  std::promise<void> peer;
  std::shared_future<void> comes = peer.get_future().share();
  Rank rank(plan, 0, [comes] {
    comes.wait();
    return std::make_unique<AloneGroup>(AloneGroup::Kind::kSums);
  });
  CHECK(rank.exchange.StopWithin(milliseconds(0)));  // not begun
  rank.exchange.Begin(Step(0), [](Step) { return 1; });
  CHECK_FALSE(rank.exchange.StopWithin(milliseconds(10)));
  peer.set_value();
  CHECK(rank.exchange.StopWithin(kPatience));
  CHECK(rank.failed.Pop({}) == std::nullopt);
}

}  // namespace
}  // namespace pando
