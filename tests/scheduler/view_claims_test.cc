// Members that name views which the scheduler does not know, in a run with keys (P26, P44).
#include "scheduler/views/view_claims.h"

#include <doctest/doctest.h>

#include "tests/fake_seal.h"
#include "tests/scheduler/scheduler_fixture.h"

namespace pando {
namespace {

struct KeyedFixture : Fixture {
  KeyedFixture() {
    seal = &fake;
    StartScheduler();
    StartAll();
    Wait(milliseconds(50));
    recorder.sent.clear();
  }
  ViewId NextId() const { return {scheduler->view().id.term, scheduler->view().id.number + 1}; }
  // A view that no life of the scheduler has made, with this signature.
  View Forged() const {
    View view = scheduler->view();
    view.id = NextId();
    return view;
  }
  std::string Sign(const View& view) { return fake.Sign(SealedText(kJob, view)); }
  bool IsAsked(uint64_t who) const {
    return recorder.LastTo<ViewWanted>(Incarnation(who)) != nullptr;
  }
  bool HasRolledBack() const { return recorder.HasEvent("journal-behind"); }
  // The scheduler starts again, and its journal has lost the newest view, which this is.
  ViewUpdate LoseView() {
    const std::optional<SchedulerState> old = journal.state;
    Add(22, Role::kWorker);
    const View lost = scheduler->view();
    journal.state = old;
    StartScheduler();
    scheduler->Tick(now);
    recorder.sent.clear();
    recorder.events.clear();
    return {lost, Sign(lost)};
  }
  // A member of the lost view says this.
  void SayIn(const View& view, uint64_t who, Message message) {
    Say(who, std::move(message), 0, view.id);
  }

  FakeSeal fake;
};

TEST_CASE("a view number one higher makes the scheduler ask, and changes nothing else") {
  KeyedFixture f;
  const View before = f.scheduler->view();
  SUBCASE("in a heartbeat") { f.Say(20, Heartbeat{}, 0, f.NextId()); }
  SUBCASE("in an acknowledgement") { f.From(20, ViewAck{f.NextId(), 0}); }
  SUBCASE("in a report, which does not count") {
    const PeerId lane = before.shards[0].primary;
    f.Say(lane.incarnation.value(), Progress{Version(9), {}}, lane.lane, f.NextId());
    f.Say(20, Heartbeat{}, 0, f.NextId());
    CHECK(f.scheduler->committed() == Version(0));
  }
  CHECK(f.IsAsked(20));
  f.Wait(milliseconds(1500));
  CHECK_FALSE(f.HasRolledBack());
  CHECK(f.scheduler->view().id == before.id);
}

TEST_CASE("an answer that proves nothing changes nothing") {
  KeyedFixture f;
  const View before = f.scheduler->view(), forged = f.Forged();
  View changed = before;
  changed.generation += 1;
  for (const ViewUpdate& answer : {ViewUpdate{forged, ""}, ViewUpdate{forged, f.Sign(before)},
                                   ViewUpdate{changed, f.Sign(before)},
                                   ViewUpdate{forged, f.fake.Sign(SealedText(JobId(1), forged))}}) {
    f.fake.forged_count = 0;
    f.Wait(milliseconds(250));
    f.SayIn(forged, 20, answer);
    CHECK(f.fake.forged_count == 0);  // it was not asked
    f.SayIn(forged, 20, Heartbeat{});
    for (int i = 0; i < 3; ++i) f.SayIn(forged, 20, answer);
    CHECK(f.fake.forged_count == 1);
  }
  f.SayIn(forged, 20, ViewUpdate{before, f.Sign(before)});  // our own
  f.Wait(milliseconds(1500));
  CHECK_FALSE(f.HasRolledBack());
  CHECK(f.scheduler->view().id == before.id);
  CHECK(f.scheduler->view().generation == 0);
}

TEST_CASE("a process in no view rolls nothing back, with what it claims or what it shows") {
  KeyedFixture f;
  f.Join(30, Role::kWorker);
  const View before = f.scheduler->view();
  for (int i = 0; i < 20; ++i) {
    f.SayIn(f.Forged(), 30, Heartbeat{});
    f.SayIn(f.Forged(), 30, ViewUpdate{f.Forged(), "1"});
    f.From(30, ViewAck{{before.id.term + 1, 1}, 7});
    f.Wait(milliseconds(100));
  }
  CHECK_FALSE(f.HasRolledBack());
  CHECK(f.scheduler->view().id == before.id);
  f.Exit(21, Role::kWorker);  // views are made as if it had said nothing
  f.From(10, Heartbeat{});
  CHECK(f.scheduler->view().id == ViewId{before.id.term, before.id.number + 1});
}

TEST_CASE("a claimant is asked five times a second at most") {
  KeyedFixture f;
  for (int i = 0; i < 50; ++i) {
    f.now += milliseconds(10);
    f.Say(20, Heartbeat{}, 0, f.NextId());
  }
  const auto is_question = [](const Envelope& envelope) {
    return std::holds_alternative<ViewWanted>(envelope.message);
  };
  CHECK(std::ranges::count_if(f.recorder.sent, is_question) == 3);
}

TEST_CASE("a lost view that a member shows is a rollback, before anything else is announced") {
  KeyedFixture f;
  const ViewUpdate lost = f.LoseView();
  for (uint64_t who : {10, 11, 20}) f.From(who, Heartbeat{});
  f.SayIn(*lost.view, 21, Heartbeat{});
  REQUIRE(f.IsAsked(21));
  f.now += milliseconds(400);  // the answer takes its time
  for (uint64_t who : {10, 11, 20}) f.From(who, Heartbeat{});
  CHECK(f.recorder.LastTo<ViewUpdate>(Incarnation(20)) == nullptr);
  f.SayIn(*lost.view, 21, ViewUpdate{lost});
  CHECK(f.HasRolledBack());
  f.SayIn(*lost.view, 21, Heartbeat{});  // it need not show it again
  f.Wait(milliseconds(1100));
  CHECK(f.scheduler->view().id > lost.view->id);
  CHECK(f.scheduler->view().generation == lost.view->generation + 1);
  CHECK(f.recorder.LastTo<ViewUpdate>(Incarnation(21))->view->generation == 1);
}

TEST_CASE("of two lost views the newer one counts, even if the other is shown first") {
  KeyedFixture f;
  const ViewUpdate lost = f.LoseView();
  View newer = *lost.view;
  newer.id.number += 1;
  newer.generation += 1;
  for (uint64_t who : {10, 11}) f.From(who, Heartbeat{});
  for (uint64_t who : {20, 21}) f.SayIn(newer, who, Heartbeat{});
  f.SayIn(*lost.view, 20, ViewUpdate{lost});
  f.Wait(milliseconds(500), {20, 21});
  CHECK(f.scheduler->view().generation == 0);
  f.SayIn(newer, 21, ViewUpdate{newer, f.Sign(newer)});
  f.Wait(milliseconds(1100));
  CHECK(f.scheduler->view().generation == newer.generation + 1);
}

TEST_CASE("a claim that is not proved delays a restarted scheduler by a lease, and once") {
  KeyedFixture f;
  f.StartScheduler();
  f.scheduler->Tick(f.now);
  const View before = f.scheduler->view();
  f.recorder.sent.clear();
  for (uint64_t who : {10, 11, 20}) f.From(who, Heartbeat{});
  uint16_t lane = 0;
  const auto claim = [&](Micros time) {
    for (const Micros end = f.now + time; f.now < end; f.now += milliseconds(50)) {
      f.SayIn(f.Forged(), 21, Heartbeat{});
      f.Say(21, Heartbeat{}, ++lane, f.NextId());  // it pretends to have many
      for (uint64_t who : {10, 11, 20}) f.From(who, Heartbeat{});
    }
  };
  SUBCASE("without an answer") {
    claim(milliseconds(900));
    CHECK(f.scheduler->view().id == before.id);
    claim(milliseconds(200));
  }
  SUBCASE("with a forged one") {
    claim(milliseconds(100));
    CHECK(f.scheduler->view().id == before.id);
    f.SayIn(f.Forged(), 21, ViewUpdate{f.Forged(), "1"});
    claim(milliseconds(100));
  }
  CHECK(f.scheduler->view().id > before.id);
  CHECK(f.scheduler->view().generation == 0);
  CHECK_FALSE(f.HasRolledBack());
}

TEST_CASE("without keys a claim is believed") {
  KeyedFixture f;
  f.seal = nullptr;
  f.StartScheduler();
  for (uint64_t who : {10, 11, 20, 21}) f.From(who, Heartbeat{});
  f.Say(20, Heartbeat{}, 0, f.NextId());
  CHECK(f.HasRolledBack());
  CHECK_FALSE(f.IsAsked(20));
}

}  // namespace
}  // namespace pando
