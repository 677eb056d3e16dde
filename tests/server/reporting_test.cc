// A lane's messages to the scheduler: requests for scalars, progress, reports, and its life.
#include "server/lane_life.h"
#include "server/progress_report.h"
#include "server/reports.h"
#include "server/scalar_blocks.h"

#include "tests/server/part_fixture.h"

namespace pando {
namespace {

// ---- scalars -----------------------------------------------------------------------------------

struct ScalarsFixture : PartFixture {
  ScalarsFixture() : PartFixture(MakeJob(3 * kScalarsPerBlock)) {
    Place(0, 1);
    Enter();
  }
  void Give(uint64_t first, float lr) {
    blocks.OnScalars(
        {Step(first), std::vector<StepScalars>(kScalarsPerBlock, StepScalars{.lr = lr})});
  }
  ScalarBlocks blocks{member, replicas, plan};
};

TEST_CASE("the block in use and the next one are asked for until they are known") {
  ScalarsFixture f;
  for (int i = 0; i < 2; ++i) {
    f.blocks.Tick(f.now);
    const auto requests = f.TakeSent<ScalarsRequest>();
    REQUIRE(requests.size() == 2);
    CHECK(requests[0].first == Step(0));
    CHECK(requests[1].first == Step(kScalarsPerBlock));
    CHECK(f.blocks.NextDeadline() == f.now + kRetryInterval);
    f.now += kRetryInterval;
  }
  f.Give(0, 0.5f);
  f.blocks.Tick(f.now);
  CHECK(f.TakeSent<ScalarsRequest>().at(0).first == Step(kScalarsPerBlock));
  f.Give(kScalarsPerBlock, 0.25f);
  CHECK(f.blocks.NextDeadline() == kNever);
  CHECK(f.blocks.Find(Step(0))->lr == 0.5f);
  CHECK(f.blocks.Find(Step(kScalarsPerBlock))->lr == 0.25f);
  CHECK(f.blocks.Find(Step(2 * kScalarsPerBlock)) == nullptr);
}

TEST_CASE("blocks that are out of reach or begin elsewhere are not taken") {
  ScalarsFixture f;
  f.Give(2 * kScalarsPerBlock, 0.5f);
  f.Give(7, 0.5f);
  CHECK(f.blocks.Find(Step(2 * kScalarsPerBlock)) == nullptr);
  CHECK(f.blocks.Find(Step(8)) == nullptr);
}

// ---- progress ----------------------------------------------------------------------------------

struct ProgressFixture : PartFixture {
  // Shard 1 has the metrics.
  ProgressFixture() {
    Place(1, 1);
    EnterAll();
  }
  void EnterAll() { progress.EnterView(now, Enter()); }
  void MakeStep() {
    MakeVersion(1);
    progress.NoteMetrics(shard(1));
  }
  ProgressReport progress{member, replicas, plan};
};

TEST_CASE("progress is reported at once on a new view, then repeated until acknowledged") {
  ProgressFixture f;
  f.progress.Tick(f.now);
  CHECK(f.TakeSent<Progress>().size() == 1);
  f.progress.Tick(f.now);
  CHECK(f.TakeSent<Progress>().empty());
  f.now += kRetryInterval;
  f.progress.Tick(f.now);
  CHECK(f.TakeSent<Progress>().size() == 1);
  CHECK_FALSE(f.progress.OnProgressAck(f.From(PartFixture::kScheduler), {Version(0), Step(0)}));
  CHECK(f.progress.NextDeadline() == kNever);
  f.EnterAll();
  f.progress.Tick(f.now);
  CHECK(f.TakeSent<Progress>().size() == 1);
}

TEST_CASE("rows of committed versions are repeated until the scheduler knows them") {
  ProgressFixture f;
  f.MakeStep();
  f.MakeStep();
  f.now += kProgressInterval;
  f.progress.Tick(f.now);
  const auto reports = f.TakeSent<Progress>();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].committed == Version(2));
  REQUIRE(reports[0].rows.size() == 2);
  CHECK(reports[0].rows[1].step == Step(1));
  CHECK(reports[0].rows[1].loss == 0.25f);  // the sum of 1, over 4 samples
  CHECK(f.progress.OnProgressAck(f.From(PartFixture::kScheduler), {Version(2), Step(1)}));
  CHECK(f.progress.known_row() == Step(1));
  f.now += kRetryInterval;
  f.progress.Tick(f.now);
  CHECK(f.TakeSent<Progress>().at(0).rows.size() == 1);
}

TEST_CASE("rows are the primary's to report") {
  ProgressFixture f;
  f.MakeStep();
  f.Place(1, 2, {1});
  f.EnterAll();
  f.progress.Tick(f.now);
  CHECK(f.TakeSent<Progress>().at(0).rows.empty());
  f.Place(1, 1);
  f.EnterAll();
  f.progress.Tick(f.now);
  CHECK(f.TakeSent<Progress>().at(0).rows.size() == 1);
  f.Place(1, 2);
  f.EnterAll();  // not ours any more, and its rows neither
  f.Place(1, 1);
  f.EnterAll();
  f.progress.Tick(f.now);
  CHECK(f.TakeSent<Progress>().at(0).rows.empty());
}

// ---- reports -----------------------------------------------------------------------------------

struct OneReport : Reports::Source {
  explicit OneReport(Message message_in) : message(std::move(message_in)) {}
  bool AddReports(std::vector<Message>* reports) const override {
    if (is_sent) reports->push_back(message);
    return has_more;
  }
  Message message;
  bool is_sent = true;
  bool has_more = true;
};

struct ReportsFixture : PartFixture {
  Reports::Clock clock;
  OneReport first{Divergence{}};
  OneReport second{RestoreFailed{}};
  Reports reports{member, clock, {&first, &second}};
};

TEST_CASE("reports are sent in the sources' order, and repeated while any is unanswered") {
  ReportsFixture f;
  f.reports.Tick(f.now);
  CHECK(f.sent.empty());
  f.clock.SpeakSoon(f.now);
  f.reports.Tick(f.now);
  REQUIRE(f.sent.size() == 2);
  CHECK(std::holds_alternative<Divergence>(f.sent[0].message));
  CHECK(std::holds_alternative<RestoreFailed>(f.sent[1].message));
  f.sent.clear();
  f.first.has_more = f.first.is_sent = false;
  f.second.is_sent = false;  // unanswered, for a later report
  f.now += kRetryInterval;
  f.reports.Tick(f.now);
  CHECK(f.sent.empty());
  CHECK(f.reports.NextDeadline() == f.now + kRetryInterval);
  f.second.has_more = false;
  f.now += kRetryInterval;
  f.reports.Tick(f.now);
  CHECK(f.reports.NextDeadline() == kNever);
}

TEST_CASE("news that comes soon after a report is gathered") {
  ReportsFixture f;
  f.clock.Hasten(f.now);
  CHECK(f.reports.NextDeadline() == kNever);  // nothing waits
  f.clock.SpeakSoon(f.now);
  f.reports.Tick(f.now);
  f.sent.clear();
  f.clock.SpeakSoon(f.now);
  f.reports.Tick(f.now);
  CHECK(f.sent.empty());
  CHECK(f.reports.NextDeadline() == f.now + kProgressInterval);
}

TEST_CASE("a lane that leaves reports it last, and until it is stopped") {
  ReportsFixture f;
  f.first.has_more = f.first.is_sent = f.second.has_more = f.second.is_sent = false;
  f.reports.StartLeaving(f.now);
  for (int i = 0; i < 2; ++i) {
    f.reports.Tick(f.now);
    CHECK(f.TakeSent<Leave>().size() == 1);
    f.now += kRetryInterval;
  }
}

// ---- life --------------------------------------------------------------------------------------

TEST_CASE("lane 0 is ready until it has a view") {
  PartFixture f;
  LaneLife life(f.member, "cpu");
  for (int i = 0; i < 2; ++i) {
    life.Tick(f.now);
    CHECK(f.TakeSent<Ready>().at(0).kind == "cpu");
    life.Tick(f.now);
    CHECK(f.sent.empty());
    f.now = life.NextDeadline();
  }
  f.Enter();
  CHECK(life.NextDeadline() == kNever);
  life.Tick(f.now);
  CHECK(f.sent.empty());
}

TEST_CASE("the first end counts") {
  PartFixture f;
  LaneLife life(f.member, "cpu");
  CHECK_FALSE(life.finished());
  life.OnStop(f.From(PartFixture::kScheduler), {StopReason::kInterrupted, "enough"});
  CHECK(f.TakeSent<Bye>().size() == 1);
  life.OnRefused({"given up", RefusalKind::kGivenUp});
  CHECK(life.finished());
  CHECK(life.stop().reason == StopReason::kInterrupted);
  CHECK_FALSE(life.refusal());
}

}  // namespace
}  // namespace pando
