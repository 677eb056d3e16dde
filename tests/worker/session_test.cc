#include "worker/session.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/worker/session_fixture.h"

namespace pando {
namespace {

using Call = ComputeLog::Call;
using Calls = std::vector<Call>;

TEST_CASE("a joiner asks every primary and starts at the lowest incomplete step (P18)") {
  SessionFixture f;
  CHECK(f.Take<Ready>().empty());
  f.Wait(kMs);
  CHECK(f.Take<Ready>().size() == 1);
  f.Enter(f.MakeView(1));
  CHECK(f.Take<Question>().size() == 2);
  f.AnswerFrom(kLaneA, 0, 5);
  CHECK(f.compute.calls.empty());
  f.AnswerFrom(kLaneB, 1, 6);
  CHECK(f.compute.calls ==
        Calls{{Step(5), MicroBatches({0, 1, 2, 3})}, {Step(6), MicroBatches({0, 1, 2, 3})}});
}

TEST_CASE("questions are repeated, soon at first, until all are answered") {
  SessionFixture f;
  f.Enter(f.MakeView(1));
  f.AnswerFrom(kLaneA, 0, 0);
  f.Take<Question>();
  f.Wait(15 * kMs);
  const auto repeated = f.Take<Question>();
  REQUIRE(repeated.size() == 1);
  CHECK(repeated[0].first == kLaneB);
  f.Wait(1000 * kMs);
  CHECK(f.Take<Question>().size() <= 10);
  f.AnswerFrom(kLaneB, 1, 0);
  f.Wait(490 * kMs);  // then they are asked what they hold of what was sent (P10)
  CHECK(f.Take<Question>().empty());
}

TEST_CASE("a lane that does not answer for long gets a hint at the view (P13)") {
  SessionFixture f;
  f.Enter(f.MakeView(1));
  f.Wait(1000 * kMs);
  CHECK(!f.Take<ViewHint>().empty());
}

TEST_CASE("an answer that leaves a shard out is asked for again: it is being restored") {
  SessionFixture f;
  f.Enter(f.MakeView(1));
  f.AnswerFrom(kLaneA, 0, 3);
  f.Take<Question>();
  f.Receive(kLaneB, Answer{{1, 1}, {}});
  CHECK(f.compute.calls.empty());
  f.Wait(500 * kMs);
  CHECK(!f.Take<Question>().empty());
  f.AnswerAll(3);
  CHECK(f.compute.calls.size() == 2);
}

TEST_CASE("an answer to an earlier view's question is dropped (P17)") {
  SessionFixture f;
  f.Enter(f.MakeView(1));
  f.AnswerFrom(kLaneA, 0, 0);
  f.Enter(f.MakeView(2));
  f.Receive(kLaneA, Answer{{1, 1}, {{ShardId(0), Version(0), {}}}});
  f.AnswerFrom(kLaneB, 1, 0);
  CHECK(f.compute.calls.empty());
  f.AnswerFrom(kLaneA, 0, 0);
  CHECK(f.compute.calls.size() == 2);
}

TEST_CASE(
    "a new view gives us a dead worker's part: computed now, the next step begins again (P12)") {
  SessionFixture f;
  f.Start();
  f.FinishCall(f.compute.calls[0]);
  f.compute.calls.clear();
  View view = f.MakeView(2);
  view.owners[4].worker = view.owners[5].worker = kWorkers[0];
  f.Enter(view);
  f.AnswerAll(0, {TreeNode(2), TreeNode(12)});  // ours, and micro-batch 4
  CHECK(f.compute.abandoned == std::vector<Step>{Step(1)});
  CHECK(f.compute.calls ==
        Calls{{Step(0), MicroBatches({5})}, {Step(1), MicroBatches({0, 1, 2, 3, 4, 5})}});
}

TEST_CASE("unreplied pushes go to the new primary, and the others are sent again too") {
  SessionFixture f;
  f.Start();
  f.FinishCall(f.compute.calls[0]);
  CHECK(f.Take<Push>().size() == 2);
  View view = f.MakeView(2);
  view.shards[1].primary = kNewLane;
  f.Enter(view);
  const auto pushes = f.Take<Push>();
  REQUIRE(pushes.size() == 2);
  for (const auto& [lane, push] : pushes)
    CHECK(push.items.at(0).shard == (lane == kNewLane ? ShardId(1) : ShardId(0)));
}

using ShardIds = std::vector<ShardId>;

// At step 0, with all shards on one lane whose window has room for one.
struct NarrowWindow : SessionFixture {
  explicit NarrowWindow(const Job& job = SmallJob()) : SessionFixture(job, 0, 1, 4) {
    View view = MakeView(1);
    for (ShardPlacement& shard : view.shards) shard.primary = kLaneA;
    Enter(view);
    Answer all{view.id, {}};
    for (uint32_t i = 0; i < shard_count(); ++i) all.items.push_back({ShardId(i), Version(0)});
    Receive(kLaneA, std::move(all));
    GiveParams(0);
  }
  void Compute() { FinishCall(ComputeLog::Call(compute.calls[0])); }
  ShardIds TakePushed() {
    ShardIds shards;
    for (const auto& [lane, push] : Take<Push>()) {
      for (const PushItem& item : push.items) shards.push_back(item.shard);
    }
    return shards;
  }
};

TEST_CASE("once a step is computed, what the next forward reads first goes first, and the last") {
  NarrowWindow f;
  f.Compute();
  CHECK(f.TakePushed() == ShardIds{ShardId(3), ShardId(2), ShardId(0)});  // 3: the metrics
}

TEST_CASE("what does not fit in a lane's window goes when that moves on, from either end") {
  NarrowWindow f;
  f.Compute();
  f.TakePushed();
  f.GiveParams(0, 1);
  CHECK(f.TakePushed() == ShardIds{ShardId(1)});
  NarrowWindow other;
  other.Compute();
  other.TakePushed();
  other.GiveParams(2, 1);
  CHECK(other.TakePushed() == ShardIds{ShardId(1)});
}

TEST_CASE("what does not fit in a lane's window goes when that has not moved for long") {
  NarrowWindow f;
  f.Compute();
  f.TakePushed();
  f.Wait(PushWindow::kPatienceMax - kMs);
  CHECK(f.TakePushed().empty());
  f.Wait(2 * kMs);
  CHECK(f.TakePushed() == ShardIds{ShardId(1)});
}

TEST_CASE("in another view the window's patience begins again") {
  NarrowWindow f;
  f.Compute();
  f.Wait(PushWindow::kPatienceMax - kMs);
  View view = f.MakeView(2);
  for (ShardPlacement& shard : view.shards) shard.primary = kLaneA;
  f.Enter(view);
  CHECK(f.TakePushed().size() == 6);  // the same three again
  f.Wait(2 * kMs);
  CHECK(f.TakePushed().empty());
  f.Wait(PushWindow::kPatienceMax);
  CHECK(f.TakePushed() == ShardIds{ShardId(1)});
}

TEST_CASE("while our sums of a lane's last shard are to come, nothing is held up") {
  Job job = SessionFixture::SmallJob();
  job.push_codec = PayloadCodec::kBf16;  // a push for each of four micro-batches (P34)
  NarrowWindow f(job);
  for (uint32_t m = 0; m < 4; ++m) {
    for (uint32_t shard : {3, 2, 1, 0}) {
      auto sum = std::make_shared<FloatBuffer>(f.plan.pushes.PayloadBytes(ShardId(shard)) / 4);
      const TreeNode leaf = f.plan.steps.Tree(Step(0)).Leaf(MicroBatch(m));
      f.Emit(GradientReady{Step(0), leaf, ShardId(shard), ToBlob(SharedBuffer(sum))});
    }
    if (m < 3) CHECK(f.TakePushed() == ShardIds{ShardId(3), ShardId(2), ShardId(1), ShardId(0)});
  }
  f.Emit(StepComputed{Step(0)});
  CHECK(f.TakePushed() == ShardIds{ShardId(3), ShardId(2), ShardId(0)});
}

TEST_CASE("a new view's lanes are sent again what the window lets through") {
  NarrowWindow f;
  f.Compute();
  f.TakePushed();
  View view = f.MakeView(2);
  for (uint32_t i : {0, 1}) view.shards[i].primary = kLaneA;
  for (uint32_t i : {2, 3}) view.shards[i].primary = kNewLane;
  f.Enter(view);
  ShardIds pushed = f.TakePushed();
  std::ranges::sort(pushed);
  CHECK(pushed == ShardIds{ShardId(0), ShardId(2), ShardId(3)});
}

TEST_CASE("nothing is held up where each shard's update needs a value of all (P14)") {
  Job job = SessionFixture::SmallJob();
  job.optimizer.clip_norm = 1;
  NarrowWindow f(job);
  f.Compute();
  CHECK(f.TakePushed() == ShardIds{ShardId(3), ShardId(2), ShardId(1), ShardId(0)});
}

TEST_CASE("a shard without a primary is waited for") {
  SessionFixture f;
  f.Start();
  f.FinishCall(f.compute.calls[0]);
  View view = f.MakeView(2);
  view.shards[1].primary = kNobody;
  f.DropSent();
  f.Enter(view);
  f.AnswerFrom(kLaneA, 0, 0, {TreeNode(2)});
  f.Wait(3000 * kMs);
  for (const auto& [lane, push] : f.Take<Push>()) CHECK(lane == kLaneA);
  for (const auto& [lane, question] : f.Take<Question>()) CHECK(lane == kLaneA);
  for (const auto& [lane, silent] : f.Take<PeerSilent>()) CHECK(silent.peer == kLaneA);
  view.id.number = 3;
  view.shards[1].primary = kNewLane;
  f.Enter(view);
  bool is_pushed = false;
  for (const auto& [lane, push] : f.Take<Push>()) is_pushed |= lane == kNewLane;
  CHECK(is_pushed);
}

TEST_CASE("a view without any worker's name for a micro-batch is survived") {
  SessionFixture f;
  View view = f.MakeView(1);
  for (MicroBatchOwner& owner : view.owners) owner.worker = kUnknownNode;
  f.Enter(view);
  f.AnswerAll(0);
  f.Wait(1000 * kMs);
  CHECK(f.compute.calls.empty());
}

TEST_CASE("a joiner whose first step lies ahead follows the run until then (P18)") {
  SessionFixture f;
  View view = f.MakeView(1);
  for (uint32_t m = 0; m < 4; ++m)
    view.owners[m] = {.worker = kWorkers[0], .first_step = Step(2), .previous = kWorkers[1]};
  f.Enter(view);
  f.AnswerAll(0);
  CHECK(f.compute.calls.empty());
  f.GiveParams(0);
  f.GiveParams(1);
  CHECK(f.compute.calls == Calls{{Step(2), MicroBatches({0, 1, 2, 3})}});
}

TEST_CASE("the previous owner computes until the first step of the new one, then rests (P18)") {
  SessionFixture f;
  View view = f.MakeView(1);
  for (uint32_t m = 0; m < 4; ++m)
    view.owners[m] = {.worker = kWorkers[1], .first_step = Step(2), .previous = kWorkers[0]};
  f.Enter(view);
  f.AnswerAll(0);
  CHECK(f.compute.calls ==
        Calls{{Step(0), MicroBatches({0, 1, 2, 3})}, {Step(1), MicroBatches({0, 1, 2, 3})}});
  f.GiveParams(0);
  f.RunStep(0, kMs);
  f.RunStep(1, kMs);
  f.GiveParams(2);
  f.Wait(5000 * kMs);
  CHECK(f.compute.calls.size() == 2);
  CHECK(f.session.unreplied_count() == 0);
}

TEST_CASE("a worker that a view leaves without work rests, and works again when it is given some") {
  SessionFixture f;
  f.Start();
  f.RunStep(0, kMs);
  View view = f.MakeView(2);
  for (uint32_t m = 0; m < 4; ++m) view.owners[m].worker = kWorkers[1];
  f.Enter(view);
  f.AnswerAll(1);
  f.GiveParams(2);
  f.GiveParams(3);
  f.compute.calls.clear();
  f.Wait(5000 * kMs);
  CHECK(f.compute.calls.empty());
  f.Enter(f.MakeView(3));
  f.AnswerAll(50);
  CHECK(f.compute.calls ==
        Calls{{Step(50), MicroBatches({0, 1, 2, 3})}, {Step(51), MicroBatches({0, 1, 2, 3})}});
}

TEST_CASE("what was pushed to a lane that is not primary yet is pushed again soon") {
  SessionFixture f;
  f.Start();
  f.FinishCall(f.compute.calls[0]);
  f.Take<Push>();
  f.Receive(kLaneA, PushReply{{{.shard = ShardId(0),
                                .version = Version(1),
                                .node = TreeNode(2),
                                .outcome = PushOutcome::kNotPrimary}}});
  f.Wait(30 * kMs);
  const auto repeated = f.Take<Push>();
  REQUIRE(repeated.size() == 1);
  CHECK(repeated[0].first == kLaneA);
}

TEST_CASE("a silent lane is asked what it holds: of that nothing is pushed again (P10)") {
  SessionFixture f;
  f.Start();
  f.FinishCall(f.compute.calls[0]);
  f.DropSent();
  f.Wait(490 * kMs);
  CHECK(f.Take<Question>().empty());
  f.Wait(20 * kMs);
  CHECK(f.Take<Question>().size() == 2);
  CHECK(f.Take<Push>().empty());
  f.AnswerFrom(kLaneA, 0, 0, {TreeNode(2)});
  f.AnswerFrom(kLaneB, 1, 0, {TreeNode(1)});  // within a larger sum
  CHECK(f.Take<Push>().empty());
  CHECK(f.Take<Pull>().size() == 2);
  f.Wait(3000 * kMs);
  CHECK(f.Take<Push>().empty());
}

TEST_CASE("what a silent lane does not hold was lost, and is pushed again, once (P10)") {
  SessionFixture f;
  f.Start();
  f.FinishCall(f.compute.calls[0]);
  f.Wait(510 * kMs);
  f.DropSent();
  f.AnswerFrom(kLaneA, 0, 0, {TreeNode(3)});
  const auto pushes = f.Take<Push>();
  REQUIRE(pushes.size() == 1);
  CHECK(pushes[0].first == kLaneA);
  f.AnswerFrom(kLaneA, 0, 0, {TreeNode(3)});  // to a question from before: it is on its way
  CHECK(f.Take<Push>().empty());
}

TEST_CASE("what a lane has replied and we lack was lost, and is pulled (P10)") {
  SessionFixture f;
  f.Start();
  f.FinishCall(f.compute.calls[0]);
  f.Wait(510 * kMs);
  f.DropSent();
  f.AnswerFrom(kLaneA, 0, 1);
  CHECK(f.Take<Push>().empty());
  const auto pulls = f.Take<Pull>();
  REQUIRE(pulls.size() == 1);
  CHECK(pulls[0].second.items[0].version == Version(1));
}

// A link may take seconds for a step's gradients and for their replies.
TEST_CASE("while a lane's data come it is asked nothing, and nothing is pushed again") {
  SessionFixture f;
  f.Start();
  f.FinishCall(f.compute.calls[0]);
  f.DropSent();
  for (int i = 0; i < 10; ++i) {
    f.Wait(400 * kMs);
    f.Receive(kLaneA, PushReply{});
    const auto is_to_lane_a = [](const auto& message) { return message.first == kLaneA; };
    CHECK(std::ranges::none_of(f.Take<Question>(), is_to_lane_a));
    CHECK(std::ranges::none_of(f.Take<Push>(), is_to_lane_a));
  }
}

// Found by the simulator: "pending" of a lane that led the shard before, after the new one's loss.
TEST_CASE("what a lane held in an earlier view is pushed again (P10, P17)") {
  SessionFixture f;
  f.Start();
  f.FinishCall(f.compute.calls[0]);
  const ViewId earlier = f.session.view().id;
  f.Enter(f.MakeView(earlier.number + 1));
  f.AnswerAll(0);
  f.ReceiveIn(earlier, kLaneA,
              PushReply{{{.shard = ShardId(0),
                          .version = Version(1),
                          .node = TreeNode(2),
                          .outcome = PushOutcome::kPending}}});
  f.Wait(510 * kMs);
  f.DropSent();
  f.AnswerAll(0);
  const auto pushes = f.Take<Push>();
  CHECK(std::ranges::count(pushes, kLaneA, [](const auto& push) { return push.first; }) == 1);
}

TEST_CASE("what the lanes of a new view lose is asked for again as soon as at first") {
  SessionFixture f;
  f.Enter(f.MakeView(1));
  f.AnswerAll(0);
  f.Wait(20'000 * kMs);  // no parameters come: they are asked for ever less often
  f.DropSent();
  f.Enter(f.MakeView(2));
  CHECK(f.Take<Pull>().size() == 2);
  f.AnswerAll(0);
  f.Take<Question>();
  f.Wait(510 * kMs);
  CHECK(f.Take<Question>().size() == 2);
  f.AnswerAll(0);
  CHECK(f.Take<Pull>().size() == 2);
}

// Found with a worker that was stopped for 2 s: it stayed behind for ever, half a second each time.
TEST_CASE("a worker that fell behind pulls every shard of the version of today at once") {
  SessionFixture f;
  f.Enter(f.MakeView(1));
  f.AnswerAll(0);
  f.GiveParams(1, 0);
  f.Receive(kLaneA, PushReply{{{.shard = ShardId(0),
                                .version = Version(0),
                                .outcome = PushOutcome::kBehind,
                                .current = Version(4)}}});
  f.DropSent();
  f.AnswerAll(4);
  size_t shard_count = 0;
  for (const auto& [lane, pull] : f.Take<Pull>()) {
    for (const PullItem& item : pull.items) shard_count += item.version == Version(4);
  }
  CHECK(shard_count == 2);
}

TEST_CASE("a lane that owes an answer for two leases is reported until it answers (P23)") {
  SessionFixture f;
  f.Start();
  f.FinishCall(f.compute.calls[0]);
  f.GiveParams(0, 1);
  f.Wait(1900 * kMs);
  CHECK(f.Take<PeerSilent>().empty());
  f.Wait(1000 * kMs);
  const auto reports = f.Take<PeerSilent>();
  REQUIRE(!reports.empty());
  for (const auto& [to, silent] : reports) {
    CHECK(to == kScheduler);
    CHECK(silent.peer == kLaneB);
    CHECK(silent.silent_ms >= 2000);
  }
  f.GiveParams(1, 1);
  f.Wait(1900 * kMs);
  CHECK(f.Take<PeerSilent>().empty());
}

TEST_CASE("a new generation discards everything and starts as a joiner (P21)") {
  SessionFixture f;
  f.Start();
  f.RunStep(0, kMs);
  f.FinishCall({Step(1), MicroBatches({0, 1, 2, 3})});
  f.compute.calls.clear();
  f.DropSent();
  View view = f.MakeView(2);
  view.generation = 1;
  f.Enter(view);
  CHECK(f.compute.forget_count == 1);
  CHECK(f.session.unreplied_count() == 0);
  CHECK(f.session.known_everywhere() == Version(0));
  CHECK(f.Take<Question>().size() == 2);
  CHECK(f.Take<Push>().empty());
  f.AnswerAll(0);
  CHECK(f.compute.calls ==
        Calls{{Step(0), MicroBatches({0, 1, 2, 3})}, {Step(1), MicroBatches({0, 1, 2, 3})}});
  f.GiveParams(0);
  CHECK(std::ranges::count(f.compute.parameters, Version(0)) == 4);
}

TEST_CASE("a failure of a generation that is over is not told any more (P21)") {
  SessionFixture f;
  f.Start();
  f.Emit(ComputeFailed{Internal("a loss that is not a number")});
  f.Wait(kMs);
  CHECK(f.session.lifecycle().failure()->kind == FailureKind::kTraining);
  CHECK(!f.Take<Failure>().empty());
  View view = f.MakeView(2);
  view.generation = 1;
  f.Enter(view);
  f.Wait(1000 * kMs);
  CHECK(f.Take<Failure>().empty());
}

TEST_CASE("data that cannot be read are this machine's trouble") {
  SessionFixture f;
  f.Start();
  f.Emit(ComputeFailed{Unavailable("data/train: cannot be opened")});
  f.Wait(kMs);
  CHECK(f.Take<Failure>().back().second.kind == FailureKind::kMachine);
}

TEST_CASE("too many pictures that cannot be decoded are the job's trouble") {
  SessionFixture f;
  f.Start();
  f.Emit(ComputeFailed{Corrupt("train/a/1.jpg: a JPEG file that cannot be decoded")});
  f.Wait(kMs);
  CHECK(f.Take<Failure>().back().second.kind == FailureKind::kTraining);
}

TEST_CASE("a restarted scheduler is followed by its view") {
  SessionFixture f;
  f.Start();
  View view = f.MakeView(2);
  view.id.term = 2;
  const PeerId restarted{kSchedulerNode, Incarnation(11), 0};
  f.Enter(view, restarted);
  CHECK(f.session.scheduler() == restarted);
  f.Emit(ComputeFailed{Internal("no")});
  f.Wait(kMs);
  CHECK(f.Take<Failure>().back().first == restarted);
}

TEST_CASE("a worker that was asked to leave repeats Leave until it is stopped, and works on") {
  SessionFixture f;
  f.Start();
  f.session.Leave(f.now);
  f.Wait(1000 * kMs);
  CHECK(f.Take<Leave>().size() >= 4);
  CHECK(f.session.CurrentActivity(f.now).activity == Activity::kLeaving);
  f.FinishCall(f.compute.calls[0]);
  CHECK(f.Take<Push>().size() == 2);
  f.Receive(kScheduler, Stop{StopReason::kDrained, "drained"});
  CHECK(f.Take<Bye>().size() == 1);
  CHECK(f.session.finished());
  CHECK_FALSE(f.session.lifecycle().refusal());
}

TEST_CASE("a worker that was given up ends, and may join again") {
  SessionFixture f;
  f.Start();
  f.Receive(kScheduler, Refused{"its lease expired", RefusalKind::kGivenUp});
  CHECK(f.session.finished());
  CHECK(f.session.lifecycle().refusal() == RefusalKind::kGivenUp);
  CHECK(f.compute.abandoned.back() == Step(0));
}

TEST_CASE("a view without us makes us Ready again, which gets a given-up worker its refusal") {
  SessionFixture f;
  f.Start();
  View view = f.MakeView(2);
  std::erase_if(view.nodes, [](const NodeInfo& node) { return node.node == kWorkers[0]; });
  f.DropSent();
  f.Enter(view);
  f.Wait(kMs);
  CHECK(!f.Take<Ready>().empty());
}

}  // namespace
}  // namespace pando
