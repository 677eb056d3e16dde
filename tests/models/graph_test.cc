#include "models/graph.h"

#include <cmath>
#include <limits>

#include "proto/message_limits.h"
#include "tests/contains.h"
#include "tests/models/support.h"

namespace pando {
namespace {

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
  CHECK(Contains(status.message(), "layer 'fc2' has weights of 1048576 x 1048576"));
  CHECK(Contains(status.message(), "larger than " + std::to_string(Model::kBytesMax) + " bytes"));
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
  const Status status = Graph::Build("mine", {linear}, {1, 1, 5}, 10).status();
  CHECK(Contains(status.message(),
                 "layer 'fc' makes 1 x 1 x 9 (height x width x channels), but "
                 "the last layer must make 1 x 1 x 10, a score for each class"));
}

TEST_CASE("samples of more values than one may have are refused, those whose count wraps too") {
  const LayerSpec flatten{.kind = LayerKind::kFlatten, .name = "flat"};
  const uint32_t most = 1u << 31;
  for (SampleShape shape : {SampleShape{65536, 65536, 1}, SampleShape{most, most, 4},
                            SampleShape{1, 1, most}, SampleShape{32768, 32768, 2}}) {
    const Status status = Graph::Build("mine", {flatten}, shape, 10).status();
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK(Contains(status.message(), "has samples of " + ShapeText(shape)));
    CHECK(Contains(status.message(), "1073741824 values is the most a sample may have"));
  }
}

TEST_CASE("weights whose count wraps are refused like any that are too large") {
  const uint32_t units = 1 << 20, window = 1 << 12;  // 2^20 · 2^20 · 2^12 · 2^12 is 2^64
  const LayerSpec wide{.kind = LayerKind::kConv2d, .name = "wide", .out_units = units};
  const LayerSpec conv{.kind = LayerKind::kConv2d,
                       .name = "conv",
                       .out_units = units,
                       .window = window,
                       .stride = window,
                       .padding = window};
  const Status status = Graph::Build("mine", {wide, conv}, {1, 1, 1}, 10).status();
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(Contains(status.message(), "layer 'conv' has weights of 1048576 x 1048576 x 4096 x 4096"));
}

TEST_CASE("layers that are too large together are refused at the one that passes the limit") {
  std::vector<LayerSpec> specs;
  for (const char* name : {"a", "b", "c", "d", "e"}) {  // 4 GiB each
    specs.push_back(
        {.kind = LayerKind::kLinear, .name = name, .out_units = 1 << 15, .bias = false});
  }
  const Status status = Graph::Build("mine", specs, {1, 1, 1 << 15}, 10).status();
  CHECK(Contains(status.message(), "layer 'd' has weights of 32768 x 32768"));  // with the metrics
}

// ------------------------------------------------------------------------ graphs with many ways

LayerSpec Of(LayerKind kind, std::string name, std::vector<std::string> inputs = {}) {
  return {.kind = kind, .name = std::move(name), .inputs = std::move(inputs)};
}

LayerSpec Conv3x3(std::string name, uint32_t out, std::vector<std::string> inputs = {}) {
  LayerSpec spec = Of(LayerKind::kConv2d, std::move(name), std::move(inputs));
  spec.out_units = out;
  spec.window = 3;
  spec.padding = 1;
  spec.bias = false;
  spec.init = WeightInit::kKaimingNormalFanOut;
  return spec;
}

LayerSpec Scores(uint32_t class_count) {
  LayerSpec spec = Of(LayerKind::kLinear, "fc");
  spec.out_units = class_count;
  return spec;
}

// A stem, one residual block with batch norm, and the scores.
std::vector<LayerSpec> ResidualSpecs() {
  return {Conv3x3("stem", 8),
          Conv3x3("conv", 8),
          Of(LayerKind::kBatchNorm, "bn"),
          Of(LayerKind::kAdd, "add", {"bn", "stem"}),
          Of(LayerKind::kRelu, "relu"),
          Of(LayerKind::kGlobalAveragePool, "pool"),
          Scores(10)};
}

std::string BuildError(const std::vector<LayerSpec>& specs) {
  const Result<Graph> graph = Graph::Build("mine", specs, {8, 8, 3}, 10);
  REQUIRE_FALSE(graph.ok());
  CHECK(graph.status().code() == StatusCode::kInvalidArgument);
  return graph.status().message();
}

TEST_CASE("layers know the layers that they read, and their shapes") {
  const Result<Graph> graph = Graph::Build("mine", ResidualSpecs(), {8, 8, 3}, 10);
  REQUIRE(graph.ok());
  const std::vector<Layer>& layers = graph->layers();
  CHECK(layers[0].inputs == std::vector<int>{kGraphInput});
  CHECK(layers[1].inputs == std::vector<int>{0});
  CHECK(layers[3].inputs == std::vector<int>{2, 0});
  CHECK(layers[3].out == SampleShape{8, 8, 8});
  CHECK(layers[5].out == SampleShape{1, 1, 8});
  CHECK(graph->FindShape(kGraphInput) == SampleShape{8, 8, 3});
}

TEST_CASE("batch norm has two parameters and two statistics, as PyTorch names and fills them") {
  std::vector<LayerSpec> specs = ResidualSpecs();
  specs[2].momentum = 0.25f;
  const Result<Graph> graph = Graph::Build("mine", specs, {8, 8, 3}, 10);
  REQUIRE(graph.ok());
  const Layer& bn = graph->layers()[2];
  REQUIRE(bn.last_tensor - bn.first_tensor == 4);
  const TensorSpec* tensors = &graph->layout().specs()[bn.first_tensor];
  const char* const names[] = {"bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"};
  const InitKind inits[] = {InitKind::kOne, InitKind::kZero, InitKind::kZero, InitKind::kOne};
  for (size_t t = 0; t < 4; ++t) {
    CHECK(tensors[t].name == names[t]);
    CHECK(tensors[t].shape == std::vector<uint64_t>{8});
    CHECK(tensors[t].init == inits[t]);
    CHECK(tensors[t].kind == (t < 2 ? TensorKind::kParameter : TensorKind::kStatistic));
  }
  CHECK(tensors[2].momentum == 0.25f);
}

TEST_CASE("a layer without bias has a weight alone; groups divide its inputs") {
  std::vector<LayerSpec> specs = ResidualSpecs();
  specs[1].groups = 8;
  const Result<Graph> graph = Graph::Build("mine", specs, {8, 8, 3}, 10);
  REQUIRE(graph.ok());
  const Layer& conv = graph->layers()[1];
  REQUIRE(conv.last_tensor - conv.first_tensor == 1);
  const TensorSpec& weight = graph->layout().specs()[conv.first_tensor];
  CHECK(weight.shape == std::vector<uint64_t>{8, 1, 3, 3});
  CHECK(weight.init == InitKind::kNormal);
  CHECK(weight.init_stddev == doctest::Approx(std::sqrt(2.0 / (8 * 9))));  // fan-out by outputs
}

TEST_CASE("an add of two shapes is refused with the layer and both shapes") {
  std::vector<LayerSpec> specs = ResidualSpecs();
  specs[0].out_units = 4;
  const std::string message = BuildError(specs);
  CHECK(Contains(message, "'add'"));
  CHECK(Contains(message, "8 x 8 x 8"));
  CHECK(Contains(message, "8 x 8 x 4"));
}

TEST_CASE("groups that do not divide the channels are refused with the layer and its shape") {
  std::vector<LayerSpec> specs = ResidualSpecs();
  specs[1].groups = 3;
  const std::string message = BuildError(specs);
  CHECK(Contains(message, "'conv'"));
  CHECK(Contains(message, "8 x 8 x 8"));
  CHECK(Contains(message, "3 groups"));
}

TEST_CASE("group norm has two parameters, and its groups divide the channels") {
  std::vector<LayerSpec> specs = ResidualSpecs();
  specs[2] = Of(LayerKind::kGroupNorm, "bn");
  specs[2].groups = 4;
  const Result<Graph> graph = Graph::Build("mine", specs, {8, 8, 3}, 10);
  REQUIRE(graph.ok());
  const Layer& norm = graph->layers()[2];
  REQUIRE(norm.last_tensor - norm.first_tensor == 2);
  const TensorSpec* tensors = &graph->layout().specs()[norm.first_tensor];
  CHECK(tensors[0].name == "bn.weight");
  CHECK(tensors[0].init == InitKind::kOne);
  CHECK(tensors[1].name == "bn.bias");
  CHECK(tensors[1].shape == std::vector<uint64_t>{8});
  specs[2].groups = 3;
  CHECK(Contains(BuildError(specs), "layer 'bn' gets 8 x 8 x 8"));
  CHECK(Contains(BuildError(specs), "channels that 3 groups divide"));
}

TEST_CASE("wiring that cannot be is refused by name") {
  std::vector<LayerSpec> specs = ResidualSpecs();
  specs[1].inputs = {"stm"};
  CHECK(
      Contains(BuildError(specs), "layer 'conv' reads 'stm', which is not a layer; did you mean"));

  specs[1].inputs = {"st\nem\x1b"};
  CHECK(Contains(BuildError(specs), "reads 'st\\nem\\x1b', which is not a layer"));

  specs = ResidualSpecs();
  specs[1].inputs = {"add"};
  const std::string cycle = BuildError(specs);
  CHECK(Contains(cycle, "layer 'conv' is part of a cycle: conv -> bn -> add -> conv"));

  specs = ResidualSpecs();
  specs[3].inputs = {"add", "stem"};
  CHECK(Contains(BuildError(specs), "cycle: add -> add"));

  specs = ResidualSpecs();
  specs[0].inputs = {kInputName};
  specs[1].inputs = {"late"};
  specs.push_back(Of(LayerKind::kRelu, "late", {"stem"}));
  CHECK(Contains(BuildError(specs), "layer 'conv' reads 'late', which comes after it; move it up"));

  specs = ResidualSpecs();
  specs[4].name = "conv";
  CHECK(Contains(BuildError(specs), "layer 'conv' exists twice"));

  specs = ResidualSpecs();
  specs[1].name = kInputName;
  CHECK(Contains(BuildError(specs), "the name of the network's input"));

  specs = ResidualSpecs();
  specs[3].inputs = {"bn"};
  CHECK(Contains(BuildError(specs), "layer 'add' (Add) has 1 inputs but needs 2"));

  specs = ResidualSpecs();
  specs[3].inputs = {"stem", "stem"};
  CHECK(Contains(BuildError(specs), "layer 'bn' has an output that no layer reads"));

  CHECK(Contains(BuildError({}), "has no layers"));
}

TEST_CASE("options that no layer can have are refused by name") {
  auto with = [](void (*change)(LayerSpec*)) {
    std::vector<LayerSpec> specs = ResidualSpecs();
    change(&specs[1]);
    return BuildError(specs);
  };
  CHECK(Contains(with([](LayerSpec* s) { s->out_units = 0; }), "output of size 0"));
  CHECK(Contains(with([](LayerSpec* s) { s->stride = 0; }), "stride 0"));
  CHECK(Contains(with([](LayerSpec* s) { s->kind = LayerKind::kMaxPool2d, s->padding = 2; }),
                 "padding 2, more than half its window of 3"));
  CHECK(Contains(with([](LayerSpec* s) { s->kind = LayerKind::kDropout, s->probability = 1; }),
                 "dropout probability 1"));
  CHECK(Contains(with([](LayerSpec* s) { s->kind = LayerKind::kBatchNorm, s->eps = 0; }), "eps 0"));
  CHECK(Contains(with([](LayerSpec* s) { s->window = 99; }), "at least 97 x 97 x 1"));
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  CHECK(Contains(with([](LayerSpec* s) { s->kind = LayerKind::kBatchNorm, s->eps = kInfinity; }),
                 "eps inf"));
  CHECK(Contains(with([](LayerSpec* s) { s->init_stddev = -1; }), "init_std -1"));
  CHECK(Contains(with([](LayerSpec* s) { s->init_stddev = kInfinity; }), "init_std inf"));
  CHECK(Contains(with([](LayerSpec* s) { s->init_stddev = std::nanf(""); }), "init_std nan"));
}

}  // namespace
}  // namespace pando
