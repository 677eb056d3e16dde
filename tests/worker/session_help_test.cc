// Stragglers and verification: what a session computes besides its own.
#include <doctest/doctest.h>

#include "proto/assignment.h"
#include "tests/worker/session_fixture.h"
#include "worker/session.h"

namespace pando {
namespace {

using Call = ComputeLog::Call;
using Calls = std::vector<Call>;

constexpr Micros kPatience = 3 * kStepTime;

// At step 4, whose part of ours is done; steps have taken kStepTime.
struct WaitingWorker : SessionFixture {
  explicit WaitingWorker(uint32_t rank = 0, const Job& job = SmallJob())
      : SessionFixture(job, rank) {
    Start();
    for (uint64_t step = 0; step < 4; ++step) RunStep(step, kStepTime);
    FinishCall(*std::ranges::find(compute.calls, Step(4), &Call::step));
    compute.calls.clear();
    compute.abandoned.clear();
    DropSent();
  }
};

TEST_CASE("a worker that waits much longer than a step computes what a straggler owes") {
  WaitingWorker f;
  f.Wait(kPatience - kMs);
  CHECK(f.Take<Question>().empty());
  f.Wait(2 * kMs);
  CHECK(f.Take<Question>().size() == 2);
  f.AnswerAll(4, {TreeNode(2), TreeNode(6)});  // micro-batches 0-3 and 4-5
  CHECK(f.compute.abandoned == std::vector<Step>{Step(5)});
  REQUIRE(f.compute.calls.size() == 2);
  CHECK(f.compute.calls[0] == Call{Step(4), MicroBatches({6})});
  CHECK(f.compute.calls[1].step == Step(5));
}

TEST_CASE("a short step is given 100 ms all the same") {
  SessionFixture f;
  f.Start();
  for (uint64_t step = 0; step < 4; ++step) f.RunStep(step, kMs);
  f.FinishCall(*std::ranges::find(f.compute.calls, Step(4), &Call::step));
  f.DropSent();
  f.Wait(99 * kMs);
  CHECK(f.Take<Question>().empty());
  f.Wait(2 * kMs);
  CHECK(f.Take<Question>().size() == 2);
}

TEST_CASE("help is one micro-batch for each thread at a time, asked for again in between") {
  WaitingWorker f;
  f.Wait(kPatience);
  f.AnswerAll(4, {TreeNode(2), TreeNode(6)});
  f.Wait(1000 * kMs);
  REQUIRE(f.compute.calls.size() == 2);
  f.DropSent();
  f.FinishCall(f.compute.calls[0]);
  CHECK(f.Take<Push>().size() == 2);
  CHECK(f.Take<Question>().size() == 2);
  f.compute.calls.clear();
  f.AnswerAll(4, {TreeNode(2), TreeNode(6), TreeNode(14)});
  REQUIRE(!f.compute.calls.empty());
  CHECK(f.compute.calls[0] == Call{Step(4), MicroBatches({7})});
}

TEST_CASE("what one shard lacks is missing, what all hold or what was issued is not computed") {
  WaitingWorker f;
  f.Wait(kPatience);
  f.AnswerFrom(kLaneA, 0, 4, {TreeNode(2), TreeNode(6), TreeNode(14)});
  f.AnswerFrom(kLaneB, 1, 4, {TreeNode(6), TreeNode(7)});  // 0-3 were issued here, and lost
  REQUIRE(!f.compute.calls.empty());
  CHECK(f.compute.calls[0] == Call{Step(4), MicroBatches({7})});
}

TEST_CASE("nothing is computed while a server owes its answer") {
  WaitingWorker f;
  f.Wait(kPatience);
  f.AnswerFrom(kLaneA, 0, 4, {TreeNode(2)});
  f.Wait(5000 * kMs);
  CHECK(f.compute.calls.empty());
  CHECK(!f.Take<PeerSilent>().empty());
}

TEST_CASE("nothing is computed when all is held: a server is slow, not a worker") {
  WaitingWorker f;
  for (int round = 0; round < 5; ++round) {
    f.Wait(kPatience + kMs);
    f.AnswerAll(4, {TreeNode(2), TreeNode(3)});
  }
  CHECK(f.compute.calls.empty());
  CHECK(f.Take<Question>().size() <= 12);
}

TEST_CASE("a shard that has the next version lacks nothing") {
  WaitingWorker f;
  f.GiveParams(0, 5);
  f.Wait(kPatience);
  f.AnswerFrom(kLaneA, 0, 5);
  f.AnswerFrom(kLaneB, 1, 4, {TreeNode(2), TreeNode(3)});
  CHECK(f.compute.calls.empty());
}

TEST_CASE("helpers begin at different places") {
  WaitingWorker last(2);
  last.Wait(kPatience);
  last.AnswerAll(4, {TreeNode(7)});
  REQUIRE(!last.compute.calls.empty());
  CHECK(last.compute.calls[0] == Call{Step(4), MicroBatches({4})});
  WaitingWorker middle(1);
  middle.Wait(kPatience);
  middle.AnswerAll(4, {TreeNode(6)});
  CHECK(middle.compute.calls[0] == Call{Step(4), MicroBatches({2})});
}

TEST_CASE("help ends when the version is known, and the next step begins") {
  WaitingWorker f;
  f.Wait(kPatience);
  f.AnswerAll(4, {TreeNode(2), TreeNode(6)});
  f.compute.calls.clear();
  f.compute.abandoned.clear();
  f.GiveParams(5);
  CHECK(f.compute.abandoned == std::vector<Step>{Step(4)});
  REQUIRE(!f.compute.calls.empty());
  CHECK(f.compute.calls[0] == Call{Step(5), MicroBatches({0, 1, 2, 3})});
  f.DropSent();
  f.Wait(90 * kMs);
  CHECK(f.Take<Question>().empty());
}

TEST_CASE("a new view begins the wait again: all workers send again what a lane lost") {
  WaitingWorker f;
  f.Wait(kPatience - kMs);
  f.Enter(f.MakeView(2));
  f.AnswerAll(4, {TreeNode(2)});
  CHECK(f.compute.calls.empty());
  f.DropSent();
  f.Wait(kPatience - kMs);
  CHECK(f.Take<Question>().empty());
  f.Wait(2 * kMs);
  CHECK(f.Take<Question>().size() == 2);
}

TEST_CASE("no worker helps before a step has been measured") {
  SessionFixture f;
  f.Start();
  f.FinishCall(f.compute.calls[0]);
  f.DropSent();
  const size_t calls = f.compute.calls.size();
  for (int i = 0; i < 10; ++i) {
    f.Wait(1000 * kMs);
    f.AnswerAll(0, {TreeNode(2)});
  }
  CHECK(f.compute.calls.size() == calls);
}

TEST_CASE("a step that needed help is no measure of the usual time") {
  StepClock clock;
  clock.OnVersion(Micros(0), Version(1));
  clock.OnVersion(kMs, Version(2));  // met in its middle
  CHECK_FALSE(clock.patience().has_value());
  clock.OnVersion(kMs + kStepTime, Version(3));
  CHECK(clock.patience() == kPatience);
  clock.Disturb();
  clock.OnVersion(100 * kStepTime, Version(4));
  CHECK(clock.patience() == kPatience);
  clock.OnVersion(104 * kStepTime, Version(8));  // four steps, seen at once
  CHECK(clock.patience() == kPatience);
  clock.OnVersion(600 * kStepTime, Version(0));  // a rollback
  CHECK(clock.patience() == kPatience);
  CHECK_FALSE(clock.OnVersion(700 * kStepTime, Version(0)));
}

TEST_CASE("as many micro-batches are helped with at once as there are computing threads") {
  Job job = SessionFixture::SmallJob();
  job.threads = 3;
  WaitingWorker middle(1, job);
  middle.Wait(kPatience);
  middle.AnswerAll(4, {TreeNode(14)});  // 6; 4 and 5 were ours
  REQUIRE(!middle.compute.calls.empty());
  CHECK(middle.compute.calls[0] == Call{Step(4), MicroBatches({1, 2, 3})});
  WaitingWorker last(2, job);
  last.Wait(kPatience);
  last.AnswerAll(4, {TreeNode(2)});
  REQUIRE(!last.compute.calls.empty());
  CHECK(last.compute.calls[0] == Call{Step(4), MicroBatches({4, 5})});
}

// The third of three workers, to which the view gives nothing; steps take kStepTime, the last seen
// made version 15.
struct IdleWorker : SessionFixture {
  IdleWorker() : SessionFixture(SmallJob(), 2) {
    Enter(IdleView(1));
    AnswerAll(0);
    for (uint64_t version = 3; version <= 15; version += 3) {
      Wait(kPatience);
      CHECK(!Take<Question>().empty());
      AnswerAll(version);
    }
  }
  View IdleView(uint64_t number) const {
    View view = MakeView(number);
    for (uint32_t m : {6, 7}) view.owners[m].worker = kWorkers[0];
    return view;
  }
};

TEST_CASE("a worker without work asks how far the run is, and pulls nothing") {
  IdleWorker f;
  CHECK(f.Take<Pull>().empty());
  CHECK(f.compute.calls.empty());
}

TEST_CASE("a worker without work helps when a step takes much longer, and then rests again") {
  IdleWorker f;
  f.Wait(kPatience);
  f.AnswerAll(15, {TreeNode(2), TreeNode(6)});  // 0-3 and 4-5
  CHECK(f.compute.calls == Calls{{Step(15), MicroBatches({7})}});
  const auto pulls = f.Take<Pull>();
  REQUIRE(pulls.size() == 2);
  CHECK(pulls[0].second.items[0].version == Version(15));
  f.GiveParams(15);
  f.FinishCall(ComputeLog::Call(f.compute.calls[0]));
  CHECK(f.Take<Push>().size() == 2);
  f.AnswerAll(15, {TreeNode(2), TreeNode(6), TreeNode(15)});
  CHECK(f.compute.calls.size() == 2);
  CHECK(f.compute.calls[1] == Call{Step(15), MicroBatches({6})});
  f.GiveParams(16);  // others were faster
  CHECK(f.compute.abandoned == std::vector<Step>{Step(15)});
  f.DropSent();
  f.Wait(1000 * kMs);
  CHECK(f.Take<Pull>().empty());
  CHECK(!f.Take<Question>().empty());
  CHECK(f.compute.calls.size() == 2);
}

TEST_CASE("a worker that helped without own work and is given some computes it once") {
  IdleWorker f;
  f.Wait(kPatience);
  f.AnswerAll(15, {TreeNode(2), TreeNode(6)});
  f.Enter(f.MakeView(2));
  f.AnswerAll(15, {TreeNode(2), TreeNode(6)});
  REQUIRE(f.compute.calls.size() == 3);
  CHECK(f.compute.calls[1] == Call{Step(15), MicroBatches({6})});
  CHECK(f.compute.calls[2] == Call{Step(16), MicroBatches({6, 7})});
}

TEST_CASE("a worker that no view has does not help") {
  IdleWorker f;
  View view = f.IdleView(2);
  std::erase_if(view.nodes, [](const NodeInfo& node) { return node.node == kWorkers[2]; });
  f.Enter(view);
  f.AnswerAll(15, {TreeNode(2), TreeNode(6)});
  f.DropSent();
  f.Wait(1000 * kMs);
  CHECK(f.Take<Question>().empty());
  CHECK(f.compute.calls.empty());
}

// ---- verification (P41) -------------------------------------------------------------------------

Job VerifiedJob() {
  Job job = SessionFixture::SmallJob();
  job.verify_every = 1;
  return job;
}

TEST_CASE("the verifier of a micro-batch is the next worker by rank that has work (P41)") {
  SessionFixture f;
  View view = f.MakeView(1);
  CHECK(FindVerifier(view, Step(0), MicroBatch(0)) == kWorkers[1]);
  CHECK(FindVerifier(view, Step(0), MicroBatch(4)) == kWorkers[2]);
  CHECK(FindVerifier(view, Step(0), MicroBatch(7)) == kWorkers[0]);
  for (uint32_t m : {4, 5}) view.owners[m].worker = kWorkers[0];
  CHECK(FindVerifier(view, Step(0), MicroBatch(0)) == kWorkers[2]);
  for (MicroBatchOwner& owner : view.owners) owner.worker = kWorkers[0];
  CHECK(FindVerifier(view, Step(0), MicroBatch(0)) == kUnknownNode);
  for (MicroBatchOwner& owner : view.owners) owner.worker = kUnknownNode;
  CHECK(FindVerifier(view, Step(0), MicroBatch(0)) == kUnknownNode);
}

TEST_CASE("a verifier is of the owner's kind, or there is none (P40, P41)") {
  SessionFixture f;
  View view = f.MakeView(1);
  for (NodeInfo& node : view.nodes) node.probe_hash = node.node == kWorkers[1] ? 2 : 1;
  CHECK(FindVerifier(view, Step(0), MicroBatch(0)) == kWorkers[2]);
  CHECK(FindVerifier(view, Step(0), MicroBatch(7)) == kWorkers[0]);
  CHECK(FindVerifier(view, Step(0), MicroBatch(4)) == kUnknownNode);
}

TEST_CASE("one micro-batch in k is verified, the same ones for everybody") {
  Job job = VerifiedJob();
  job.verify_every = 4;
  const SessionFixture f(job), other(job);
  uint32_t count = 0;
  for (uint64_t step = 0; step < 1000; ++step) {
    for (uint32_t m = 0; m < 8; ++m) {
      count += f.plan.IsVerified(Step(step), MicroBatch(m));
      CHECK(f.plan.IsVerified(Step(step), MicroBatch(m)) ==
            other.plan.IsVerified(Step(step), MicroBatch(m)));
    }
  }
  CHECK(count > 1850);
  CHECK(count < 2150);
}

TEST_CASE("verifications are handed out once their step is the lowest, and again in a new view") {
  SessionFixture f(VerifiedJob());
  f.Start();
  CHECK(f.compute.verified == Calls{{Step(0), MicroBatches({6})}, {Step(0), MicroBatches({7})}});
  f.compute.verified.clear();
  f.GiveParams(0, 1);
  CHECK(f.compute.verified.empty());
  View view = f.MakeView(2);
  view.owners[5].worker = kWorkers[2];
  f.Enter(view);
  f.AnswerAll(0);
  CHECK(f.compute.verified == Calls{{Step(0), MicroBatches({5})}});
}

TEST_CASE("hashes are repeated until the scheduler knows them") {
  SessionFixture f(VerifiedJob());
  f.Start();
  f.Emit(GradientHashed{Step(0), MicroBatch(6), 66});
  f.Emit(GradientHashed{Step(0), MicroBatch(0), 60});
  f.Emit(GradientHashed{Step(1), MicroBatch(0), 61});
  f.Wait(25 * kMs);
  const auto first = f.Take<GradientHashes>();
  REQUIRE(first.size() == 1);
  REQUIRE(first[0].second.items.size() == 3);
  CHECK(first[0].second.items[0].micro_batch == MicroBatch(0));
  CHECK(first[0].second.items[1].hash == 66);
  CHECK(first[0].second.items[2].step == Step(1));
  f.Receive(kScheduler, GradientHashesAck{Step(1)});
  f.Wait(250 * kMs);
  const auto second = f.Take<GradientHashes>();
  REQUIRE(!second.empty());
  CHECK(second.back().second.items.size() == 1);
  f.Receive(kScheduler, GradientHashesAck{Step(2)});
  f.Wait(1000 * kMs);
  CHECK(f.Take<GradientHashes>().empty());
}

TEST_CASE("a hash that was never said is said though its step is settled") {
  SessionFixture f(VerifiedJob());
  f.Start();
  f.Emit(GradientHashed{Step(0), MicroBatch(0), 60});
  f.Receive(kScheduler, GradientHashesAck{Step(1)});
  f.Wait(25 * kMs);
  const auto reports = f.Take<GradientHashes>();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].second.items[0].hash == 60);
  f.Receive(kScheduler, GradientHashesAck{Step(1)});
  f.Wait(1000 * kMs);
  CHECK(f.Take<GradientHashes>().empty());
}

TEST_CASE("of verifications that the run went past, the scheduler hears that there is no hash") {
  SessionFixture f(VerifiedJob());
  f.Start();
  f.GiveParams(4);
  f.Wait(25 * kMs);
  const auto reports = f.Take<GradientHashes>();
  REQUIRE(!reports.empty());
  REQUIRE(reports.back().second.items.size() == 6);  // of micro-batches 6 and 7, steps 1 to 3
  for (const GradientHash& item : reports.back().second.items) CHECK(item.hash == 0);
  CHECK(reports.back().second.items.front().step == Step(1));
  CHECK(reports.back().second.items.back().step == Step(3));
}

TEST_CASE("reports that are not acknowledged are bounded, the oldest go first (I6)") {
  GradientReports reports;
  for (uint64_t step = 0; step < GradientReports::kReportsMax + 10; ++step)
    reports.Add(Micros(0), {Step(step), MicroBatch(0), 1});
  CHECK(reports.size() == GradientReports::kReportsMax);
  const auto message = reports.TakeDue(kMs * 1000);
  REQUIRE(message.has_value());
  CHECK(message->items.size() == GradientReports::kReportsPerMessageMax);
  CHECK(message->items.front().step == Step(10));
}

}  // namespace
}  // namespace pando
