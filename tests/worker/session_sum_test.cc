// The session among the workers of its host: as a giver, and as the relay that sums and pushes
// (P6a).
#include "tests/worker/session_fixture.h"

namespace pando {
namespace {

using std::chrono::milliseconds;

constexpr PeerId kRelay{kWorkers[0], Incarnation(100), 0};
constexpr TreeNode kOfRelay{2};
constexpr TreeNode kOfBoth{3};

Job HostJob() {
  Job job = SessionFixture::SmallJob();
  job.host_sum = SumUse::kAlways;
  return job;
}

// One float for all, so that a sum's is that of its summands' floats.
PushItem MakeItem(const SessionFixture& f, uint32_t shard, uint64_t step, TreeNode node,
                  float value) {
  auto floats = std::make_shared<FloatBuffer>(f.plan.shards.range(ShardId(shard)).size());
  std::ranges::fill(floats->span(), value);
  return {ShardId(shard), Step(step), node, ToBlob(SharedBuffer(floats))};
}

void Give(SessionFixture& f, const PeerId& giver, uint64_t step, TreeNode node, float value) {
  Push push;
  for (uint32_t shard = 0; shard < f.shard_count(); ++shard)
    push.items.push_back(MakeItem(f, shard, step, node, value));
  f.Receive(giver, std::move(push));
}

struct PushedSum {
  PeerId receiver;
  TreeNode node;
  float first = 0;
  bool operator==(const PushedSum&) const = default;
};
std::vector<PushedSum> TakePushed(SessionFixture& f) {
  std::vector<PushedSum> pushed;
  for (const auto& [receiver, push] : f.Take<Push>()) {
    for (const PushItem& item : push.items)
      pushed.push_back({receiver, item.node, item.payload.floats().front()});
  }
  std::ranges::stable_sort(pushed, {}, &PushedSum::receiver);  // workers begin at different lanes
  return pushed;
}

// The host's gradients are relied on only from the second step on.
void RunFirstStep(SessionFixture& f) {
  f.Start();
  f.FinishCall(f.compute.calls.at(0));
  Give(f, kGiver, 0, kOfGiver, 1);
  Give(f, kOther, 0, kOfOther, 2);
  f.DropSent();
  f.GiveParams(1);
  f.DropSent();
}

TEST_CASE("a giver sends nothing to the lanes, and takes parameters of the relay") {
  SessionFixture f(HostJob(), 1);
  f.Start();
  f.DropSent();
  f.FinishCall(f.compute.calls.at(0));
  CHECK(TakePushed(f) == std::vector<PushedSum>(2, {kRelay, kOfGiver, 0}));
  CHECK(f.Take<Pull>().empty());
  CHECK(f.session.CurrentActivity(f.now).waiting_for == kRelay);
  f.GiveParamsFrom(kRelay, 1);
  CHECK(f.session.unreplied_count() == 0);
  CHECK(f.session.known_everywhere() == Version(1));
  CHECK(f.session.sent_bytes().pushed == 0);
  CHECK(f.session.sent_bytes().given > 0);
}

TEST_CASE("a relay that answers no question is given nothing until it answers one") {
  SessionFixture f(HostJob(), 1);
  f.Start();
  f.FinishCall(f.compute.calls.at(0));
  f.DropSent();
  f.Wait(SumGiver::kQuiet);
  const auto questions = f.Take<Question>();
  REQUIRE(questions.size() == 1);
  CHECK(questions[0].first == kRelay);
  CHECK(TakePushed(f).empty());
  f.Wait(SumGiver::kPatience + SumGiver::kAskAgain);
  CHECK(TakePushed(f) == std::vector<PushedSum>{{kLaneA, kOfGiver, 0}, {kLaneB, kOfGiver, 0}});
  f.Enter(f.MakeView(2));
  f.AnswerAll(0);
  CHECK(TakePushed(f) == std::vector<PushedSum>{{kLaneA, kOfGiver, 0}, {kLaneB, kOfGiver, 0}});
  CHECK(f.session.has_given_up_relay());
  const auto is_asked = [&] {
    const auto asked = f.Take<Question>();
    return std::ranges::any_of(asked, [](const auto& q) { return q.first == kRelay; });
  };
  CHECK(is_asked());
  f.Wait(SumGiver::kAskGivenUp);
  CHECK(is_asked());
  f.Receive(kRelay, Answer{f.session.view().id, {}});
  CHECK(!f.session.has_given_up_relay());
  f.GiveParams(1);
  f.FinishCall(f.compute.calls.at(1));
  CHECK(TakePushed(f) == std::vector<PushedSum>(2, {kRelay, kOfGiver, 0}));
}

TEST_CASE("a question that was lost is no reason to give up later") {
  SessionFixture f(HostJob(), 1);
  f.Start();
  f.FinishCall(f.compute.calls.at(0));
  f.Wait(SumGiver::kQuiet);  // asked, and all comes from the lanes meanwhile
  f.GiveParams(1);
  f.Wait(10 * SumGiver::kPatience);
  f.FinishCall(f.compute.calls.at(1));
  f.Wait(SumGiver::kQuiet);
  f.Wait(SumGiver::kAskAgain);
  CHECK(!f.session.has_given_up_relay());
}

TEST_CASE("what may have been under way is not given again, until it is asked about once more") {
  SessionFixture f(HostJob(), 1);
  f.Start();
  f.FinishCall(f.compute.calls.at(0));
  f.GiveParamsFrom(kRelay, 1);
  f.Wait(SumGiver::kQuiet / 2);
  f.FinishCall(f.compute.calls.at(1));
  f.DropSent();
  const auto answer_question = [&] {
    const auto questions = f.Take<Question>();
    const auto to_relay = [](const auto& q) { return q.first == kRelay; };
    REQUIRE(std::ranges::count_if(questions, to_relay) == 1);
    f.Receive(kRelay, Answer{f.session.view().id,
                             {{ShardId(0), Version(1), {}}, {ShardId(1), Version(1), {}}}});
  };
  f.Wait(SumGiver::kQuiet / 2);
  answer_question();
  CHECK(TakePushed(f).empty());
  f.Wait(SumGiver::kQuiet);
  answer_question();
  CHECK(TakePushed(f) == std::vector<PushedSum>(2, {kRelay, kOfGiver, 0}));
}

TEST_CASE("what a relay has lost is given again, and a version that it knows of is pulled") {
  SessionFixture f(HostJob(), 1);
  f.Start();
  f.FinishCall(f.compute.calls.at(0));
  f.Wait(SumGiver::kQuiet);
  f.DropSent();
  f.Receive(kRelay, Answer{f.session.view().id,
                           {{ShardId(0), Version(0), {kOfGiver}}, {ShardId(1), Version(0), {}}}});
  const auto again = f.Take<Push>();
  REQUIRE(again.size() == 1);
  CHECK(again[0].first == kRelay);
  REQUIRE(again[0].second.items.size() == 1);
  CHECK(again[0].second.items[0].shard == ShardId(1));
  f.Wait(SumGiver::kQuiet);
  f.Receive(kRelay, Answer{f.session.view().id,
                           {{ShardId(0), Version(1), {}}, {ShardId(1), Version(0), {kOfGiver}}}});
  const auto pulls = f.Take<Pull>();
  REQUIRE(pulls.size() == 1);
  CHECK(pulls[0].first == kLaneA);
  CHECK(pulls[0].second.items[0].version == Version(1));
}

TEST_CASE("what a relay says of an earlier step is no word of this one") {
  SessionFixture f(HostJob(), 1);
  f.Start();
  f.FinishCall(f.compute.calls.at(0));
  f.GiveParams(1);
  f.FinishCall(f.compute.calls.at(1));
  f.Wait(SumGiver::kQuiet);
  f.DropSent();
  f.Receive(kRelay, Answer{f.session.view().id,
                           {{ShardId(0), Version(0), {kOfGiver}}, {ShardId(1), Version(1), {}}}});
  CHECK(TakePushed(f) == std::vector<PushedSum>(2, {kRelay, kOfGiver, 0}));
}

TEST_CASE("no worker is waited for that has not given, and what comes late goes for itself") {
  SessionFixture f(HostJob());
  f.Start();
  f.FinishCall(f.compute.calls.at(0));
  CHECK(TakePushed(f) == std::vector<PushedSum>{{kLaneA, kOfRelay, 0}, {kLaneB, kOfRelay, 0}});
  Give(f, kGiver, 0, kOfGiver, 1);
  CHECK(TakePushed(f) == std::vector<PushedSum>{{kLaneA, kOfGiver, 1}, {kLaneB, kOfGiver, 1}});
}

TEST_CASE("the relay pushes one sum of what its host has, and hands the parameters on") {
  SessionFixture f(HostJob());
  RunFirstStep(f);
  Give(f, kOther, 1, kOfOther, 2);
  Give(f, kGiver, 1, kOfGiver, 1);
  CHECK(TakePushed(f).empty());
  f.FinishCall(f.compute.calls.at(1));
  CHECK(TakePushed(f) == std::vector<PushedSum>{{kLaneA, MicroBatchTree::kRoot, 3},
                                                {kLaneB, MicroBatchTree::kRoot, 3}});
  f.GiveParams(0, 2);
  const auto replies = f.Take<Params>();
  REQUIRE(replies.size() == 2);
  CHECK(replies[0].first == kGiver);
  CHECK(replies[1].first == kOther);
  CHECK(replies[0].second.items.at(0).version == Version(2));
}

TEST_CASE("a sum leaves without the others' part after a step") {
  SessionFixture f(HostJob());
  RunFirstStep(f);
  f.FinishCall(f.compute.calls.at(1));
  CHECK(TakePushed(f).empty());
  f.Wait(PushWindow::kPatienceMax);
  CHECK(TakePushed(f) == std::vector<PushedSum>{{kLaneA, kOfRelay, 0}, {kLaneB, kOfRelay, 0}});
  Give(f, kGiver, 1, kOfGiver, 1);
  Give(f, kOther, 1, kOfOther, 2);
  CHECK(TakePushed(f).size() == 4);
}

TEST_CASE("of shards that are sent together one alone may wait for a late worker's part") {
  SessionFixture f(HostJob(), 0, std::nullopt, 4);
  View view = f.MakeView(1);
  for (ShardPlacement& shard : view.shards) shard.primary = kLaneA;
  f.Enter(view);
  Answer all{view.id, {}};
  for (uint32_t i = 0; i < f.shard_count(); ++i) all.items.push_back({ShardId(i), Version(0)});
  f.Receive(kLaneA, std::move(all));
  f.GiveParams(0);
  Give(f, kGiver, 0, kOfGiver, 1);
  Give(f, kOther, 0, kOfOther, 2);
  f.FinishCall(f.compute.calls.at(0));
  f.GiveParams(1);
  f.DropSent();
  for (const PeerId& giver : {kGiver, kOther}) {
    Push push;
    for (const uint32_t shard : {0, 1, 3})
      push.items.push_back(MakeItem(f, shard, 1, giver == kGiver ? kOfGiver : kOfOther, 1));
    f.Receive(giver, std::move(push));
  }
  for (uint32_t shard = 0; shard < f.shard_count(); ++shard)
    f.Emit(GradientReady{Step(1), kOfRelay, ShardId(shard),
                         MakeItem(f, shard, 1, kOfRelay, 1).payload});
  CHECK(TakePushed(f).size() == 3);
  f.Wait(PushWindow::kPatienceMax);
  CHECK(TakePushed(f) == std::vector<PushedSum>{{kLaneA, kOfRelay, 1}});
}

TEST_CASE("a relay that abandons a step still has what it was given of it") {
  SessionFixture f(HostJob());
  RunFirstStep(f);
  f.FinishCall(f.compute.calls.at(1));
  f.GiveParams(2);
  Give(f, kGiver, 2, kOfGiver, 1);
  Give(f, kOther, 2, kOfOther, 2);
  f.Receive(kGiver, Question{f.session.view().id});
  const auto answers = f.Take<Answer>();
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].first == kGiver);
  CHECK(answers[0].second.items.at(0).version == Version(2));
  CHECK(answers[0].second.items.at(0).nodes == std::vector{kOfGiver});
  f.DropSent();
  f.Receive(kLaneA, Params{});  // step 2 is under way when version 4 of all shards turns up
  Push ahead;
  ahead.items.push_back(MakeItem(f, 0, 3, kOfGiver, 5));
  f.Receive(kGiver, std::move(ahead));
  CHECK(std::ranges::find(f.compute.abandoned, Step(2)) != f.compute.abandoned.end());
  Push other;
  other.items.push_back(MakeItem(f, 0, 3, kOfOther, 6));
  f.Receive(kOther, std::move(other));
  f.Wait(PushWindow::kPatienceMax);
  CHECK(TakePushed(f) == std::vector<PushedSum>{{kLaneA, kOfGiver, 5}, {kLaneA, kOfOther, 6}});
}

TEST_CASE("a sum takes the place of its parts, also one of an earlier relay") {
  SessionFixture f(HostJob());
  RunFirstStep(f);
  Give(f, kGiver, 1, kOfGiver, 1);
  Give(f, kOther, 1, kOfBoth, 4);  // of a relay that was
  CHECK(f.session.unreplied_count() == 2);
  f.FinishCall(f.compute.calls.at(1));
  CHECK(TakePushed(f) == std::vector<PushedSum>{{kLaneA, MicroBatchTree::kRoot, 4},
                                                {kLaneB, MicroBatchTree::kRoot, 4}});
}

TEST_CASE("nonsense is not summed") {
  SessionFixture f(HostJob());
  RunFirstStep(f);
  Push push;
  push.items.push_back(MakeItem(f, 0, 1, TreeNode(0), 1));
  push.items.push_back(MakeItem(f, 0, 1, TreeNode(99), 1));
  push.items.push_back(MakeItem(f, 0, 10'000, kOfGiver, 1));  // beyond the job
  push.items.push_back(MakeItem(f, 0, 0, kOfGiver, 1));       // of one that is over
  push.items.push_back({ShardId(7), Step(1), kOfGiver, Blob()});
  push.items.push_back({ShardId(0), Step(1), kOfGiver, Blob()});
  f.Receive(kGiver, std::move(push));
  CHECK(f.session.unreplied_count() == 0);
  f.Receive(kLaneA, Params{{{ShardId(60'000), Version(2), Blob()}}});
  Give(f, kGiver, 1, kOfGiver, 1);
  f.Receive(kLaneA, Params{{{ShardId(0), Version(2), Blob()}}});  // of another size
  CHECK(f.Take<Params>().empty());
}

TEST_CASE("codecs and run.host_sum never leave each to push for itself") {
  Job encoded = HostJob();
  encoded.push_codec = PayloadCodec::kBf16;
  Job never = HostJob();
  never.host_sum = SumUse::kOff;
  for (const Job& job : {encoded, never}) {
    SessionFixture f(job, 1);
    f.Start();
    f.DropSent();
    f.FinishCall(f.compute.calls.at(0));
    for (const auto& [receiver, push] : f.Take<Push>()) CHECK(receiver != kRelay);
  }
}

TEST_CASE("auto sums shards whose primary is on another host, with workers of the same host") {
  Job job = HostJob();
  job.host_sum = SumUse::kAuto;
  const SessionFixture f(job);
  View view = f.MakeView(1);
  const auto group_of = [&](const PeerId& worker) { return SumGroupFor(view, worker, f.plan); };
  CHECK(group_of(kGiver).AllRelays().empty());  // all on one host
  view.nodes[0].host = "elsewhere";             // lane A's
  CHECK(group_of(kGiver).relays == std::vector{kRelay, PeerId{}});
  CHECK(group_of(kGiver).workers == std::vector{kWorkers[0], kWorkers[1], kWorkers[2]});
  view.nodes[3].host = "elsewhere";  // the first worker's
  CHECK(group_of(kOther).AllRelays() == std::set{kGiver});
  CHECK(group_of(kRelay).workers.empty());  // alone there
  for (MicroBatchOwner& owner : view.owners) owner.worker = kWorkers[1];
  CHECK(group_of(kOther).workers.empty());  // owns nothing
}

TEST_CASE("the workers of a rack take turns as relays of the lanes that are not in it") {
  const SessionFixture f(HostJob());
  View view = f.MakeView(1);
  const auto group_of = [&](const PeerId& worker) { return SumGroupFor(view, worker, f.plan); };
  for (NodeInfo& node : view.nodes) node.host = "h" + std::to_string(node.node.value());
  CHECK(group_of(kOther).workers.empty());  // hosts of one worker each
  for (NodeInfo& node : view.nodes) node.rack = node.role == Role::kWorker ? "a" : "b";
  CHECK(group_of(kOther).relays == std::vector{kRelay, kGiver});
  CHECK(group_of(kRelay).relays == group_of(kOther).relays);
  view.nodes[0].rack = "a";  // lane A's, which takes no turn
  CHECK(group_of(kOther).relays == std::vector{PeerId{}, kRelay});
  view.nodes[4].rack = "b";  // the second worker's, which is alone there
  CHECK(group_of(kGiver).workers.empty());
  CHECK(group_of(kOther).relays == std::vector{PeerId{}, kRelay});
}

}  // namespace
}  // namespace pando
