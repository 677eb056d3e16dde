#include "train/error_feedback.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

namespace pando {
namespace {

constexpr MicroBatch kFirst{0};
constexpr MicroBatch kSecond{1};
constexpr MicroBatch kThird{2};

// One shard of 16 weights, of which top-k sends one; the metrics have a separate shard or not.
class FeedbackFixture {
 public:
  FeedbackFixture() : plan_(MakePlan()), feedback_(plan_) {}

  // Returns the gradient as a server reads it.
  std::vector<float> Send(uint64_t step, MicroBatch m, float first, float second) {
    std::vector<float> gradient(plan_.shards.range(ShardId(0)).size());
    gradient[0] = first;
    gradient[1] = second;
    gradient.back() = 4711;  // a metric
    std::vector<std::byte> encoded(plan_.pushes.PayloadBytes(ShardId(0)));
    feedback_.Encode(Step(step), m, ShardId(0), gradient, encoded);
    std::vector<float> read(gradient.size());
    plan_.pushes.codec(ShardId(0))->Decode(encoded, read);
    CHECK(read.back() == 4711);
    return {read[0], read[1]};
  }
  ErrorFeedback& feedback() { return feedback_; }

 private:
  static JobPlan MakePlan() {
    Job job;
    job.steps = 10;
    job.global_batch = 4;
    job.micro_batches = 3;
    job.push_codec = PayloadCodec::kTopK;
    return JobPlan(job, {.train_samples = 4},
                   TensorLayout({{.name = "w", .shape = {16}}, MetricTensorSpec()}));
  }
  JobPlan plan_;
  ErrorFeedback feedback_;
};

using Two = std::vector<float>;

TEST_CASE("what a gradient lost is added to the next one of the same micro-batch alone") {
  FeedbackFixture f;
  CHECK(f.Send(0, kFirst, 5, 3) == Two{5, 0});
  CHECK(f.Send(0, kSecond, 1, 2) == Two{0, 2});
  CHECK(f.Send(1, kFirst, 5, 3) == Two{0, 6});
  CHECK(f.Send(2, kFirst, 0, 0) == Two{5, 0});
  CHECK(f.Send(3, kFirst, 0, 0) == Two{0, 0});
  CHECK(f.Send(1, kSecond, 0, 0) == Two{1, 0});
}

TEST_CASE("a step that is computed again has lost nothing before") {
  FeedbackFixture f;
  f.Send(3, kFirst, 5, 3);
  CHECK(f.Send(3, kFirst, 1, 0) == Two{1, 0});
  CHECK(f.Send(4, kFirst, 0, 0) == Two{0, 0});
}

TEST_CASE("what was lost before another worker had the micro-batch is not added") {
  FeedbackFixture f;
  f.Send(3, kFirst, 5, 3);
  CHECK(f.Send(5, kFirst, 1, 0) == Two{1, 0});
  CHECK(f.Send(6, kFirst, 0, 0) == Two{0, 0});
}

TEST_CASE("micro-batches that others have now leave no memory behind") {
  FeedbackFixture f;
  f.Send(3, kFirst, 5, 3);
  f.Send(4, kSecond, 5, 3);
  f.Send(4, kFirst, 0, 0);
  CHECK(f.feedback().held_count() == 2);
  f.Send(5, kSecond, 0, 0);
  f.Send(6, kThird, 0, 0);
  CHECK(f.feedback().held_count() == 2);  // the first is of step 4
}

TEST_CASE("after a rollback nothing is left of what was lost") {
  FeedbackFixture f;
  f.Send(3, kFirst, 5, 3);
  f.feedback().Forget();
  CHECK(f.Send(2, kFirst, 0, 1) == Two{0, 1});
  CHECK(f.Send(3, kFirst, 0, 0) == Two{0, 0});
}

TEST_CASE("an overflow is sent and not carried over") {
  FeedbackFixture f;
  const float inf = std::numeric_limits<float>::infinity();
  CHECK(f.Send(0, kFirst, inf, 2)[0] == inf);
  CHECK(f.Send(1, kFirst, 1, 0) == Two{0, 2});
  CHECK(f.Send(2, kFirst, 0, 0) == Two{1, 0});
}

}  // namespace
}  // namespace pando
