#include <string>

#include "tests/server/lane_fixture.h"

namespace pando {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A fixture whose shard 0 is on server 1, with these backups.
LaneFixture& Start(LaneFixture& f, std::vector<uint32_t> backups) {
  f.Place(0, 1, std::move(backups));
  f.Place(1, 1, {});
  f.Announce();
  f.GiveScalars();
  f.Deliver();
  return f;
}

// Server 1 dies once only server 2 has version 1 of shard 0, and server 3 is promoted.
void PromoteTheLessAdvanced(LaneFixture& f) {
  Start(f, {2, 3}).PushStep(1, 0);
  f.Deliver([](const Envelope& e) { return Is<Root>(e) && e.receiver == LaneFixture::Server(3); });
  f.Kill(1);
  f.Place(0, 3, {2});
  f.Announce();
}

// Writes down what lanes say they are at, of shard 0.
struct WrittenProbe : public LaneProbe {
  void Begin(LaneWork work, ShardId shard, Step step) override {
    CHECK_FALSE(std::exchange(is_at_work, true));
    if (shard != ShardId(0)) return;
    const char* words[] = {"aggregate", "update", "commit"};
    said.push_back(words[static_cast<size_t>(work)] + std::to_string(step.value()));
  }
  void End() override { CHECK(std::exchange(is_at_work, false)); }
  void OnReplicating(ShardId shard, Step step) override {
    if (shard == ShardId(0)) said.push_back("root" + std::to_string(step.value()));
  }
  void OnCommitted(ShardId shard, Step step) override {
    if (shard == ShardId(0)) said.push_back("committed" + std::to_string(step.value()));
  }
  bool is_at_work = false;
  std::vector<std::string> said;
};

TEST_CASE("a probe hears of a step's sum, root, records and commit, in order") {
  WrittenProbe probe;
  LaneFixture f(2, MakeJob(20), &probe);
  Start(f, {2});
  for (uint64_t step : {0, 1}) {
    f.PushStep(1, step);
    f.Deliver();
    const std::string t = std::to_string(step);
    // The primary's record, and the backup's.
    CHECK(probe.said == std::vector<std::string>{"aggregate" + t, "root" + t, "update" + t,
                                                 "update" + t, "committed" + t, "commit" + t});
    probe.said.clear();
  }
  LaneFixture alone(1, MakeJob(20), &probe);
  Start(alone, {}).PushStep(1, 0);
  alone.Deliver();
  CHECK(probe.said == std::vector<std::string>{"aggregate0", "update0", "committed0", "commit0"});
}

TEST_CASE("alone in sync, a primary commits at once and keeps neither root nor hash") {
  LaneFixture f(1);
  Start(f, {}).PushStep(1, 0);
  f.Deliver();
  CHECK(f.Shown() == Version(1));
  CHECK(f.shard(1).RootsAfter(Version(0)).empty());
  CHECK_FALSE(f.shard(1).records().KnownHash(Version(1)).has_value());
}

TEST_CASE("a version is shown only once every backup has acknowledged it") {
  LaneFixture f(3);
  Start(f, {2, 3}).PushStep(1, 0);
  f.Deliver([](const Envelope& e) { return Is<RootAck>(e) && e.sender == LaneFixture::Server(3); });
  CHECK(f.shard(1).newest() == Version(1));
  CHECK(f.shard(1).committed() == Version(0));
  CHECK_FALSE(f.Shown().has_value());
  f.Wait(milliseconds(300));  // the root is repeated, and acknowledged again
  CHECK(f.Shown() == Version(1));
  CHECK(f.shard(2).records().NewestHash() == f.shard(1).records().NewestHash());
  CHECK(f.shard(3).records().NewestHash() == f.shard(1).records().NewestHash());
}

TEST_CASE("a pull of a version that is not committed waits for it") {
  LaneFixture f(2);
  Start(f, {2}).PushStep(1, 0);
  const auto no_acks = [](const Envelope& e) { return Is<RootAck>(e); };
  f.Deliver(no_acks);
  f.SendFrom(LaneFixture::kWorker, 1, Pull{{{ShardId(0), Version(1)}}});
  f.Deliver(no_acks);
  CHECK_FALSE(f.Shown().has_value());
  CHECK(f.Heard<PushReply>(LaneFixture::kWorker).back().items[0].outcome == PushOutcome::kPending);
  f.Wait(milliseconds(300));
  CHECK(f.Shown() == Version(1));
}

TEST_CASE("the answer to a question: a step whose version is not committed lacks nothing") {
  LaneFixture f(2);
  Start(f, {2}).PushStep(1, 0);
  f.SendFrom(LaneFixture::kWorker, 1, Question{f.view.id});
  f.Deliver([](const Envelope& e) { return Is<RootAck>(e); });
  f.SendFrom(LaneFixture::kWorker, 1, Question{f.view.id});
  f.Deliver([](const Envelope& e) { return Is<RootAck>(e); });
  for (const Answer& answer : f.Heard<Answer>(LaneFixture::kWorker)) {
    CHECK(answer.items[0].version == Version(0));
    CHECK(answer.items[0].nodes == std::vector<TreeNode>{MicroBatchTree::kRoot});
  }
}

TEST_CASE("small shards' roots, acknowledgements and replies share messages") {
  LaneFixture f(2);
  f.Place(0, 1, {2});
  f.Place(1, 1, {2});
  f.Announce();
  f.GiveScalars();
  f.Deliver();
  Push push;
  for (uint32_t id : {0u, 1u}) {
    push.items.push_back({ShardId(id), Step(0), MicroBatchTree::kRoot, f.Gradient(id, 1)});
  }
  f.SendFrom(LaneFixture::kWorker, 1, push);
  size_t roots = 0, acks = 0;
  f.Deliver([&](const Envelope& e) {
    roots += Is<Root>(e);
    acks += Is<RootAck>(e);
    return false;
  });
  CHECK(roots == 1);
  CHECK(acks == 1);
  CHECK(f.Heard<Params>(LaneFixture::kWorker).size() == 1);
}

TEST_CASE("a promoted replica resends its newest root before it shows the version") {
  LaneFixture f(3);
  Start(f, {2, 3}).PushStep(1, 0);
  // Server 3 never gets the root, so the version is not committed.
  f.Deliver([](const Envelope& e) { return Is<Root>(e) && e.receiver == LaneFixture::Server(3); });
  CHECK(f.shard(2).newest() == Version(1));
  CHECK(f.shard(3).newest() == Version(0));
  f.Kill(1);
  f.Place(0, 2, {3});
  f.Announce();
  f.Deliver([](const Envelope& e) { return Is<RootAck>(e); });
  CHECK(f.shard(3).newest() == Version(1));
  CHECK(f.shard(2).committed() == Version(0));
  f.Wait(milliseconds(300));
  CHECK(f.shard(2).committed() == Version(1));
  f.PushStep(2, 1);
  f.Deliver();
  CHECK(f.Shown() == Version(2));
}

TEST_CASE("a promoted replica without company commits its newest version at once") {
  LaneFixture f(2);
  Start(f, {2}).PushStep(1, 0);
  f.Deliver([](const Envelope& e) { return Is<RootAck>(e); });
  f.Kill(1);
  f.Place(0, 2, {});
  f.Announce();
  f.SendFrom(LaneFixture::kWorker, 2, Pull{{{ShardId(0), Version(1)}}});
  f.Deliver();
  CHECK(f.Shown() == Version(1));
}

TEST_CASE("the less advanced of two replicas may be promoted: the other acknowledges what it has") {
  LaneFixture f(3);
  PromoteTheLessAdvanced(f);
  f.PushStep(3, 0);
  f.Deliver();
  CHECK(f.Shown() == Version(1));
  CHECK(f.shard(3).records().NewestHash() == f.shard(2).records().NewestHash());
}

TEST_CASE("a promoted replica makes the version that another backup has made (P22)") {
  LaneFixture f(3);
  PromoteTheLessAdvanced(f);
  f.SendFrom(LaneFixture::kWorker, 3, Pull{{{ShardId(0), Version(1)}}});
  f.Deliver();  // nothing is pushed again
  CHECK(f.Shown() == Version(1));
  f.PushStep(3, 1);
  f.Deliver();
  CHECK(f.Shown() == Version(2));
  CHECK(f.shard(3).records().NewestHash() == f.shard(2).records().NewestHash());
}

TEST_CASE("a promoted replica makes nothing before all backups have told what they have (P22)") {
  LaneFixture f(3);
  Start(f, {2, 3}).Kill(1);
  f.Place(0, 3, {2});
  f.Announce();
  f.PushStep(3, 0);
  const auto drops = [](const Envelope& e) {
    return Is<RootAck>(e) && e.sender == LaneFixture::Server(2);
  };
  f.Deliver(drops);
  f.Wait(milliseconds(500), drops);
  CHECK(f.shard(3).newest() == Version(0));
  f.Wait(seconds(2));
  CHECK(f.Shown() == Version(1));
}

TEST_CASE("every replica tells its hash of the record (P8)") {
  LaneFixture f(2);
  Start(f, {2}).PushStep(1, 0);
  f.Deliver();
  for (const uint32_t server : {1u, 2u}) {
    f.SendFrom(LaneFixture::kScheduler, server, HashWanted{ShardId(0), Version(1)});
    f.SendFrom(LaneFixture::kScheduler, server, HashWanted{ShardId(0), Version(7)});
    f.SendFrom(LaneFixture::kScheduler, server, HashWanted{ShardId(5), Version(1)});
  }
  const_cast<FloatBuffer&>(*f.shard(2).records().newest().parameters).data()[0] += 1.0f;
  f.Deliver();
  const auto said = f.Heard<RecordHashes>(LaneFixture::kScheduler);
  REQUIRE(said.size() == 2);
  CHECK(said[0].made_hash == said[0].now_hash);
  CHECK(said[1].made_hash == said[0].made_hash);
  CHECK(said[1].now_hash != said[1].made_hash);
}

TEST_CASE("a promoted replica holds contributions that prove more than it knows (P4)") {
  LaneFixture f(3);
  Start(f, {2, 3}).PushStep(1, 0);
  f.Deliver();
  CHECK(f.Shown() == Version(1));
  f.Kill(1);
  f.Place(0, 2, {3});
  f.Announce();
  f.PushStep(2, 1);
  f.Deliver();  // version 1 is acknowledged again first, then version 2 is made
  CHECK(f.Shown() == Version(2));
}

TEST_CASE("a demoted primary goes on as a backup") {
  LaneFixture f(2);
  Start(f, {2}).PushStep(1, 0);
  f.Deliver([](const Envelope& e) { return Is<RootAck>(e); });  // made, not committed
  f.Place(0, 2, {1});
  f.Announce();
  f.PushStep(2, 0);
  f.Deliver();
  CHECK(f.Shown() == Version(1));
  f.PushStep(2, 1);
  f.Deliver();
  CHECK(f.Shown() == Version(2));
  CHECK(f.shard(1).newest() == Version(2));
  f.SendFrom(LaneFixture::kWorker, 1, Pull{{{ShardId(0), Version(2)}}});
  f.Deliver();
  CHECK(f.Heard<PushReply>(LaneFixture::kWorker).back().items[0].outcome ==
        PushOutcome::kNotPrimary);
}

TEST_CASE("a root of a view that the backup is yet to hear of waits for it") {
  LaneFixture f(2);
  Start(f, {2});
  f.Announce({1});
  f.PushStep(1, 0);
  f.Deliver([](const Envelope& e) { return Is<ViewUpdate>(e) && e.sender.node == NodeId(1); });
  CHECK(f.shard(2).newest() == Version(0));
  CHECK_FALSE(f.Shown().has_value());
  f.TellView({2});
  f.Deliver();
  CHECK(f.Shown() == Version(1));
}

TEST_CASE("a backup that missed a view gets it from its primary, without a scheduler (P13, P28)") {
  LaneFixture f(2);
  Start(f, {2});
  f.Announce({1});
  f.PushStep(1, 0);
  f.Deliver();
  CHECK(f.shard(2).newest() == Version(0));
  f.Wait(seconds(1));
  CHECK(f.shard(2).newest() == Version(1));
  CHECK(f.Shown() == Version(1));
}

TEST_CASE("a push to a lane that becomes the primary with a later view waits for that view") {
  LaneFixture f(2);
  Start(f, {2});
  f.Kill(1);
  f.Place(0, 2, {});
  f.view.id = f.NextViewId();  // the worker knows it already
  f.PushStep(2, 0);
  f.SendFrom(LaneFixture::kWorker, 2, Pull{{{ShardId(0), Version(1)}}});
  f.Deliver();
  CHECK(f.Heard<PushReply>(LaneFixture::kWorker).empty());
  f.TellView();
  f.Deliver();
  CHECK(f.Shown() == Version(1));
}

TEST_CASE("acknowledgements of another view do not count (P13)") {
  LaneFixture f(3);
  Start(f, {2, 3}).PushStep(1, 0);
  f.Deliver([](const Envelope& e) { return Is<RootAck>(e) && e.sender == LaneFixture::Server(3); });
  // Server 2 has acknowledged in the old view. In the new one only server 3's gets through.
  f.Announce();
  f.Deliver([](const Envelope& e) { return Is<RootAck>(e) && e.sender == LaneFixture::Server(2); });
  CHECK(f.shard(1).committed() == Version(0));
  f.Wait(milliseconds(300));
  CHECK(f.shard(1).committed() == Version(1));
}

TEST_CASE("an unequal hash is reported again and again, and nothing is committed") {
  LaneFixture f(2);
  Start(f, {2}).PushStep(1, 0);
  f.Deliver([](const Envelope& e) { return Is<RootAck>(e); });
  f.SendFrom(LaneFixture::Server(2), 1, RootAck{{{ShardId(0), Version(1), 4711}}});
  f.Deliver();
  f.Wait(milliseconds(500), [](const Envelope& e) { return Is<RootAck>(e); });
  CHECK(f.shard(1).committed() == Version(0));
  const auto reports = f.Heard<Divergence>(LaneFixture::kScheduler);
  REQUIRE(reports.size() >= 2);
  CHECK(reports[0].version == Version(1));
  CHECK(reports[0].backup == LaneFixture::Server(2));
  CHECK(reports[0].backup_hash == 4711);
  CHECK(reports[0].primary_hash == f.shard(1).records().NewestHash());
}

TEST_CASE(
    "a silent backup is reported after two leases and waited for until a view says otherwise") {
  LaneFixture f(2);
  Start(f, {2});
  f.Kill(2);
  f.PushStep(1, 0);
  f.Wait(milliseconds(1900));
  CHECK(f.Heard<PeerSilent>(LaneFixture::kScheduler).empty());
  f.Wait(milliseconds(1500));
  const auto silent = f.Heard<PeerSilent>(LaneFixture::kScheduler);
  REQUIRE_FALSE(silent.empty());
  CHECK(silent[0].peer == LaneFixture::Server(2));
  CHECK(silent[0].silent_ms >= 2000);
  CHECK_FALSE(f.Shown().has_value());
  f.Place(0, 1, {});
  f.Announce();
  f.Deliver();
  CHECK(f.Shown() == Version(1));
}

TEST_CASE("a backup whose pin is in the way holds the root, is not silent, and goes on after it") {
  Job job = MakeJob(20);
  job.eval_every_epochs = 2;  // versions 2, 4, 6, ...
  LaneFixture f(2, job);
  Start(f, {2});
  for (uint64_t step = 0; step < 5; ++step) {
    f.PushStep(1, step);
    f.Deliver();
  }
  f.SendFrom(LaneFixture::kScheduler, 1, ReleasePin{Version(2)});
  f.PushStep(1, 5);  // drops version 4, which server 2 would have to pin beside version 2
  f.Wait(seconds(4));
  CHECK(f.Shown() == Version(5));
  CHECK(f.Heard<PeerSilent>(LaneFixture::kScheduler).empty());
  f.SendFrom(LaneFixture::kScheduler, 2, ReleasePin{Version(2)});
  f.Deliver();
  CHECK(f.Shown() == Version(6));
  CHECK(f.shard(2).records().Find(Version(4)) != nullptr);  // pinned on the backup as well
}

// ---- rows and progress -------------------------------------------------------------------------

TEST_CASE("rows of metrics outlive the primary, less those that the scheduler knows") {
  LaneFixture f(2);
  Start(f, {});
  f.Place(0, 1, {2});
  f.Place(1, 1, {2});
  f.view.generation = 1;
  f.Announce();
  f.Deliver();
  for (uint64_t step = 0; step < 4; ++step) {
    if (step == 3) f.SendFrom(LaneFixture::kScheduler, 1, ProgressAck{Version(2), Step(2)});
    for (const uint32_t shard : {0, 1}) f.PushStep(1, step, shard);
    f.Wait(milliseconds(10));
  }
  f.Kill(1);
  f.heard.clear();
  f.Place(0, 2, {});
  f.Place(1, 2, {});
  f.Announce();
  f.Deliver();
  const auto progress = f.Heard<Progress>(LaneFixture::kScheduler);
  REQUIRE_FALSE(progress.empty());
  REQUIRE(progress.back().rows.size() == 2);
  CHECK(progress.back().rows[0].step == Step(2));
  CHECK(progress.back().rows[1].step == Step(3));
}

TEST_CASE("a row of a version that is not committed is not reported") {
  LaneFixture f(2);
  f.Place(0, 1, {});
  f.Place(1, 1, {2});
  f.Announce();
  f.GiveScalars();
  f.Deliver();
  f.PushStep(1, 0, 1);
  const auto no_acks = [](const Envelope& e) { return Is<RootAck>(e); };
  f.Wait(milliseconds(500), no_acks);
  for (const Progress& p : f.Heard<Progress>(LaneFixture::kScheduler)) CHECK(p.rows.empty());
}

TEST_CASE("progress is said at once on a new view, and an older view's acknowledgement is none") {
  LaneFixture f(1);
  Start(f, {});
  const Envelope old_ack{.job = LaneFixture::kJob,
                         .view = f.view.id,
                         .sender = LaneFixture::kScheduler,
                         .receiver = LaneFixture::Server(1),
                         .message = ProgressAck{}};
  f.Wait(seconds(1));
  f.heard.clear();
  f.Announce();
  f.Deliver();
  const auto count = [&] { return f.Heard<Progress>(LaneFixture::kScheduler).size(); };
  CHECK(count() == 1);
  f.queue.push_back(old_ack);
  f.Wait(milliseconds(500));
  const size_t repeated = count();
  CHECK(repeated > 2);
  f.SendFrom(LaneFixture::kScheduler, 1, ProgressAck{});
  f.Wait(seconds(1));
  CHECK(count() == repeated);
}

TEST_CASE("a lane that is primary of no shard reports the final version") {
  LaneFixture f(2);
  Start(f, {2});
  bool has_reported = false;
  for (const Envelope& e : f.heard) {
    const auto* progress = std::get_if<Progress>(&e.message);
    if (progress == nullptr || e.sender != LaneFixture::Server(2)) continue;
    has_reported = progress->committed == f.plan.steps.final_version();
  }
  CHECK(has_reported);
}

TEST_CASE("a lane that was asked to leave repeats Leave until it may") {
  LaneFixture f(1);
  Start(f, {});
  f.lane(1).StartLeaving(f.now);
  f.Wait(milliseconds(500));
  CHECK(f.Heard<Leave>(LaneFixture::kScheduler).size() >= 2);
  f.SendFrom(LaneFixture::kScheduler, 1, Stop{StopReason::kDrained, "drained"});
  f.Deliver();
  CHECK(f.lane(1).finished());
  CHECK(f.lane(1).stop().reason == StopReason::kDrained);
}

}  // namespace
}  // namespace pando
