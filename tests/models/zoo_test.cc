#include "models/zoo.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/models/support.h"

namespace pando {
namespace {

Graph MakeGraph(const std::string& name, SampleShape data, uint32_t class_count) {
  Job job;
  job.model = name;
  Result<Graph> graph = BuildModelGraph(job, data, class_count);
  REQUIRE_MESSAGE(graph.ok(), graph.status().message());
  return *std::move(graph);
}

uint64_t ParameterCount(const std::string& name) {
  const ZooModel& model = *FindZooModel(name);
  return MakeGraph(name, model.input, model.class_count).layout().parameter_count();
}

TEST_CASE("the zoo's models have the parameters that the literature says") {
  const std::map<std::string, uint64_t> counts{
      {"mnist-cnn", 21'840},          {"lenet5", 61'706},
      {"cifar-cnn", 62'006},          {"mlp", 784 * 128 + 128 + 128 * 10 + 10},
      {"vgg16", 138'357'544},         {"vgg16-bn", 138'365'992},
      {"vgg16-cifar", 15'245'130},    {"vgg16-bn-cifar", 15'253'578},
      {"resnet18", 11'689'512},       {"resnet34", 21'797'672},
      {"resnet50", 25'557'032},       {"resnet101", 44'549'160},
      {"resnet18-cifar", 11'173'962}, {"resnet34-cifar", 21'282'122},
      {"resnet50-cifar", 23'520'842}, {"resnet101-cifar", 42'512'970},
      {"mobilenet-v2", 3'504'872},    {"mobilenet-v2-small", 2'236'682},
  };
  CHECK(counts.size() == ZooModels().size());
  for (const auto& [name, count] : counts) {
    CAPTURE(name);
    CHECK(ParameterCount(name) == count);
  }
  CHECK(MakeModel("mlp", {1, 1, 17}, 3, {}).layout().parameter_count() == 17 * 3 + 3);
}

// -------------------------------------------------------------------- beside torchvision's models

struct GoldenTensor {  // of torchvision.txt
  std::string name;
  std::vector<uint64_t> shape;
  double mean = 0;
  double deviation = 0;
  double largest = 0;
};
struct GoldenModel {
  std::string name;
  uint32_t class_count = 0;
  uint64_t parameter_count = 0;
  std::vector<GoldenTensor> tensors;
};
constexpr size_t kStatisticsMax = 65536;  // as make_torchvision.py's

std::vector<uint64_t> ParseShape(std::string text) {
  std::replace(text.begin(), text.end(), 'x', ' ');
  std::istringstream in(text);
  std::vector<uint64_t> shape;
  for (uint64_t size = 0; in >> size;) shape.push_back(size);
  return shape;
}

std::vector<GoldenModel> ReadTorchvision() {
  std::ifstream file(GoldenPath("torchvision.txt"));
  REQUIRE(file.good());
  std::vector<GoldenModel> models;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string first, shape;
    in >> first;
    if (first == "model") {
      GoldenModel& model = models.emplace_back();
      in >> model.name >> model.class_count >> model.parameter_count;
    } else {
      GoldenTensor& tensor = models.back().tensors.emplace_back();
      tensor.name = first;
      in >> shape >> tensor.mean >> tensor.deviation >> tensor.largest;
      tensor.shape = ParseShape(shape);
    }
    REQUIRE(!in.fail());
  }
  return models;
}

// Measures the tensor's first floats in version 0.
GoldenTensor Measure(const TensorLayout& layout, size_t index) {
  const TensorSpec& spec = layout.specs()[index];
  GoldenTensor measured{.name = spec.name, .shape = spec.shape};
  std::vector<float> x(std::min<size_t>(spec.size(), kStatisticsMax));
  const size_t first = layout.offset(index);
  InitRange(layout, 1, {first, first + x.size()}, x);
  const auto count = static_cast<double>(x.size());
  for (float value : x) {
    measured.mean += static_cast<double>(value);
    measured.largest = std::max(measured.largest, std::abs(static_cast<double>(value)));
  }
  measured.mean /= count;
  double square_sum = 0;
  for (float value : x) square_sum += std::pow(static_cast<double>(value) - measured.mean, 2);
  measured.deviation = std::sqrt(square_sum / count);
  return measured;
}

// Both were drawn, so both estimates are off by chance: five deviations of their difference. The
// file has four digits.
void CheckSameDistribution(const GoldenTensor& ours, const GoldenTensor& theirs, size_t count) {
  constexpr double kDeviations = 5, kFileTol = 1e-3;
  const double chance =
      kDeviations * theirs.deviation * std::sqrt(2.0 / static_cast<double>(count));
  CHECK(std::abs(ours.mean - theirs.mean) <= chance + kFileTol * std::abs(theirs.mean));
  CHECK(std::abs(ours.deviation - theirs.deviation) <= chance + kFileTol * theirs.deviation);
  // The largest of a thousand tells a uniform distribution (1.73 deviations) from a normal one.
  if (count < 1000 || theirs.deviation == 0) return;
  CHECK((ours.largest > 2.2 * ours.deviation) == (theirs.largest > 2.2 * theirs.deviation));
}

TEST_CASE("names, shapes, counts and initial values of tensors are torchvision's") {
  const std::vector<GoldenModel> goldens = ReadTorchvision();
  CHECK(goldens.size() == 7);
  for (const GoldenModel& golden : goldens) {
    CAPTURE(golden.name);
    const Graph graph = MakeGraph(golden.name, {224, 224, 3}, golden.class_count);
    const TensorLayout& layout = graph.layout();
    CHECK(layout.parameter_count() == golden.parameter_count);
    REQUIRE(layout.tensor_count() == golden.tensors.size() + 1);
    for (size_t t = 0; t < golden.tensors.size(); ++t) {
      const GoldenTensor& theirs = golden.tensors[t];
      CAPTURE(theirs.name);
      REQUIRE(layout.specs()[t].name == theirs.name);
      REQUIRE(layout.specs()[t].shape == theirs.shape);
      CheckSameDistribution(Measure(layout, t), theirs,
                            std::min<size_t>(layout.specs()[t].size(), kStatisticsMax));
    }
  }
}

// ------------------------------------------------------------------------------ shapes on the way

SampleShape OutShape(const Graph& graph, const std::string& layer) {
  for (const Layer& l : graph.layers()) {
    if (l.spec.name == layer) return l.out;
  }
  FAIL("no layer " << layer);
  return {};
}

TEST_CASE("strides are those of the papers") {
  const Graph resnet = MakeGraph("resnet50", {224, 224, 3}, 1000);
  CHECK(OutShape(resnet, "conv1") == SampleShape{112, 112, 64});
  CHECK(OutShape(resnet, "maxpool") == SampleShape{56, 56, 64});
  CHECK(OutShape(resnet, "layer1.2.relu") == SampleShape{56, 56, 256});
  CHECK(OutShape(resnet, "layer4.0.conv1") == SampleShape{14, 14, 512});
  CHECK(OutShape(resnet, "layer4.2.relu") == SampleShape{7, 7, 2048});
  const Graph small_resnet = MakeGraph("resnet18-cifar", {32, 32, 3}, 10);
  CHECK(OutShape(small_resnet, "relu") == SampleShape{32, 32, 64});
  CHECK(OutShape(small_resnet, "layer4.1.relu") == SampleShape{4, 4, 512});
  const Graph vgg = MakeGraph("vgg16", {224, 224, 3}, 1000);
  CHECK(OutShape(vgg, "features.30") == SampleShape{7, 7, 512});
  const Graph mobile = MakeGraph("mobilenet-v2", {224, 224, 3}, 1000);
  CHECK(OutShape(mobile, "features.0.2") == SampleShape{112, 112, 32});
  CHECK(OutShape(mobile, "features.18.2") == SampleShape{7, 7, 1280});
  const Graph small_mobile = MakeGraph("mobilenet-v2-small", {32, 32, 3}, 10);
  CHECK(OutShape(small_mobile, "features.3.add") == SampleShape{32, 32, 24});
  CHECK(OutShape(small_mobile, "features.18.2") == SampleShape{4, 4, 1280});
}

TEST_CASE("pictures of one channel enter a model of three; other counts are refused by name") {
  CHECK(MakeGraph("resnet18-cifar", {32, 32, 1}, 10).input() == SampleShape{32, 32, 3});
  CHECK(MakeGraph("lenet5", {28, 28, 1}, 10).input() == SampleShape{28, 28, 1});
  Job job;
  job.model = "cifar-cnn";
  const Status status = BuildModelGraph(job, {32, 32, 4}, 10).status();
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(status.message().find("model cifar-cnn: takes pictures of 3 channels") == 0);
  CHECK(status.message().find("32 x 32 x 4") != std::string::npos);
}

TEST_CASE("a model of three channels computes on repeated pictures as on coloured gray ones") {
  Job job;
  job.model = "cifar-cnn";
  const Model gray = *Model::Create(job, {32, 32, 1}, 10);
  const Model coloured = *Model::Create(job, {32, 32, 3}, 10);
  REQUIRE(gray.layout().float_count() == coloured.layout().float_count());
  const Normalisation one{{0.25f}, {0.5f}};
  const Normalisation three{{0.25f, 0.25f, 0.25f}, {0.5f, 0.5f, 0.5f}};
  Batch a{.shape = {32, 32, 1}, .normalisation = &one, .labels = {3, 5}};
  Batch b{.shape = {32, 32, 3}, .normalisation = &three, .labels = {3, 5}};
  for (uint32_t i = 0; i < 2 * 32 * 32; ++i) {
    a.bytes.push_back(static_cast<uint8_t>(Noise(i, 5)));
    b.bytes.insert(b.bytes.end(), 3, a.bytes.back());
  }
  const FloatBuffer parameters = InitialParameters(gray);
  Network on_gray(gray, 2), on_coloured(coloured, 2);
  on_gray.SetBatch(a, {}, Mode::kTrain);
  on_coloured.SetBatch(b, {}, Mode::kTrain);
  CHECK(ForwardAll(on_gray, parameters.data()).loss_sum ==
        ForwardAll(on_coloured, parameters.data()).loss_sum);
}

}  // namespace
}  // namespace pando
