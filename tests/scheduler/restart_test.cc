// A scheduler that dies and starts again from its journal.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/scheduler/scheduler_fixture.h"

namespace pando {
namespace {

uint64_t ViewsSent(const Recorder& recorder) {
  return static_cast<uint64_t>(std::ranges::count_if(recorder.sent, [](const Envelope& envelope) {
    return std::holds_alternative<ViewUpdate>(envelope.message);
  }));
}

TEST_CASE("a scheduler that starts again lets everybody report before it says a word") {
  Fixture f;
  f.StartAll();
  f.Commit(50);
  const View before = f.scheduler->view();
  f.StartScheduler();
  f.recorder.sent.clear();
  f.scheduler->Tick(f.now);
  for (uint64_t who : {10, 11, 20}) f.From(who, Heartbeat{});
  CHECK(ViewsSent(f.recorder) == 0);
  f.From(21, Heartbeat{});
  CHECK(f.scheduler->view().id.term == before.id.term + 1);
  CHECK(f.scheduler->view().id > before.id);
  CHECK(f.scheduler->view().generation == before.generation);
  for (size_t s = 0; s < before.shards.size(); ++s)
    CHECK(f.scheduler->view().shards[s].primary == before.shards[s].primary);
  for (uint64_t who : {10, 11, 20, 21})
    CHECK(f.recorder.LastTo<ViewUpdate>(Incarnation(who)) != nullptr);
  for (uint64_t who : {10, 11, 20, 21}) f.From(who, ViewAck{f.scheduler->view().id, 0});
  CHECK(f.recorder.faults.back().target == "scheduler");
  CHECK(f.recorder.faults.back().recovered_ms >= 0);
}

TEST_CASE(
    "a fault just after the scheduler's start is recorded with the step that the run had reached") {
  Fixture f;
  f.StartAll();
  f.Commit(50);
  f.next_row = Step(49);
  f.StartScheduler();
  f.Exit(21, Role::kWorker);
  for (const FaultRecord& fault : f.recorder.faults) CHECK(fault.step == Step(49));
  for (uint64_t who : {10, 11, 20}) f.From(who, Heartbeat{});
  f.Commit(60);
  f.Exit(20, Role::kWorker);
  CHECK(f.recorder.faults.back().step == Step(60));
}

TEST_CASE("the recorder gets a fault once the journal has it, so that ids stay unique") {
  Fixture f;
  f.StartAll();
  f.Exit(21, Role::kWorker);
  CHECK(f.recorder.faults.back().id == f.journal.state->faults.back().id);
  const size_t told_count = f.recorder.faults.size();
  f.journal.refuses = true;
  f.Exit(20, Role::kWorker);
  CHECK(f.recorder.faults.size() == told_count);
}

TEST_CASE("a process that does not report to a new scheduler is dead after its lease") {
  Fixture f;
  f.StartAll();
  f.StartScheduler();
  f.Wait(milliseconds(1300), {21});
  CHECK(f.CountShares(20) == 8);
  CHECK(f.NodeFor(21) == kUnknownNode);
}

TEST_CASE("a message to an earlier life of the scheduler is a fact all the same") {
  Fixture f;
  f.StartAll();
  const PeerId earlier = f.self;
  f.StartScheduler();
  for (uint64_t who : {10, 11, 20, 21}) f.From(who, Heartbeat{});
  f.self = earlier;
  f.Commit(7);
  CHECK(f.scheduler->committed() == Version(7));
}

TEST_CASE("an acknowledgement to an earlier life does not say that the new one is known") {
  Fixture f;
  f.StartAll();
  const PeerId earlier = f.self;
  f.StartScheduler();
  for (uint64_t who : {10, 11, 20, 21}) f.From(who, Heartbeat{});
  const PeerId self = std::exchange(f.self, earlier);
  f.From(20, ViewAck{f.scheduler->view().id, 0});  // it has the view from another member
  f.self = self;
  f.recorder.sent.clear();
  f.Wait(milliseconds(300));
  CHECK(f.recorder.LastTo<ViewUpdate>(Incarnation(20)) != nullptr);
  f.From(20, ViewAck{f.scheduler->view().id, 0});
  f.recorder.sent.clear();
  f.Wait(milliseconds(300));
  CHECK(f.recorder.LastTo<ViewUpdate>(Incarnation(20)) == nullptr);
}

TEST_CASE("a run that was gathering goes on gathering") {
  Fixture f;
  f.Join(10, Role::kServer);
  f.BeReady(10);
  f.StartScheduler();
  f.scheduler->Tick(f.now);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kGathering);
  CHECK(f.scheduler->membership().MissingText() == "1 of 2 servers, 0 of 2 workers");
}

TEST_CASE("a view beyond the journal is a rollback in a higher term") {
  Fixture f;
  f.StartAll();
  const std::optional<SchedulerState> old = f.journal.state;
  f.Add(22, Role::kWorker);  // a view that the disk then loses
  const View lost = f.scheduler->view();
  f.journal.state = old;
  f.StartScheduler();
  f.scheduler->Tick(f.now);
  for (uint64_t who : {10, 11, 20, 21}) f.Say(who, Heartbeat{}, 0, lost.id);
  f.Wait(milliseconds(1100));
  CHECK(f.recorder.HasEvent("journal-behind"));
  CHECK(f.scheduler->view().id > lost.id);
  CHECK(f.scheduler->view().generation == lost.generation + 1);
}

TEST_CASE("the journal's refusal silences a scheduler for good") {
  Fixture f;
  f.StartAll();
  f.journal.refuses = true;
  const size_t sent = f.recorder.sent.size();
  f.Exit(21, Role::kWorker);
  f.Wait(milliseconds(500));
  CHECK(f.scheduler->is_fenced());
  CHECK(f.recorder.sent.size() == sent);
  CHECK(f.scheduler->NextDeadline() == kNever);
}

TEST_CASE("of two schedulers on one journal the older one falls silent") {
  Fixture f;
  f.StartAll();
  auto older = std::move(f.scheduler);
  f.StartScheduler();
  f.scheduler->Tick(f.now);
  older->OnMessage(f.now, {.job = Fixture::kJob,
                           .sender = {kUnknownNode, Incarnation(77), 0},
                           .receiver = {kSchedulerNode, {}, 0},
                           .message = Register{.role = Role::kWorker, .host = "h"}});
  const size_t sent = f.recorder.sent.size();
  older->Tick(f.now);
  CHECK(older->is_fenced());
  CHECK(f.recorder.sent.size() == sent);
  CHECK_FALSE(f.scheduler->is_fenced());
}

TEST_CASE("a resumed run gathers its members and begins another generation") {
  Fixture f;
  f.StartAll();
  f.Commit(50);
  f.StartScheduler(/*is_resumed=*/true);
  f.scheduler->Tick(f.now);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kGathering);
  CHECK(f.scheduler->membership().MissingText() == "0 of 2 servers, 0 of 2 workers");
  f.From(20, Heartbeat{});  // of the old run
  CHECK(f.scheduler->membership().MissingText() == "0 of 2 servers, 0 of 2 workers");
  for (uint64_t who : {40, 41}) f.Join(who, Role::kServer);
  for (uint64_t who : {42, 43}) f.Join(who, Role::kWorker);
  for (uint64_t who : {40, 41, 42, 43}) f.BeReady(who);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
  CHECK(f.scheduler->view().generation == 1);
  CHECK(f.scheduler->view().id.term == 2);
  CHECK(f.NodeFor(40) != kUnknownNode);
  CHECK(f.recorder.HasEvent("resumed"));
}

}  // namespace
}  // namespace pando
