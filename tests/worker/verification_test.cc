#include "worker/verification.h"

#include "tests/worker/parts_fixture.h"

namespace pando {
namespace {

using Calls = std::vector<ComputeLog::Call>;

struct Verifier : PartsFixture {
  explicit Verifier(uint32_t staleness = 0)
      : PartsFixture(VerifiedJob(staleness)), verification(shared, steps, parameters) {
    Start();
  }
  static Job VerifiedJob(uint32_t staleness) {
    Job job = SmallJob();
    job.verify_every = 1;
    job.staleness = staleness;
    return job;
  }
  void GiveParams(uint64_t version) {
    for (uint32_t s : {0, 1}) parameters.OnParams(Params(s, version));
  }
  Verification verification;
};

TEST_CASE("micro-batches are verified once their step's parameters are here (P41)") {
  Verifier f;
  f.verification.Advance(kMs);
  CHECK(f.compute.verified.empty());
  f.GiveParams(0);
  f.verification.Advance(kMs);
  CHECK(f.compute.verified == Calls{{Step(0), MicroBatches({6})}, {Step(0), MicroBatches({7})}});
  f.verification.Advance(kMs);
  CHECK(f.compute.verified.size() == 2);
}

TEST_CASE("with staleness all steps that may be sent are verified, even if two end at once") {
  Verifier f(1);
  f.GiveParams(0);
  f.verification.Advance(kMs);  // steps 0 and 1 read version 0
  CHECK(f.compute.verified.size() == 4);
  CHECK(f.compute.verified.back() == ComputeLog::Call{Step(1), MicroBatches({7})});
  f.Commit(2);
  f.steps.Advance();
  f.verification.Advance(kMs);
  f.verification.Tick(1000 * kMs);
  CHECK(f.Take<GradientHashes>().empty());
  f.GiveParams(2);
  f.GiveParams(1);
  f.verification.Advance(kMs);
  CHECK(f.compute.verified.size() == 8);
}

TEST_CASE("a new view may give more to verify, and gives nothing twice") {
  Verifier f;
  f.GiveParams(0);
  f.verification.Advance(kMs);
  View view = PartsFixture::MakeView(2);
  view.owners[5].worker = kWorkers[2];
  f.Enter(view);
  f.verification.EnterView();
  f.verification.Advance(kMs);
  REQUIRE(f.compute.verified.size() == 3);
  CHECK(f.compute.verified.back() == ComputeLog::Call{Step(0), MicroBatches({5})});
}

TEST_CASE("of steps that others took past us the scheduler learns that there is no hash") {
  Verifier f;
  f.verification.Advance(kMs);
  f.Commit(2);
  f.verification.Advance(kMs);
  f.verification.Tick(1000 * kMs);
  const auto reports = f.Take<GradientHashes>();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].second.items.size() == 4);  // of two micro-batches of two steps
  CHECK(reports[0].second.items[0].hash == 0);
}

TEST_CASE("hashes are reported until they are acknowledged") {
  Verifier f;
  f.verification.OnGradientHashed(kMs, {Step(0), MicroBatch(6), 66});
  f.verification.Tick(1000 * kMs);
  CHECK(f.Take<GradientHashes>().size() == 1);
  f.verification.Tick(2000 * kMs);
  CHECK(f.Take<GradientHashes>().size() == 1);
  f.verification.OnGradientHashesAck({Step(1)});
  CHECK(f.verification.NextDeadline() == kNever);
}

}  // namespace
}  // namespace pando
