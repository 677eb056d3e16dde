#include "server/shard.h"

#include <doctest/doctest.h>

#include "plan/tensor_init.h"

namespace pando {
namespace {

JobPlan MakePlan(uint64_t steps, uint64_t eval_every_epochs, Job job = {}) {
  job.steps = steps;
  job.global_batch = 4;
  job.micro_batches = 2;
  job.eval_every_epochs = eval_every_epochs;
  job.optimizer.lr = 0.5;
  DataFacts data{.train_samples = 4, .test_samples = 10};  // one step an epoch
  return JobPlan(
      job, data,
      TensorLayout({{.name = "w", .shape = {20}, .init = InitKind::kOne}, MetricTensorSpec()}));
}

Job StaleJob() {
  Job job;
  job.staleness = 1;
  return job;
}

class ShardFixture {
 public:
  explicit ShardFixture(uint64_t steps = 8, uint64_t eval_every_epochs = 0, const Job& job = {})
      : plan_(MakePlan(steps, eval_every_epochs, job)),
        maker_(plan_),
        shard_(ShardId(0), plan_, maker_) {
    shard_.records().StartAtZero();
    shard_.StartLeading();
  }

  Shard& shard() { return shard_; }
  PushItem MakePush(uint64_t step, uint32_t node, float value, size_t floats = 48) {
    auto buffer = std::make_shared<FloatBuffer>(floats);
    std::ranges::fill(buffer->span(), value);
    return {ShardId(0), Step(step), TreeNode(node), ToBlob(buffer)};
  }
  void MakeVersion(uint64_t step) {
    CHECK(shard_.Add(MakePush(step, 2, 1)) == Shard::Taken::kNew);
    CHECK(shard_.Add(MakePush(step, 3, 3)) == Shard::Taken::kNew);
    if (!shard_.is_ready()) return;
    shard_.MakeAlone({.lr = 0.5f}, {});
    shard_.records().Commit();
  }

 private:
  JobPlan plan_;
  VersionMaker maker_;
  Shard shard_;
};

TEST_CASE("version 0 is made from the seed alone and is committed") {
  ShardFixture fixture;
  CHECK(fixture.shard().committed() == Version(0));
  CHECK(fixture.shard().records().Find(Version(0))->parameters->data()[19] == 1.0f);
  CHECK(fixture.shard().records().Find(Version(0))->parameters->data()[20] == 0.0f);  // padding
}

TEST_CASE("a complete tree makes the next version with the true sample count") {
  ShardFixture fixture;
  fixture.MakeVersion(0);
  CHECK(fixture.shard().committed() == Version(1));
  CHECK(fixture.shard().records().Find(Version(1))->parameters->data()[0] ==
        0.5f);  // 1 − 0.5 · (1 + 3) / 4
  CHECK(fixture.shard().records().Find(Version(1))->parameters->data()[20] == 0.0f);
}

TEST_CASE("two versions are kept, older ones are gone") {
  ShardFixture fixture;
  for (uint64_t step = 0; step < 3; ++step) fixture.MakeVersion(step);
  CHECK(fixture.shard().records().Find(Version(3)) != nullptr);
  CHECK(fixture.shard().records().Find(Version(2)) != nullptr);
  CHECK(fixture.shard().records().Find(Version(1)) == nullptr);
  CHECK(fixture.shard().records().IsGone(Version(1)));
  CHECK_FALSE(fixture.shard().records().IsGone(Version(4)));
}

TEST_CASE("a version is shown as floats or by the job's codec, as asked for") {
  Job job;
  job.pull_codec = PayloadCodec::kBf16;
  ShardFixture fixture(8, 0, job);
  fixture.MakeVersion(0);
  const auto exact = fixture.shard().records().Show(Version(1), ParamsForm::kExact);
  const auto encoded = fixture.shard().records().Show(Version(1), ParamsForm::kEncoded);
  REQUIRE(exact);
  REQUIRE(encoded);
  CHECK(exact->floats().data() == fixture.shard().records().newest().parameters->data());
  CHECK(exact->size_bytes() == 48 * 4);
  CHECK(encoded->size_bytes() == 32 * 2 + 16 * 4);  // weights, and metrics as they are
  const auto again = fixture.shard().records().Show(Version(1), ParamsForm::kEncoded);
  CHECK(again->bytes().data() == encoded->bytes().data());  // made once
  CHECK_FALSE(fixture.shard().records().Show(Version(2), ParamsForm::kEncoded));
}

TEST_CASE("gradients are taken as long as the job's codec makes them") {
  Job job;
  job.push_codec = PayloadCodec::kInt8;
  ShardFixture fixture(8, 0, job);
  const size_t encoded_floats = (16 * 4 + 4 + 32 + 7) / 8 * 8 / 4;
  CHECK(fixture.shard().Add(fixture.MakePush(0, 2, 0, 48)) == Shard::Taken::kRefused);
  CHECK(fixture.shard().Add(fixture.MakePush(0, 2, 0, encoded_floats)) == Shard::Taken::kNew);
}

TEST_CASE("a past step is a duplicate, a step that cannot be yet is refused") {
  ShardFixture fixture;
  fixture.MakeVersion(0);
  CHECK(fixture.shard().Add(fixture.MakePush(0, 2, 1)) == Shard::Taken::kDuplicate);
  CHECK(fixture.shard().Add(fixture.MakePush(2, 2, 1)) == Shard::Taken::kRefused);
  CHECK(fixture.shard().Add(fixture.MakePush(1, 2, 1)) == Shard::Taken::kNew);
  CHECK(fixture.shard().Add(fixture.MakePush(1, 2, 1)) == Shard::Taken::kDuplicate);
}

TEST_CASE("with staleness the steps that may be sent are collected side by side (P4)") {
  ShardFixture fixture(8, 0, StaleJob());
  Shard& shard = fixture.shard();
  CHECK(shard.Add(fixture.MakePush(2, 2, 1)) == Shard::Taken::kRefused);
  CHECK(shard.Add(fixture.MakePush(1, 2, 1)) == Shard::Taken::kNew);
  CHECK(shard.Add(fixture.MakePush(1, 3, 3)) == Shard::Taken::kNew);
  CHECK_FALSE(shard.is_ready());
  CHECK(shard.held_nodes(Step(0)).empty());
  CHECK(shard.held_nodes(Step(1)) == std::vector<TreeNode>{MicroBatchTree::kRoot});
  fixture.MakeVersion(0);
  REQUIRE(shard.is_ready());  // with step 1
  shard.MakeAlone({.lr = 0.5f}, {});
  shard.records().Commit();
  CHECK(shard.committed() == Version(2));
  CHECK(shard.records().newest().parameters->data()[0] == 0.0f);  // 1 − 2 · 0.5 · (1 + 3) / 4
  CHECK(shard.Add(fixture.MakePush(4, 2, 1)) == Shard::Taken::kRefused);
  CHECK(shard.Add(fixture.MakePush(3, 2, 1)) == Shard::Taken::kNew);
}

TEST_CASE("with staleness the versions that a step may still be computed again with are kept") {
  ShardFixture fixture(8, 0, StaleJob());
  for (uint64_t step = 0; step < 5; ++step) fixture.MakeVersion(step);
  ShardRecords& records = fixture.shard().records();
  for (uint64_t version : {2, 3, 4, 5}) CHECK(records.Find(Version(version)) != nullptr);
  CHECK(records.IsGone(Version(1)));
  std::vector<VersionRecord> image = records.ShareKept();
  CHECK(image.size() == 4);
  ShardFixture newcomer(8, 0, StaleJob());
  newcomer.shard().Install(std::move(image));
  CHECK(newcomer.shard().records().Find(Version(2)) != nullptr);
  CHECK(newcomer.shard().committed() == Version(5));
}

TEST_CASE("with staleness the state holds the version before, for a restore") {
  ShardFixture fixture(8, 0, StaleJob());
  for (uint64_t step = 0; step < 3; ++step) fixture.MakeVersion(step);
  const float before = fixture.shard().records().Find(Version(2))->parameters->data()[3];
  ShardFixture restored(8, 0, StaleJob());
  restored.shard().Install({fixture.shard().records().newest()});
  const VersionRecord* earlier = restored.shard().records().Find(Version(2));
  REQUIRE(earlier != nullptr);
  CHECK(earlier->parameters->data()[3] == before);
  CHECK(restored.shard().records().NewestHash() == fixture.shard().records().NewestHash());
  restored.shard().StartLeading();
  restored.MakeVersion(3);
  fixture.MakeVersion(3);
  CHECK(restored.shard().records().NewestHash() == fixture.shard().records().NewestHash());
}

TEST_CASE("with staleness a version due for evaluation is pinned when it would be dropped") {
  ShardFixture fixture(9, 2, StaleJob());  // versions 2, 4, 6, 8
  for (uint64_t step = 0; step < 7; ++step) fixture.MakeVersion(step);
  ShardRecords& records = fixture.shard().records();
  CHECK(records.newest_version() == Version(7));  // 2 is pinned, 4 to 7 are kept
  CHECK(records.Find(Version(2)) != nullptr);
  fixture.MakeVersion(7);
  CHECK(records.newest_version() == Version(7));  // 4 would be dropped
  records.ReleasePin(Version(2));
  CHECK(fixture.shard().is_ready());
}

TEST_CASE("a node that the tree lacks and a payload of another size are refused") {
  ShardFixture fixture;
  for (uint32_t node : {0u, 4u, 7u, 4000000000u}) {
    CHECK(fixture.shard().Add(fixture.MakePush(0, node, 1)) == Shard::Taken::kRefused);
  }
  CHECK(fixture.shard().Add(fixture.MakePush(0, 2, 1, 47)) == Shard::Taken::kRefused);
  CHECK(fixture.shard().held_nodes(Step(0)).empty());
}

TEST_CASE("nothing is taken after the last step") {
  ShardFixture fixture(1);
  fixture.MakeVersion(0);
  CHECK(fixture.shard().Add(fixture.MakePush(1, 2, 1)) == Shard::Taken::kRefused);
}

TEST_CASE("a version due for evaluation is pinned until it is released") {
  ShardFixture fixture(8, 2);  // versions 2, 4, 6, 8
  for (uint64_t step = 0; step < 5; ++step) fixture.MakeVersion(step);
  CHECK(fixture.shard().records().Find(Version(2)) != nullptr);
  fixture.shard().records().ReleasePin(Version(2));
  CHECK(fixture.shard().records().Find(Version(2)) == nullptr);
}

TEST_CASE("with one pin taken a shard waits rather than drop a second version due") {
  ShardFixture fixture(8, 2);
  for (uint64_t step = 0; step < 5; ++step) fixture.MakeVersion(step);
  CHECK(fixture.shard().committed() == Version(5));
  fixture.MakeVersion(5);  // would drop version 4 while version 2 is pinned
  CHECK(fixture.shard().committed() == Version(5));
  fixture.shard().records().ReleasePin(Version(2));
  CHECK(fixture.shard().is_ready());
}

}  // namespace
}  // namespace pando
