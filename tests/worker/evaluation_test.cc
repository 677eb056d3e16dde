#include "worker/evaluation.h"

#include "tests/worker/parts_fixture.h"

namespace pando {
namespace {

struct Evaluating : PartsFixture, private EvaluationPort {
  Evaluating()
      : evaluation({.test_samples = 100, .shard_count = 2, .retry_max = 1000 * kMs}, compute,
                   member, *this) {
    Enter();
  }
  Evaluation evaluation;
  std::vector<ShardId> pulled;
  std::vector<Version> called_off;
  bool may_report = true;

 private:
  void Pull(Micros, const std::vector<PullItem>& items) override {
    for (const PullItem& item : items) pulled.push_back(item.shard);
  }
  void OnCalledOff(Version version) override { called_off.push_back(version); }
  bool MayReport(const EvaluationResult&) const override { return may_report; }
};

const Evaluate kRequest{.version = Version(3), .slice = 1, .last_sample = 100};

TEST_CASE("a slice is evaluated with parameters that are pulled until they are here (P31)") {
  Evaluating f;
  f.evaluation.OnEvaluate(kMs, kRequest);
  CHECK(f.compute.slices == std::vector<uint32_t>{1});
  f.evaluation.Tick(kMs);
  CHECK(f.pulled.size() == 2);
  f.evaluation.OnParams(2 * kMs, f.Params(0, 3));
  f.evaluation.OnParams(2 * kMs, f.Params(0, 3));
  f.evaluation.OnParams(2 * kMs, f.Params(1, 2));  // of another version
  CHECK(f.compute.evaluation_parameters == std::vector<Version>{Version(3)});
  CHECK(f.evaluation.NextDeadline() == kMs + Evaluation::kRetryFirst);
  f.evaluation.Tick(kMs + Evaluation::kRetryFirst);
  CHECK(f.pulled.back() == ShardId(1));
  CHECK(f.pulled.size() == 3);
  f.evaluation.OnParams(600 * kMs, f.Params(1, 3));
  f.evaluation.Tick(60'000 * kMs);
  CHECK(f.pulled.size() == 3);
  CHECK(f.evaluation.NextDeadline() == kNever);
}

TEST_CASE("a result is reported, and again when it is asked for again") {
  Evaluating f;
  f.evaluation.OnEvaluate(kMs, kRequest);
  f.evaluation.OnEvaluationResult({.version = Version(2), .slice = 1});
  CHECK(f.evaluation.is_running());
  f.evaluation.OnEvaluationResult({.version = Version(3), .slice = 1});
  CHECK_FALSE(f.evaluation.is_running());
  f.evaluation.OnEvaluate(kMs, kRequest);
  CHECK(f.Take<EvaluationResult>().size() == 2);
  CHECK(f.compute.slices.size() == 1);
}

TEST_CASE("a result that may not be reported yet is reported later") {
  Evaluating f;
  f.may_report = false;
  f.evaluation.OnEvaluate(kMs, kRequest);
  f.evaluation.OnEvaluationResult({.version = Version(3), .slice = 1});
  CHECK(f.sent.empty());
  f.may_report = true;
  f.evaluation.Report();
  CHECK(f.Take<EvaluationResult>().size() == 1);
}

TEST_CASE("another version calls the former one off; samples that are none are refused") {
  Evaluating f;
  f.evaluation.OnEvaluate(kMs, kRequest);
  f.evaluation.OnEvaluate(kMs, {.version = Version(4), .slice = 1, .last_sample = 100});
  CHECK(f.called_off == std::vector<Version>{Version(3)});
  f.evaluation.OnEvaluate(kMs, {.version = Version(5), .slice = 1, .last_sample = 101});
  f.evaluation.OnEvaluate(kMs,
                          {.version = Version(5), .slice = 1, .first_sample = 2, .last_sample = 1});
  CHECK(f.evaluation.IsAbout(Version(4)));
  f.evaluation.OnGone(Version(4));
  CHECK(f.called_off.back() == Version(4));
  CHECK_FALSE(f.evaluation.is_running());
}

}  // namespace
}  // namespace pando
