// Networks with batch norm and several readers of one activation.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/models/support.h"

namespace pando {
namespace {

Model MakeNetwork(const std::string& text, SampleShape input, uint32_t class_count) {
  Job job;
  job.model = "test.toml";
  job.network = text;
  Result<Model> model = Model::Create(job, input, class_count);
  REQUIRE_MESSAGE(model.ok(), model.status().message());
  return *std::move(model);
}

// Batch norm of the input alone, then scores: what leaves it can be said in a formula.
Model NormModel() {
  return MakeNetwork(R"(
[[layer]]
name = "bn"
type = "BatchNorm2d"
[[layer]]
name = "flat"
type = "Flatten"
[[layer]]
name = "fc"
type = "Linear"
out_features = "classes"
)",
                     {28, 28, 1}, 10);
}

struct Moments {
  double mean = 0;
  double unbiased = 0;
  double biased = 0;
};

Moments ComputeMoments(const Batch& batch) {
  const double mean = batch.normalisation->mean[0], deviation = batch.normalisation->stddev[0];
  const auto count = static_cast<double>(batch.bytes.size());
  Moments moments;
  for (uint8_t byte : batch.bytes) moments.mean += (byte / 255.0 - mean) / deviation / count;
  double squares = 0;
  for (uint8_t byte : batch.bytes) {
    squares += std::pow((byte / 255.0 - mean) / deviation - moments.mean, 2);
  }
  moments.biased = squares / count;
  moments.unbiased = squares / (count - 1);
  return moments;
}

TEST_CASE("a running statistic's gradient is the batch's statistic times its samples") {
  constexpr double kTol = 1e-5;  // of fp32 pixels
  const Model model = NormModel();
  const TensorLayout& layout = model.layout();
  const Batch batch = NoiseBatch(6);
  const FloatBuffer parameters = InitialParameters(model);
  FloatBuffer gradients(layout.float_count());
  Network network(model, 6);
  network.SetBatch(batch, {}, Mode::kTrain);
  ForwardAll(network, parameters.data());
  BackwardAll(network, parameters.data(), gradients.data());
  const Moments moments = ComputeMoments(batch);
  CHECK(gradients.data()[layout.offset(layout.Find("bn.running_mean"))] ==
        doctest::Approx(6 * moments.mean).epsilon(kTol));
  CHECK(gradients.data()[layout.offset(layout.Find("bn.running_var"))] ==
        doctest::Approx(6 * moments.unbiased).epsilon(kTol));
}

TEST_CASE("evaluation with the batch's statistics as the running ones scores as training does") {
  constexpr double kTol = 1e-5;
  const Model model = NormModel();
  const TensorLayout& layout = model.layout();
  const Batch batch = NoiseBatch(6);
  FloatBuffer parameters = InitialParameters(model);
  Network network(model, 6);
  network.SetBatch(batch, {}, Mode::kTrain);
  const double trained = ForwardAll(network, parameters.data()).loss_sum;
  network.SetBatch(batch, {}, Mode::kEvaluate);
  const double fresh = ForwardAll(network, parameters.data()).loss_sum;
  CHECK(fresh != doctest::Approx(trained).epsilon(kTol));
  const Moments moments = ComputeMoments(batch);
  parameters.data()[layout.offset(layout.Find("bn.running_mean"))] =
      static_cast<float>(moments.mean);
  parameters.data()[layout.offset(layout.Find("bn.running_var"))] =
      static_cast<float>(moments.biased);
  network.SetBatch(batch, {}, Mode::kEvaluate);
  const double evaluated = ForwardAll(network, parameters.data()).loss_sum;
  CHECK(evaluated == doctest::Approx(trained).epsilon(kTol));
}

TEST_CASE("training reads no running statistic, and the trainer need not wait for one") {
  const Model model = MakeGoldenNetwork("residual.toml");
  const TensorLayout& layout = model.layout();
  FloatBuffer parameters = InitialParameters(model);
  FloatBuffer expected(layout.float_count()), gradients(layout.float_count());
  Network network(model, 5);
  auto compute = [&](FloatBuffer& out) {
    network.SetBatch(NoiseBatch(5), {}, Mode::kTrain);
    ForwardAll(network, parameters.data());
    BackwardAll(network, parameters.data(), out.data());
  };
  compute(expected);
  for (size_t t = 0; t < layout.tensor_count(); ++t) {
    if (layout.specs()[t].kind != TensorKind::kStatistic) continue;
    std::fill_n(parameters.data() + layout.offset(t), layout.specs()[t].size(), kPoison);
  }
  compute(gradients);
  CHECK(std::memcmp(gradients.data(), expected.data(), gradients.size() * sizeof(float)) == 0);
  size_t statistic_count = 0;
  for (uint32_t layer = 0; layer < network.layer_count(); ++layer) {
    const TensorRun all = network.LayerTensors(layer);
    const TensorRun read = network.TrainingTensors(layer);
    CHECK(read.first == all.first);
    for (size_t t = all.first; t < all.last; ++t) {
      CHECK((layout.specs()[t].kind == TensorKind::kStatistic) == (t >= read.last));
    }
    statistic_count += all.last - read.last;
  }
  CHECK(statistic_count == 2 * 8);
}

TEST_CASE("one activation read twice by one layer gets both gradients") {
  const auto text = [](bool is_twice) {
    const std::string layers =
        "[[layer]]\nname = \"flat\"\ntype = \"Flatten\"\n"
        "[[layer]]\nname = \"a\"\ntype = \"Linear\"\nout_features = 7\n";
    const std::string twice =
        "[[layer]]\nname = \"twice\"\ntype = \"Add\"\ninputs = [\"a\", \"a\"]\n";
    return layers + (is_twice ? twice : "") +
           "[[layer]]\nname = \"b\"\ntype = \"Linear\"\nout_features = \"classes\"\n";
  };
  const Model twice = MakeNetwork(text(true), {28, 28, 1}, 10);
  const Model once = MakeNetwork(text(false), {28, 28, 1}, 10);
  const TensorLayout& layout = twice.layout();
  FloatBuffer parameters = InitialParameters(twice);
  FloatBuffer twice_gradients(layout.float_count()), once_gradients(layout.float_count());
  Network network(twice, 4);
  network.SetBatch(NoiseBatch(4), {}, Mode::kTrain);
  const double loss = ForwardAll(network, parameters.data()).loss_sum;
  BackwardAll(network, parameters.data(), twice_gradients.data());
  // Twice what enters b is what twice its weights make of it: exact, as factors of 2 are.
  const size_t b = layout.offset(layout.Find("b.weight"));
  for (size_t i = 0; i < 70; ++i) parameters.data()[b + i] *= 2;
  Network other(once, 4);
  other.SetBatch(NoiseBatch(4), {}, Mode::kTrain);
  CHECK(ForwardAll(other, parameters.data()).loss_sum == loss);
  BackwardAll(other, parameters.data(), once_gradients.data());
  const size_t a = layout.offset(layout.Find("a.weight"));
  CHECK(std::memcmp(twice_gradients.data() + a, once_gradients.data() + a,
                    7 * 784 * sizeof(float)) == 0);
}

// On few samples, so that a machine without time to spare runs it too; goldens check the values.
TEST_CASE("the zoo's residual networks compute: a finite loss, and gradients for every tensor") {
  for (const char* name : {"resnet18-cifar", "mobilenet-v2-small", "vgg16-bn-cifar", "resnet50"}) {
    CAPTURE(name);
    Job job;
    job.model = name;
    const Model model = *Model::Create(job, {32, 32, 1}, 10);
    const TensorLayout& layout = model.layout();
    Batch batch = NoiseBatch(4);  // 28 x 28: the first bytes of as many of 32 x 32
    batch.shape = {32, 32, 1};
    while (batch.bytes.size() < 4 * 32 * 32) batch.bytes.push_back(uint8_t{7});
    const FloatBuffer parameters = InitialParameters(model);
    FloatBuffer gradients(layout.float_count());
    std::fill_n(gradients.data(), gradients.size(), kPoison);
    Network network(model, 4);
    network.SetBatch(batch, {}, Mode::kTrain);
    CHECK(std::isfinite(ForwardAll(network, parameters.data()).loss_sum));
    BackwardAll(network, parameters.data(), gradients.data());
    size_t bad_count = 0;
    for (size_t t = 0; t + 1 < layout.tensor_count(); ++t) {
      for (size_t i = 0; i < layout.specs()[t].size(); ++i) {
        bad_count += !std::isfinite(gradients.data()[layout.offset(t) + i]);
      }
    }
    CHECK(bad_count == 0);
    network.SetBatch(batch, {}, Mode::kEvaluate);
    CHECK(std::isfinite(ForwardAll(network, parameters.data()).loss_sum));
  }
}

}  // namespace
}  // namespace pando
