#include "worker/questions.h"

#include "tests/worker/parts_fixture.h"

namespace pando {
namespace {

struct Asking : PartsFixture {
  Asking() : questions(member, lanes, requests) {
    Enter();
    questions.EnterView(kMs);
  }
  bool Answer(const PeerId& lane, uint32_t shard, uint64_t version) {
    return questions.OnAnswer(kMs, lane, {{1, 1}, {{ShardId(shard), Version(version), {}}}});
  }
  Questions questions;
};

TEST_CASE("every primary is asked, and asked again until it answers (P17)") {
  Asking f;
  f.questions.Tick(kMs);
  CHECK(f.Take<Question>().size() == 2);
  CHECK_FALSE(f.Answer(kLaneA, 0, 3));
  CHECK(f.questions.NextDeadline() == kMs + Questions::kRetryFirst);
  f.questions.Tick(kMs + Questions::kRetryFirst);
  const auto repeated = f.Take<Question>();
  REQUIRE(repeated.size() == 1);
  CHECK(repeated[0].first == kLaneB);
}

TEST_CASE("the last answer ends the questions, and all answers can be read") {
  Asking f;
  f.Answer(kLaneA, 0, 3);
  CHECK(f.questions.is_open());
  CHECK(f.Answer(kLaneB, 1, 2));
  CHECK_FALSE(f.questions.is_open());
  CHECK(f.questions.answers().size() == 2);
  const StepPlan steps({.step_count = 9});
  CHECK(f.questions.answers().IsBehind(Step(3), steps));
  CHECK_FALSE(f.questions.answers().IsBehind(Step(2), steps));
  CHECK_FALSE(f.Answer(kLaneB, 1, 2));
}

TEST_CASE("a shard that no answer names is being restored: all are asked again") {
  Asking f;
  f.Answer(kLaneA, 0, 3);
  CHECK_FALSE(f.questions.OnAnswer(kMs, kLaneB, {{1, 1}, {}}));
  CHECK(f.questions.is_open());
  CHECK(f.questions.answers().size() == 0);
}

TEST_CASE("a lane that does not answer for long gets a hint at our view (P13)") {
  Asking f;
  f.Answer(kLaneA, 0, 3);
  for (Micros now = kMs; now < 500 * kMs; now = f.questions.NextDeadline()) f.questions.Tick(now);
  const auto hints = f.Take<ViewHint>();
  REQUIRE(!hints.empty());
  CHECK(hints[0].first == kLaneB);
}

}  // namespace
}  // namespace pando
