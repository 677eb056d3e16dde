// A session with layer residency: what goes to compute, and when it is asked for.
#include <doctest/doctest.h>

#include "tests/worker/session_fixture.h"
#include "worker/session.h"

namespace pando {
namespace {

using Call = ComputeLog::Call;
using Calls = std::vector<Call>;

constexpr auto kTraining = ParameterUse::kTraining;
constexpr auto kEvaluation = ParameterUse::kEvaluation;

// Started at version 0, of which nothing has arrived.
struct LayeredWorker : SessionFixture {
  static Job LayeredJob(uint64_t verify_every = 0) {
    Job job = SmallJob();
    job.parameter_residency = ParameterResidency::kLayer;
    job.verify_every = verify_every;
    return job;
  }
  explicit LayeredWorker(const Job& job = LayeredJob()) : SessionFixture(job) {
    Enter(MakeView(1));
    AnswerAll(0);
    DropSent();
  }
  void Want(uint64_t version, uint32_t shard, ParameterUse use = kTraining) {
    Emit(ParametersWanted{use, Version(version), {ShardId(shard)}});
  }
  void AnswerBehind(uint32_t shard, uint64_t version, uint64_t current) {
    Receive(session.view().shards[shard].primary, PushReply{{{.shard = ShardId(shard),
                                                              .version = Version(version),
                                                              .outcome = PushOutcome::kBehind,
                                                              .current = Version(current)}}});
  }
  struct Asked {
    PeerId lane;
    uint32_t shard;
    uint64_t version;
    bool operator==(const Asked&) const = default;
  };
  std::vector<Asked> TakePulls() {
    std::vector<Asked> asked;
    for (const auto& [lane, pull] : Take<Pull>()) {
      for (const PullItem& item : pull.items)
        asked.push_back({lane, item.shard.value(), item.version.value()});
    }
    return asked;
  }
};
using Pulls = std::vector<LayeredWorker::Asked>;

TEST_CASE("nothing is pulled before it is wanted, and then that alone") {
  LayeredWorker f;
  CHECK(f.compute.calls.size() == 2);
  f.Wait(3000 * kMs);
  CHECK(f.TakePulls().empty());
  f.Want(0, 1);
  CHECK(f.TakePulls() == Pulls{{kLaneB, 1, 0}});
  f.GiveParams(1, 0);
  CHECK(f.compute.parameters == std::vector<Version>{Version(0)});
  CHECK(f.session.parameters().wanted().size() == 0);
  f.Wait(3000 * kMs);
  CHECK(f.TakePulls().empty());
}

TEST_CASE("what is wanted is asked for again until it arrives, ever less often") {
  LayeredWorker f;
  f.Want(0, 0);
  f.Wait(510 * kMs);
  CHECK(f.TakePulls() == Pulls{{kLaneA, 0, 0}, {kLaneA, 0, 0}});
  f.Wait(60'000 * kMs);
  CHECK(f.TakePulls().size() < 25);
  f.GiveParams(0, 0);
  f.Wait(10'000 * kMs);
  CHECK(f.TakePulls().empty());
}

TEST_CASE("a shard that was dropped and is wanted again is pulled again") {
  LayeredWorker f;
  for (int pass : {1, 2}) {
    f.Want(0, 0);
    CHECK(f.TakePulls() == Pulls{{kLaneA, 0, 0}});
    f.GiveParams(0, 0);
    CHECK(f.compute.parameters.size() == static_cast<size_t>(pass));
  }
}

TEST_CASE("what a push brings back opens the barrier, and goes to compute if it is wanted (P4)") {
  LayeredWorker f;
  f.FinishCall(f.compute.calls[0]);
  f.Want(1, 0);
  CHECK(f.TakePulls().empty());  // its push asks for it
  f.FinishCall(f.compute.calls[1]);
  f.Take<Push>();
  f.GiveParams(0, 1);
  CHECK(f.compute.parameters == std::vector<Version>{Version(1)});
  CHECK(f.Take<Push>().empty());
  f.GiveParams(1, 1);  // it is not wanted, but now version 1 is committed everywhere
  CHECK(f.compute.parameters.size() == 1);
  CHECK(f.session.known_everywhere() == Version(1));
  CHECK(f.Take<Push>().size() == 2);
  f.Want(1, 1);
  CHECK(f.TakePulls() == Pulls{{kLaneB, 1, 1}});
}

TEST_CASE("a version that no push of ours asks for is pulled for the barrier (P4)") {
  LayeredWorker f;
  const Call first = f.compute.calls[0];
  f.FinishCall(first);
  f.GiveParams(0, 1);
  f.GiveParams(1, 1);
  // Step 1 is computed, and another worker's pushes make its version: ours are gone with a view
  // that gives our part away.
  View view = f.MakeView(2);
  for (MicroBatchOwner& owner : view.owners) owner.worker = kWorkers[1];
  f.Enter(view);
  f.AnswerAll(1);
  f.Emit(StepComputed{Step(1)});
  f.DropSent();
  f.Wait(600 * kMs);
  f.AnswerAll(1);
  const Pulls pulls = f.TakePulls();
  CHECK(std::ranges::all_of(pulls, [](const auto& asked) { return asked.version == 2; }));
  CHECK(pulls.size() >= 2);
  f.GiveParams(2);
  CHECK(f.session.known_everywhere() == Version(2));
  CHECK(f.compute.parameters.empty());
}

TEST_CASE("a wanted shard whose primary is gone is asked of the new one at once") {
  LayeredWorker f;
  f.Want(0, 1);
  f.Wait(3000 * kMs);
  f.DropSent();
  View view = f.MakeView(2);
  view.shards[1].primary = kNobody;
  f.Enter(view);
  f.Wait(1000 * kMs);
  CHECK(f.TakePulls().empty());
  view = f.MakeView(3);
  view.shards[1].primary = kNewLane;
  f.Enter(view);
  CHECK(f.TakePulls() == Pulls{{kNewLane, 1, 0}});
}

TEST_CASE("a lane that is not primary yet is asked for what is wanted again soon") {
  LayeredWorker f;
  f.Want(0, 1);
  f.DropSent();
  f.Receive(
      kLaneB,
      PushReply{
          {{.shard = ShardId(1), .version = Version(0), .outcome = PushOutcome::kNotPrimary}}});
  f.Wait(30 * kMs);
  CHECK(f.TakePulls() == Pulls{{kLaneB, 1, 0}});
}

TEST_CASE("a lane that owes what is wanted for two leases is reported (P23)") {
  LayeredWorker f;
  f.Want(0, 1);
  f.Wait(3000 * kMs);
  const auto reports = f.Take<PeerSilent>();
  REQUIRE(!reports.empty());
  CHECK(reports[0].second.peer == kLaneB);
}

TEST_CASE("a version that is behind is wanted no more, and its work is abandoned") {
  LayeredWorker f;
  f.Want(0, 0);
  f.Want(0, 1);
  f.DropSent();
  f.AnswerBehind(0, 0, 2);
  CHECK(f.compute.gone == std::vector<Version>{Version(0)});
  CHECK(f.session.parameters().wanted().size() == 0);
  CHECK(f.Take<Question>().size() == 2);
  CHECK(f.compute.abandoned == std::vector<Step>{Step(0)});
  f.AnswerAll(2);
  CHECK(f.compute.calls.back().step == Step(3));
  // Abandoned work may be asked for anyway: it is answered, and starts nothing.
  f.Want(0, 1);
  CHECK(f.TakePulls() == Pulls{{kLaneB, 1, 0}});
  f.AnswerBehind(1, 0, 2);
  CHECK(f.session.parameters().wanted().size() == 0);
  CHECK(f.Take<Question>().empty());
}

TEST_CASE("a step is over when its version is gone, also where the last evaluation was of it") {
  LayeredWorker f;
  f.Receive(kScheduler, Evaluate{.version = Version(0), .slice = 3});
  f.Want(0, 0, kTraining);
  f.AnswerBehind(0, 0, 2);
  CHECK(f.session.known_everywhere() == Version(1));
  CHECK(f.session.parameters().wanted().size() == 0);
}

TEST_CASE("another version to evaluate calls the former one off") {
  LayeredWorker f;
  f.Receive(kScheduler, Evaluate{.version = Version(0), .slice = 3});
  f.Want(0, 0, kEvaluation);
  f.Receive(kScheduler, Evaluate{.version = Version(1), .slice = 3});
  CHECK(f.compute.evaluation_gone == std::vector<Version>{Version(0)});
  CHECK(f.session.parameters().wanted().size() == 0);
}

TEST_CASE("a new generation wants nothing (P21)") {
  LayeredWorker f;
  f.Want(0, 0);
  f.Want(0, 1, kEvaluation);
  View view = f.MakeView(2);
  view.generation = 1;
  f.DropSent();
  f.Enter(view);
  CHECK(f.session.parameters().wanted().size() == 0);
  f.AnswerAll(0);
  f.Wait(3000 * kMs);
  CHECK(f.TakePulls().empty());
  f.GiveParams(0);
  CHECK(f.compute.parameters.empty());
}

TEST_CASE("an evaluation begins at once and pulls what it wants of its version (P31)") {
  LayeredWorker f;
  f.Receive(kScheduler, Evaluate{.version = Version(0), .slice = 3});
  CHECK(f.compute.slices == std::vector<uint32_t>{3});
  f.Wait(1000 * kMs);
  CHECK(f.TakePulls().empty());
  f.Want(0, 0, kEvaluation);
  f.Want(0, 0);
  CHECK(f.TakePulls().size() == 2);
  f.GiveParams(0, 0);
  CHECK(f.compute.evaluation_parameters == std::vector<Version>{Version(0)});
  CHECK(f.compute.parameters == std::vector<Version>{Version(0)});
  f.Emit(EvaluationResult{.version = Version(0), .slice = 3});
  CHECK(f.Take<EvaluationResult>().size() == 1);
}

TEST_CASE(
    "an evaluation whose version is gone is given up, and taken up if it is asked for again") {
  LayeredWorker f;
  const Evaluate request{.version = Version(0), .slice = 3};
  f.Receive(kScheduler, request);
  f.Want(0, 0, kEvaluation);
  f.DropSent();
  f.AnswerBehind(0, 0, 2);
  CHECK(f.compute.evaluation_gone == std::vector<Version>{Version(0)});
  CHECK(f.session.parameters().wanted().size() == 0);
  CHECK(f.Take<Question>().empty());
  CHECK(f.session.CurrentActivity(f.now).activity != Activity::kEvaluating);
  f.Receive(kScheduler, request);
  CHECK(f.compute.slices == std::vector<uint32_t>{3, 3});
}

TEST_CASE("a straggler's micro-batch and a verification pull what they want of an old step") {
  LayeredWorker f(LayeredWorker::LayeredJob(/*verify_every=*/1));
  REQUIRE(!f.compute.verified.empty());  // though nothing of version 0 is here
  CHECK(f.compute.verified[0].step == Step(0));
  f.FinishCall(f.compute.calls[0]);
  f.GiveParams(1);
  f.Want(0, 1);  // the verification's
  CHECK(f.TakePulls() == Pulls{{kLaneB, 1, 0}});
  f.GiveParams(1, 0);
  CHECK(f.compute.parameters == std::vector<Version>{Version(0)});
}

}  // namespace
}  // namespace pando
