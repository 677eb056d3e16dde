#include "optim/schedule.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/golden/optimizer_goldens.h"

namespace pando {
namespace {

// Both sides compute in double and round once; torch's recursions may end in the neighbouring
// float.
constexpr double kFloatUlp = 1.2e-7;

const OptimizerOptions kAdam{.kind = OptimizerKind::kAdam, .lr = 0.01};

struct Near {
  double expected;
  friend bool operator==(float x, Near near) {
    return std::abs(x - near.expected) <= kFloatUlp * std::abs(near.expected);
  }
  friend doctest::String toString(Near near) { return doctest::toString(near.expected); }
};

TEST_CASE("every schedule sends PyTorch's rates, momenta and bias corrections") {
  const OptimizerGoldens goldens = ReadOptimizerGoldens();
  for (const OptimizerGoldens::Case& golden : goldens.cases) {
    CAPTURE(golden.name);
    const Schedule schedule(golden.optimizer, golden.schedule, goldens.step_count);
    for (uint64_t step = 0; step < goldens.step_count; ++step) {
      CAPTURE(step);
      const StepScalars ours = schedule.At(Step(step));
      const StepScalars& torchs = golden.scalars[step];
      CHECK(ours.lr == Near{torchs.lr});
      CHECK(ours.momentum == Near{torchs.momentum});
      CHECK(ours.bias_correction1 == Near{torchs.bias_correction1});
      CHECK(ours.bias_correction2_sqrt == Near{torchs.bias_correction2_sqrt});
      CHECK(ours.gradient_factor == Near{torchs.gradient_factor});
      CHECK(ours.mean_factor == Near{torchs.mean_factor});
    }
  }
}

TEST_CASE("a job of one step has the rate of its schedule's first step") {
  auto rate = [](ScheduleOptions s) { return Schedule(kAdam, s, 1).At(Step(0)).lr; };
  CHECK(rate({.kind = ScheduleKind::kConstant}) == 0.01f);
  CHECK(rate({.kind = ScheduleKind::kStep, .step_size = 1}) == 0.01f);
  CHECK(rate({.kind = ScheduleKind::kCosine}) == 0.01f);
  // As torch has it: the only step of a cycle is its end.
  CHECK(rate({.kind = ScheduleKind::kOneCycle}) == Near{0.01 / 25 / 1e4});
}

TEST_CASE("a cycle starts, peaks and ends at the rates its factors name") {
  const ScheduleOptions cycle{.kind = ScheduleKind::kOneCycle};
  const Schedule schedule(kAdam, cycle, 101);  // the rise ends between steps 29 and 30
  CHECK(schedule.At(Step(0)).lr == Near{0.01 / 25});
  CHECK(schedule.At(Step(0)).momentum == 0.95f);
  CHECK(schedule.At(Step(100)).lr == Near{0.01 / 25 / 1e4});
  CHECK(schedule.At(Step(100)).momentum == 0.95f);

  const Schedule exact(kAdam, cycle, 10);  // 0.3 · 10 − 1: the peak is step 2
  CHECK(exact.At(Step(2)).lr == Near{0.01});
  CHECK(exact.At(Step(2)).momentum == Near{0.85});
}

TEST_CASE("a cycle without a rise starts at its peak, one without a fall ends there") {
  const Schedule no_rise(kAdam, {.kind = ScheduleKind::kOneCycle, .pct_start = 0.1}, 10);
  CHECK(no_rise.At(Step(0)).lr == Near{0.01});
  CHECK(no_rise.At(Step(9)).lr == Near{0.01 / 25 / 1e4});
  const Schedule no_fall(kAdam, {.kind = ScheduleKind::kOneCycle, .pct_start = 1.0}, 10);
  CHECK(no_fall.At(Step(0)).lr == Near{0.01 / 25});
  CHECK(no_fall.At(Step(9)).lr == Near{0.01});
  const Schedule single(kAdam, {.kind = ScheduleKind::kOneCycle, .pct_start = 1.0}, 1);
  CHECK(single.At(Step(0)).lr == Near{0.01});
}

TEST_CASE("a step size of zero never decays") {
  const Schedule schedule(kAdam, {.kind = ScheduleKind::kStep, .step_size = 0}, 1000);
  CHECK(schedule.At(Step(999)).lr == 0.01f);
}

TEST_CASE("a milestone at the first step decays at once, and one twice decays twice") {
  const ScheduleOptions options{
      .kind = ScheduleKind::kMultiStep, .milestones = {7, 0, 7}, .gamma = 0.5};
  const Schedule schedule(kAdam, options, 10);
  CHECK(schedule.At(Step(0)).lr == 0.005f);
  CHECK(schedule.At(Step(6)).lr == 0.005f);
  CHECK(schedule.At(Step(7)).lr == Near{0.00125});
}

TEST_CASE("linear and polynomial stay at their end from total_iters on") {
  const ScheduleOptions linear{
      .kind = ScheduleKind::kLinear, .start_factor = 0.5, .end_factor = 0.25, .total_iters = 4};
  CHECK(Schedule(kAdam, linear, 10).At(Step(0)).lr == 0.005f);
  CHECK(Schedule(kAdam, linear, 10).At(Step(4)).lr == 0.0025f);
  CHECK(Schedule(kAdam, linear, 10).At(Step(9)).lr == 0.0025f);
  const ScheduleOptions polynomial{.kind = ScheduleKind::kPolynomial, .total_iters = 4, .power = 3};
  CHECK(Schedule(kAdam, polynomial, 10).At(Step(2)).lr == Near{0.01 / 8});
  CHECK(Schedule(kAdam, polynomial, 10).At(Step(4)).lr == 0.0f);
  CHECK(Schedule(kAdam, polynomial, 10).At(Step(9)).lr == 0.0f);
}

TEST_CASE("warm-up rises linearly to the first rate of what follows") {
  const Schedule one(kAdam, {.warmup_steps = 1}, 10);
  CHECK(one.At(Step(0)).lr == 0.01f);
  const Schedule four(kAdam, {.warmup_steps = 4}, 10);
  CHECK(four.At(Step(0)).lr == Near{0.0025});
  CHECK(four.At(Step(3)).lr == 0.01f);
  CHECK(four.At(Step(4)).lr == 0.01f);
  const Schedule cycle(kAdam, {.kind = ScheduleKind::kOneCycle, .warmup_steps = 4}, 54);
  CHECK(cycle.At(Step(1)).lr == Near{0.01 / 25 / 2});
  CHECK(cycle.At(Step(3)).momentum == 0.95f);
  CHECK(cycle.At(Step(4)).lr == Near{0.01 / 25});
  CHECK(cycle.At(Step(53)).lr == Near{0.01 / 25 / 1e4});
}

TEST_CASE("a warm-up longer than the job just rises") {
  for (ScheduleKind kind : {ScheduleKind::kConstant, ScheduleKind::kStep, ScheduleKind::kCosine,
                            ScheduleKind::kLinear, ScheduleKind::kPolynomial}) {
    const Schedule schedule(kAdam, {.kind = kind, .warmup_steps = 100, .step_size = 2}, 10);
    CHECK(schedule.At(Step(0)).lr == Near{0.0001});
    CHECK(schedule.At(Step(9)).lr == Near{0.001});
  }
}

TEST_CASE("a table has the rate of each step, and no momentum moves") {
  const ScheduleOptions table{.kind = ScheduleKind::kTable, .rates = {"0.5*3", "0.25", "1e-3*2"}};
  const Schedule schedule(kAdam, table, 6);
  const std::vector<float> rates{0.5f, 0.5f, 0.5f, 0.25f, 0.001f, 0.001f};
  for (uint64_t step = 0; step < 6; ++step) CHECK(schedule.At(Step(step)).lr == rates[step]);
  CHECK(schedule.At(Step(5)).momentum == 0.9f);
}

TEST_CASE("rates that are none are named, and those of another length than the job's") {
  for (const char* text : {"", "x", "0.1*", "0.1*0", "0.1*x", "-0.1", "nan", "inf*2", "0.1*2*3",
                           "0.1*1000000000001", "0.1*18446744073709551615"}) {
    CAPTURE(text);
    const Result<RateTable> table = RateTable::Parse({"0.1", text});
    REQUIRE_FALSE(table.ok());
    CHECK(table.status().message().starts_with("schedule.rates[1] is '"));
  }
  CHECK_FALSE(RateTable::Parse({"1*1000000000000", "1"}).ok());
  const ScheduleOptions table{.kind = ScheduleKind::kTable, .rates = {"0.5*3", "0.25"}};
  CHECK(CheckRates(table, 4).ok());
  CHECK(CheckRates({}, 5).ok());
  for (uint64_t steps : {3, 5}) {
    CHECK(CheckRates(table, steps).message().starts_with("schedule.rates has the rates of 4"));
  }
}

TEST_CASE("NAdam's factors of a step do not depend on the steps that were asked for before") {
  const OptimizerOptions nadam{.kind = OptimizerKind::kNadam, .beta1 = 0.5};
  const Schedule schedule(nadam, {}, 100'000);
  const StepScalars late = schedule.At(Step(99'999));  // mu is beta1, and the product is zero
  CHECK(late.gradient_factor == Near{0.5});
  CHECK(late.mean_factor == Near{0.5});
  const StepScalars first = schedule.At(Step(0));
  CHECK(first.gradient_factor == 1.0f);  // (1 − mu) / (1 − mu)
  CHECK(schedule.Block(Step(0), 1)[0].mean_factor == first.mean_factor);
}

TEST_CASE("momentum of SGD is cycled only where there is one") {
  const ScheduleOptions cycle{.kind = ScheduleKind::kOneCycle};
  CHECK(Schedule({.momentum = 0.0}, cycle, 10).At(Step(0)).momentum == 0.0f);
  CHECK(Schedule({.momentum = 0.5}, cycle, 10).At(Step(0)).momentum == 0.95f);
  const StepScalars sgd = Schedule({.momentum = 0.5}, {}, 10).At(Step(3));
  CHECK(sgd.momentum == 0.5f);
  CHECK(sgd.bias_correction1 == 1.0f);
  CHECK(sgd.bias_correction2_sqrt == 1.0f);
}

TEST_CASE("a block is its steps, cut at the end of the job") {
  const Schedule schedule(kAdam, {.kind = ScheduleKind::kCosine}, 10);
  const std::vector<StepScalars> block = schedule.Block(Step(7), kScalarsPerBlock);
  REQUIRE(block.size() == 3);
  for (uint64_t i = 0; i < 3; ++i) CHECK(block[i].lr == schedule.At(Step(7 + i)).lr);
  CHECK(schedule.Block(Step(0), 4).size() == 4);
  CHECK(schedule.Block(Step(0), UINT64_MAX).size() == 10);
  CHECK(schedule.Block(Step(3), UINT64_MAX).size() == 7);
  CHECK(schedule.Block(Step(3), 0).empty());
  CHECK(schedule.Block(Step(10), 1).empty());
}

}  // namespace
}  // namespace pando
