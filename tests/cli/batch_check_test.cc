#include "job/batch_check.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "common/exit_codes.h"
#include "tests/cli/pando_program.h"

namespace pando {
namespace {

constexpr uint64_t kSamples = 100;

// ResNet-18 on 28 x 28 pictures: its last blocks make one pixel of one.
Job ResNet(uint64_t global_batch, uint32_t micro_batches) {
  Job job;
  job.model = "resnet18";
  job.global_batch = global_batch;
  job.micro_batches = micro_batches;
  return job;
}

StepPlan MakeSteps(const Job& job, const Model& model, uint64_t sample_count) {
  return JobPlan(job, {.train_samples = sample_count}, model.layout()).steps;
}

Status Check(const Job& job) {
  const Model model = *Model::Create(job, {28, 28, 1}, 10);
  return CheckMicroBatches(job, model, MakeSteps(job, model, kSamples));
}

TEST_CASE("batch norm over one pixel of one sample is refused with its layer, step and keys") {
  CHECK(Check(ResNet(20, 10)).ok());  // two samples each
  const Status one = Check(ResNet(20, 11));
  CHECK(one.code() == StatusCode::kInvalidArgument);
  CHECK(one.message().starts_with(
      "model resnet18: layer 'layer4.0.bn1' (BatchNorm2d) gets one pixel of a sample, and step 0 "
      "has micro-batches of one sample"));
  CHECK(one.message().find("train.micro_batches (11)") != std::string::npos);
}

TEST_CASE("an epoch's short batch counts, where the run gets to it") {
  Job job = ResNet(30, 10);  // 30, 30, 30, 10
  CHECK(Check(job).message().find("and step 3 has") != std::string::npos);
  job.last_batch = LastBatch::kDrop;
  CHECK(Check(job).ok());
  job.last_batch = LastBatch::kShort;
  job.steps = 3;
  CHECK(Check(job).ok());
  job.steps = 4;
  CHECK_FALSE(Check(job).ok());
}

TEST_CASE("batch norm over more pixels takes single samples") {
  Job job = ResNet(10, 10);
  job.model = "resnet18-cifar";
  CHECK(Check(job).ok());
}

TEST_CASE("activations that this machine has no room for are refused with their size") {
  const Job job = ResNet(20, 10);
  const Model model = *Model::Create(job, {28, 28, 1}, 10);
  const StepPlan steps = MakeSteps(job, model, kSamples);
  CHECK(CheckMemory(job, model, steps, MachineMemoryBytes()).ok());
  const Status status = CheckMemory(job, model, steps, 200'000);
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(status.message().find("micro-batches of 2 samples") != std::string::npos);
  CHECK(status.message().find("this machine has 200.0 kB of memory") != std::string::npos);
}

TEST_CASE("a batch whose size wraps is refused like any that is too large") {
  Job job;
  job.model = "wide.toml";
  job.global_batch = 1'000'000'000;
  job.micro_batches = 1;
  for (int i = 0; i < 12; ++i) {
    job.network += "[[layer]]\nname = \"wide" + std::to_string(i) +
                   "\"\ntype = \"Conv2d\"\nout_channels = 1000000\nkernel_size = 1\ngroups = " +
                   (i == 0 ? "1" : "1000000") + "\n";
  }
  job.network +=
      "[[layer]]\nname = \"mean\"\ntype = \"GlobalAvgPool2d\"\n"
      "[[layer]]\nname = \"fc\"\ntype = \"Linear\"\nout_features = \"classes\"\n";
  Result<Model> model = Model::Create(job, {28, 28, 1}, 10);
  REQUIRE_MESSAGE(model.ok(), model.status().message());
  const Status status =
      CheckMemory(job, *model, MakeSteps(job, *model, job.global_batch), MachineMemoryBytes());
  CHECK(status.code() == StatusCode::kInvalidArgument);
}

TEST_CASE("pando train refuses single samples under batch norm in one line") {
  const Outcome outcome = Pando({"train", "--model", "resnet18", "--dataset", "synthetic-digits",
                                 "--global-batch", "8", "--micro-batches", "8", "--dry-run"});
  CAPTURE(outcome.output);
  CHECK(outcome.exit_code == kExitUsage);
  CHECK(outcome.output.find("'layer4.0.bn1'") != std::string::npos);
  CHECK(std::count(outcome.output.begin(), outcome.output.end(), '\n') == 1);
}

}  // namespace
}  // namespace pando
