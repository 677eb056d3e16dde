#include "optim/version_maker.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/combine_all.h"
#include "tests/server/lane_fixture.h"
#include "tests/written_sum.h"

namespace pando {
namespace {

// Shards 0 to 2: a tensor of 3072 floats in three parts; shard 3: biases and the metrics.
TensorLayout LayoutOfFourShards() {
  return TensorLayout({{.name = "weight", .shape = {3, 1024}},
                       {.name = "bias", .shape = {20}},
                       {.name = "small", .shape = {4, 4}},
                       MetricTensorSpec()});
}

constexpr float kWeight = 0.5f;

struct Model {
  explicit Model(OptimizerOptions options_in)
      : options(options_in),
        optimizer(options, layout),
        plan(options, layout, shards),
        parameters(layout.float_count(), kWeight) {}

  // Each float's mean gradient is `gradient`; step 0.
  void MakeAll(float gradient) {
    for (const ShardRange& range : shards.ranges()) {
      const std::vector<float> sums(range.size(), 4 * gradient);
      const std::vector<float> state(optimizer.state_floats(range), 0.0f);
      partials.emplace_back(optimizer.partial_count(range), NAN);
      optimizer.MakePartials(
          {.range = range,
           .parameters = std::span(parameters).subspan(range.first, range.size()),
           .gradient = sums,
           .gradient_scale = 0.25f,
           .scalars = {.lr = 1,
                       .momentum = 0.9f,
                       .bias_correction1 = 0.1f,
                       .bias_correction2_sqrt = std::sqrt(0.001f)},
           .is_first_step = true,
           .state = state},
          partials.back());
    }
  }
  std::optional<std::vector<float>> Combine(uint32_t shard) const {
    return FindFactors(plan, ShardId(shard), partials);
  }

  const OptimizerOptions options;
  const TensorLayout layout = LayoutOfFourShards();
  const ShardPlan shards{layout};
  const Optimizer optimizer;
  const PartialPlan plan;
  const std::vector<float> parameters;
  std::vector<std::vector<float>> partials;
};

// A sum of 3108 equal squares, its root and a quotient, each rounded to float once.
constexpr double kTolerance = 3e-7;
bool IsNear(float x, double expected) {
  return std::abs(x - expected) <= kTolerance * std::abs(expected);
}

TEST_CASE("an update without norms waits for no other shard") {
  for (OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    const Model model({.kind = kind});
    CHECK(model.plan.is_empty());
    CHECK(model.optimizer.partial_count({0, 3072}) == 0);
    CHECK(model.optimizer.factor_count({0, 3072}) == 0);
  }
}

TEST_CASE("a gradient above the norm is scaled down to it, over all shards") {
  Model model({.clip_norm = 2.0});
  REQUIRE(model.shards.shard_count() == 4);
  model.MakeAll(0.25f);
  const double norm = 0.25 * std::sqrt(3072 + 20 + 16);  // parameters alone, without padding
  for (uint32_t s = 0; s < 4; ++s) {
    CHECK(model.plan.needs_total());
    const auto factors = model.Combine(s);
    REQUIRE(factors);
    REQUIRE(factors->size() == 1);
    CHECK(IsNear((*factors)[0], 2.0 / (norm + 1e-6)));
  }
}

TEST_CASE("a gradient below the norm stays as it is, and so does one that is not a number") {
  for (float gradient : {0.0f, 1e-3f, NAN}) {
    Model model({.clip_norm = 2.0});
    model.MakeAll(gradient);
    CHECK((*model.Combine(0))[0] == 1.0f);
  }
}

TEST_CASE("nothing is combined before the last neighbour's values are there") {
  Model model({.kind = OptimizerKind::kLars});
  model.MakeAll(1.0f);
  const std::vector<float> last = std::exchange(model.partials[2], {});
  CHECK_FALSE(model.Combine(0));
  CHECK(model.Combine(3));
  model.partials[2] = last;
  CHECK(model.Combine(0));
}

TEST_CASE("totals of parts add up to the total, in any order") {
  Model model({.clip_norm = 2.0, .loss_scale = {.is_on = true}});
  model.MakeAll(0.1f);
  PartialTotal first, second, whole;
  for (uint32_t s : {3u, 1u}) model.plan.AddTo(&first, ShardId(s), model.partials[s]);
  for (uint32_t s : {0u, 2u}) model.plan.AddTo(&second, ShardId(s), model.partials[s]);
  for (uint32_t s : {0u, 1u, 2u, 3u}) model.plan.AddTo(&whole, ShardId(s), model.partials[s]);
  second.AddWritten(first.Write());
  CHECK(second.Write() == whole.Write());
  model.partials[1].back() = 0.0f;  // an overflow in one shard
  PartialTotal overflow;
  model.plan.AddTo(&overflow, ShardId(1), model.partials[1]);
  second.AddWritten(overflow.Write());
  CHECK_FALSE(second.is_finite);
  PartialTotal read;
  read.AddWritten(second.Write());
  CHECK_FALSE(read.is_finite);
}

TEST_CASE("LARS: a tensor's ratio is the same in each of its shards, biases have none") {
  Model model({.kind = OptimizerKind::kLars, .weight_decay = 0.25, .trust_coefficient = 0.125});
  CHECK(model.plan.Neighbours(ShardId(1)).first == 0);
  CHECK(model.plan.Neighbours(ShardId(1)).last == 3);
  CHECK(model.plan.Neighbours(ShardId(3)).first == 3);
  model.MakeAll(2.0f);
  const double ratio = 0.125 * kWeight / (2.0 + 0.25 * kWeight);
  for (uint32_t s = 0; s < 4; ++s) {  // in shard 3, of "small"
    const auto factors = model.Combine(s);
    REQUIRE(factors->size() == 2);
    CHECK((*factors)[0] == 1.0f);
    CHECK(IsNear((*factors)[1], ratio));
  }
}

TEST_CASE("LARS with clipping: the ratio is of the clipped gradient") {
  Model model({.kind = OptimizerKind::kLars,
               .weight_decay = 0.25,
               .clip_norm = 1.0,
               .trust_coefficient = 0.125});
  model.MakeAll(2.0f);
  const double factor = 1.0 / (2.0 * std::sqrt(3072 + 20 + 16) + 1e-6);
  const auto factors = model.Combine(2);
  CHECK(IsNear((*factors)[0], factor));
  CHECK(IsNear((*factors)[1], 0.125 * kWeight / (2.0 * factor + 0.25 * kWeight)));
}

TEST_CASE("LAMB: the ratio is of the weights and the step with its decay") {
  Model model({.kind = OptimizerKind::kLamb, .eps = 1e-12, .weight_decay = 0.25});
  model.MakeAll(2.0f);
  // At the first step the corrected means are g and g², so that r = 1.
  constexpr double kLambTolerance = 2e-6;  // bias corrections and betas as floats
  const double ratio = kWeight / (1.0 + 0.25 * kWeight);
  for (uint32_t s = 0; s < 4; ++s)
    CHECK(std::abs((*model.Combine(s))[1] - ratio) <= kLambTolerance);
}

// Its first mean keeps a direction, of a length that fades.
TEST_CASE("LAMB: a layer without gradient moves no faster than the ratio's bound lets it") {
  Model model({.kind = OptimizerKind::kLamb, .eps = 1e-12, .trust_ratio_max = 0.25});
  model.MakeAll(2.0f);
  CHECK((*model.Combine(0))[1] == 0.25f);
}

TEST_CASE("without a gradient the ratio is 1") {
  for (OptimizerKind kind : {OptimizerKind::kLars, OptimizerKind::kLamb}) {
    Model model({.kind = kind});
    model.MakeAll(0.0f);
    CHECK((*model.Combine(0))[1] == 1.0f);
  }
}

// ---- lanes --------------------------------------------------------------------------------------

// Two shards on two servers; gradients are of norm 8 in step 1.
// Each shard on a separate server, shard 1's backups on these; ready for gradients.
struct Clipping : LaneFixture {
  explicit Clipping(uint32_t server_count, std::vector<uint32_t> backups = {})
      : LaneFixture(server_count, ClippingJob()) {
    Place(0, 1, {});
    Place(1, 2, std::move(backups));
    Announce();
    GiveScalars();
    Deliver();
  }
  void PushStepToBoth(uint64_t step) {
    PushStep(1, step, 0);
    PushStep(2, step, 1);
  }
  // All but what shard 0 would hear of shard 1's value.
  void DeliverWithoutFirst() {
    Deliver([](const Envelope& e) {
      return std::holds_alternative<Partials>(e.message) && e.receiver == Server(1);
    });
  }
  // Shard 1's server dies, and server 3 leads it.
  void LoseSecond() {
    Kill(2);
    Place(1, 3, {});
    Announce();
    Deliver();
  }
};

TEST_CASE("no version is made before every shard's root is complete, then it is clipped") {
  Clipping f(2);
  for (uint64_t step : {0u, 1u}) {
    f.PushStep(1, step, 0);
    f.Deliver();
    CHECK(f.shard(1, 0).committed() == Version(step));
    f.PushStep(2, step, 1);
    f.Deliver();
    CHECK(f.shard(1, 0).committed() == Version(step + 1));
    CHECK(f.shard(2, 1).committed() == Version(step + 1));
  }
  // Step 0's gradient is 0. In step 1 the mean is 0.25, the norm 0.25 · √1024.
  const float factor = 2.0f / 8.0f;
  CHECK(IsNear(f.shard(1, 0).records().Find(Version(2))->parameters->data()[0],
               1 - 0.5 * 0.25 * factor));
}

TEST_CASE("partial values that were lost are pulled (P16)") {
  Clipping f(2);
  f.PushStepToBoth(0);
  f.Deliver(Is<Partials>);
  CHECK(f.shard(1, 0).committed() == Version(0));
  CHECK(f.shard(2, 1).committed() == Version(0));
  f.Wait(std::chrono::milliseconds(300));
  CHECK(f.shard(1, 0).committed() == Version(1));
  CHECK(f.shard(2, 1).committed() == Version(1));
}

TEST_CASE("a lane that does not answer pulls is reported after two leases (P23)") {
  Clipping f(2);
  f.PushStep(1, 0, 0);
  f.Deliver();
  f.Wait(std::chrono::milliseconds(3000));  // the other is asked and has nothing to say yet
  CHECK(f.Heard<PeerSilent>(LaneFixture::kScheduler).empty());
  f.Kill(2);
  f.Wait(std::chrono::milliseconds(3000));
  const auto silent = f.Heard<PeerSilent>(LaneFixture::kScheduler);
  REQUIRE_FALSE(silent.empty());
  CHECK(silent[0].peer == LaneFixture::Server(2));
  CHECK(silent[0].silent_ms >= 2000);
}

TEST_CASE("a backup answers pulls too: the asker's view may be newer (P16)") {
  Clipping f(3, {3});
  f.PushStepToBoth(0);
  f.Deliver();
  REQUIRE(f.shard(3, 1).newest() == Version(1));
  f.Kill(2);  // so its answer lands here
  f.SendFrom(LaneFixture::Server(2), 3, PartialsPull{{{ShardId(1), Step(0)}}});
  f.Deliver();
  const auto answers = f.Heard<Partials>(LaneFixture::Server(2));
  REQUIRE_FALSE(answers.empty());
  REQUIRE(answers.back().items.size() == 1);
  CHECK(answers.back().items[0].values.size() == ExactSum::kFloats);
}

TEST_CASE("a new primary answers for the dead one with its record's partial values (P16)") {
  Clipping f(3, {3});
  f.PushStepToBoth(0);
  // Shard 1 makes version 1 and its backup follows; shard 0 never hears of shard 1's value.
  f.DeliverWithoutFirst();
  CHECK(f.shard(3, 1).newest() == Version(1));
  CHECK(f.shard(1, 0).newest() == Version(0));
  f.LoseSecond();
  CHECK(f.shard(1, 0).newest() == Version(1));
}

TEST_CASE("a newcomer's image brings the partial values (P16, P20)") {
  Clipping f(3);
  f.PushStepToBoth(0);
  f.DeliverWithoutFirst();
  CHECK(f.shard(2, 1).newest() == Version(1));
  f.Place(1, 2, {}, {{3, f.NextViewId()}});
  f.Announce();
  f.DeliverWithoutFirst();
  CHECK(f.shard(3, 1).newest() == Version(1));
  CHECK(f.shard(1, 0).newest() == Version(0));
  f.LoseSecond();
  CHECK(f.shard(1, 0).newest() == Version(1));
}

TEST_CASE("values of other steps, sizes and shards are not taken") {
  Clipping f(2);
  f.PushStep(1, 0, 0);
  f.SendFrom(LaneFixture::Server(2), 1,
             Partials{{{ShardId(1), Step(2), WrittenSum(1)},
                       {ShardId(1), Step(0), {1.0f, 2.0f}},
                       {ShardId(1), Step(0), {}},
                       {ShardId(2), Step(0), WrittenSum(1)}}});
  f.Deliver();
  CHECK(f.shard(1, 0).newest() == Version(0));
  f.SendFrom(LaneFixture::Server(2), 1, Partials{{{ShardId(1), Step(0), WrittenSum(1)}}});
  f.Deliver();
  CHECK(f.shard(1, 0).newest() == Version(1));
}

}  // namespace
}  // namespace pando
