#include "plan/external_model.h"

#include <doctest/doctest.h>

#include "plan/optimizer_turns.h"
#include "tests/contains.h"

namespace pando {
namespace {

Job DeclaredJob(std::vector<std::string> tensors) {
  Job job;
  job.model = job.dataset = kExternalName;
  job.tensors = std::move(tensors);
  job.synthetic_train_samples = 100;
  job.synthetic_test_samples = 10;
  return job;
}

std::string ErrorFor(const std::string& tensor) { return ParseTensor(tensor).status().message(); }

TEST_CASE("a tensor's text is read back to the same bits") {
  for (const char* text : {"w [2,3]", "scalar []", "layer1.0.bn.running_mean [64] statistic=0.1",
                           "bn.running_var [1] statistic=1", "head.weight [10,512] lr=0.1 decay=0",
                           "head.bias [10] decay=0.0005", "d.weight [2] group=1"}) {
    const Result<TensorSpec> spec = ParseTensor(text);
    REQUIRE(spec.ok());
    CHECK(TensorText(*spec) == text);
  }
  TensorSpec third{.name = "a", .shape = {1}, .kind = TensorKind::kStatistic};
  third.momentum = 1.0f / 3;
  CHECK(ParseTensor(TensorText(third))->momentum == third.momentum);
}

TEST_CASE("a tensor that is none is refused with what was expected") {
  for (const char* text :
       {"", "w", "w 2,3", "w [2,3", "w [0]", "w [-1]", "w [2,x]", " [2]", "w [2] lr", "w [2] lr=x",
        "w [2] lr=-1", "w [2] group=0.5", "w [2] group=-1", "w [2] lr=nan", "w [2] statistic=2",
        "w [2] other=1", "w [68719476736,2]", "w [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"}) {
    CAPTURE(text);
    CHECK(Contains(ErrorFor(text), "expected NAME [EXTENT,...]"));
  }
}

TEST_CASE("the plan has the tensors in order, and the metrics behind them") {
  const Result<JobPlan> plan = ExternalPlan(DeclaredJob({"w [2,3]", "b [2]"}));
  REQUIRE(plan.ok());
  REQUIRE(plan->layout.tensor_count() == 3);
  CHECK(plan->layout.specs()[0].shape == std::vector<uint64_t>{2, 3});
  CHECK(plan->layout.specs()[2].kind == TensorKind::kMetric);
  CHECK(plan->data.train_samples == 100);
  CHECK(plan->data.test_samples == 10);
}

TEST_CASE("two tensors of one name, or of a reserved one, are refused") {
  CHECK(Contains(ExternalLayout(DeclaredJob({"w [2]", "w [3]"})).status().message(), "'w' twice"));
  CHECK(
      Contains(ExternalLayout(DeclaredJob({"pando.metrics [2]"})).status().message(), "reserved"));
}

TEST_CASE("groups go with sgd and adam, and not with trust ratios") {
  Job job = DeclaredJob({"w [2] lr=0.1"});
  CHECK(ExternalPlan(job).ok());
  job.optimizer.kind = OptimizerKind::kLamb;
  CHECK(Contains(ExternalPlan(job).status().message(), "optimizer.type = \"lamb\""));
}

TEST_CASE("groups that train in turns are read, and what is none is named") {
  Job job = DeclaredJob({"w [2]", "b [2] group=1"});
  CHECK(Contains(ExternalPlan(job).status().message(), "b is in group 1"));
  job.optimizer.groups = {"type=adam beta1=0.5", "momentum=0.9 nesterov=1 weight_clip=0.01"};
  CHECK(Contains(ExternalPlan(job).status().message(), "needs optimizer.turns"));
  job.optimizer.turns = {0, 0, 2};
  CHECK(Contains(ExternalPlan(job).status().message(), "optimizer.turns has group 2"));
  job.optimizer.turns = {0, 0, 1};
  REQUIRE(ExternalPlan(job).ok());
  const OptimizerTurns turns(job.optimizer);
  CHECK(turns.groups()[0].beta1 == 0.5);
  CHECK(turns.groups()[1].nesterov);
  CHECK(turns.groups()[1].weight_clip == 0.01);
  const std::vector<uint64_t> before{0, 1, 0, 2, 3, 1, 4};
  for (uint64_t step = 0; step < before.size(); ++step) {
    CHECK(turns.GroupAt(Step(step)) == (step % 3 == 2 ? 1 : 0));
    CHECK(turns.StepsBefore(Step(step)) == before[step]);
  }
  for (const char* text : {"beta1", "beta1=x", "beta1=-1", "other=1", "type=lamb", "type=nadam"}) {
    job.optimizer.groups[1] = text;
    CHECK(Contains(ExternalPlan(job).status().message(), "optimizer.groups[1]"));
  }
}

TEST_CASE("the first difference of two models is named") {
  const Job run = DeclaredJob({"w [2]", "b [3]"});
  CHECK(TensorDifference(run, run).empty());
  CHECK(TensorDifference(DeclaredJob({"w [2]", "b [4]"}), run) ==
        "tensor 1 is b [4] here, and b [3] in the run");
  CHECK(TensorDifference(DeclaredJob({"w [2]"}), run) ==
        "the model has 1 tensors here, and 2 in the run");
}

TEST_CASE("a model that no machine can hold is refused before anything is allocated") {
  CHECK(Contains(
      ExternalLayout(DeclaredJob({"a [34359738368]", "b [34359738369]"})).status().message(),
      "more than 68719476736 elements"));
}

}  // namespace
}  // namespace pando
