#include "models/graph.h"

#include <cmath>

#include "proto/message_limits.h"
#include "tests/models/support.h"

namespace pando {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("the zoo's models have the parameters that the literature says") {
  CHECK(MakeModel("mnist-cnn").layout().parameter_count() == 21'840);
  CHECK(MakeModel("lenet5").layout().parameter_count() == 61'706);
  CHECK(MakeModel("mlp").layout().parameter_count() == 784 * 128 + 128 + 128 * 10 + 10);
  CHECK(MakeModel("mlp", {1, 1, 17}, 3, {}).layout().parameter_count() == 17 * 3 + 3);
}

TEST_CASE("tensors have PyTorch's names, shapes and initial bounds, and end with the metrics") {
  const Model model = MakeModel("mnist-cnn");
  const std::vector<TensorSpec>& specs = model.layout().specs();
  REQUIRE(specs.size() == 9);
  const char* const names[] = {"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias",
                               "fc1.weight",   "fc1.bias",   "fc2.weight",   "fc2.bias"};
  for (size_t i = 0; i < 8; ++i) CHECK(specs[i].name == names[i]);
  CHECK(specs[2].shape == std::vector<uint64_t>{20, 10, 5, 5});
  CHECK(specs[4].shape == std::vector<uint64_t>{50, 320});
  CHECK(specs[0].init == InitKind::kUniform);
  CHECK(specs[0].init_bound == doctest::Approx(0.2));  // 1 / sqrt(1 · 5 · 5)
  CHECK(specs[3].init_bound == doctest::Approx(1 / std::sqrt(250.0)));
  CHECK(specs[8].kind == TensorKind::kMetric);
  CHECK(specs[8].name == kMetricTensorName);
}

TEST_CASE("an unknown model is refused with the nearest name") {
  Job job;
  job.model = "mnistcnn";
  const Status status = Model::Create(job, {28, 28, 1}, 10).status();
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(Contains(status.message(), "did you mean 'mnist-cnn'"));
}

TEST_CASE("samples that a model cannot take are refused with the layer and both shapes") {
  Job job;
  job.model = "mnist-cnn";
  const Status table = Model::Create(job, {1, 1, 17}, 3).status();
  CHECK(table.code() == StatusCode::kInvalidArgument);
  CHECK(Contains(table.message(), "'conv1'"));
  CHECK(Contains(table.message(), "1 x 1 x 17"));
  CHECK(Contains(table.message(), "at least 5 x 5"));
  CHECK_FALSE(Model::Create(job, {0, 28, 1}, 10).ok());
  CHECK_FALSE(Model::Create(job, {28, 28, 1}, 0).ok());
}

TEST_CASE(
    "a model beyond the limit is refused with its size, and the limit's shards can be named") {
  Job job;
  job.model = "mlp";
  job.mlp_hidden = {1 << 20, 1 << 20};
  const Status status = Model::Create(job, {28, 28, 1}, 10).status();
  CHECK(status.code() == StatusCode::kInvalidArgument);
  // 784 to 2^20 to 2^20 to 10, weights and biases
  const uint64_t m = 1 << 20;
  const uint64_t count = 784 * m + m + m * m + m + 10 * m + 10;
  CHECK(Contains(status.message(), std::to_string(count) + " parameters"));
  CHECK(Contains(status.message(), std::to_string(Model::kBytesMax) + " at most"));
  const TensorLayout largest({{.name = "w", .shape = {Model::kBytesMax / sizeof(float)}}});
  CHECK(ShardPlan(largest).shard_count() <= kShardsMax);
}

TEST_CASE("a hidden layer without width is refused by its key") {
  Job job;
  job.model = "mlp";
  job.mlp_hidden = {10, 0};
  CHECK(Contains(Model::Create(job, {28, 28, 1}, 10).status().message(), "model.hidden[1] is 0"));
}

TEST_CASE("a linear layer over pixels is refused: flatten first") {
  const LayerSpec linear{.kind = LayerKind::kLinear, .name = "fc", .out_units = 10};
  const Status status = Graph::Build("mine", {linear}, {4, 4, 1}, 10).status();
  CHECK(Contains(status.message(), "'fc'"));
  CHECK(Contains(status.message(), "4 x 4 x 1"));
}

TEST_CASE("a model that does not end in the classes is refused") {
  const LayerSpec linear{.kind = LayerKind::kLinear, .name = "fc", .out_units = 9};
  CHECK_FALSE(Graph::Build("mine", {linear}, {1, 1, 5}, 10).ok());
}

}  // namespace
}  // namespace pando
