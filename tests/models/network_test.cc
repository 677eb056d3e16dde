#include "models/network.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "tests/models/support.h"

namespace pando {
namespace {

bool SameBits(const FloatBuffer& a, const FloatBuffer& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

MicroBatchName Name(uint64_t step, uint32_t micro_batch = 0) {
  return {.seed = 11, .step = Step(step), .micro_batch = MicroBatch(micro_batch)};
}

FloatBuffer Gradients(Network& network, const Model& model, const Batch& batch, MicroBatchName name,
                      Mode mode = Mode::kTrain) {
  const FloatBuffer parameters = InitialParameters(model);
  FloatBuffer gradients(model.layout().float_count());
  network.SetBatch(batch, name, mode);
  ForwardAll(network, parameters.data());
  BackwardAll(network, parameters.data(), gradients.data());
  return gradients;
}

std::vector<Model> Models() {
  std::vector<Model> models{MakeModel("mnist-cnn"), MakeModel("lenet5")};
  models.push_back(MakeModel("mlp", {28, 28, 1}, 10, {40, 30}));
  models.push_back(MakeModel("mlp", {28, 28, 1}, 10, {}));
  models.push_back(MakeGoldenNetwork("residual.toml"));
  return models;
}

TEST_CASE("layers cover all tensors but the metric tensor, in order, once") {
  for (const Model& model : Models()) {
    const Network network(model, 2);
    size_t next = 0;
    for (uint32_t layer = 0; layer < network.layer_count(); ++layer) {
      const TensorRun run = network.LayerTensors(layer);
      CHECK(run.first == next);
      CHECK(run.last >= run.first);
      next = run.last;
    }
    CHECK(next + 1 == model.layout().tensor_count());
  }
}

TEST_CASE("a layer's backward writes its own tensors, all of them, and nothing else") {
  for (const Model& model : Models()) {
    const TensorLayout& layout = model.layout();
    const FloatBuffer parameters = InitialParameters(model);
    Network network(model, 5);
    const FloatBuffer expected = Gradients(network, model, NoiseBatch(5), Name(1));
    FloatBuffer gradients(layout.float_count());
    std::fill_n(gradients.data(), gradients.size(), kPoison);
    network.SetBatch(NoiseBatch(5), Name(1), Mode::kTrain);
    ForwardAll(network, parameters.data());
    for (uint32_t layer = network.layer_count(); layer-- > 0;) {
      network.Backward(layer, parameters.data(), gradients.data());
      const TensorRun run = network.LayerTensors(layer);
      for (size_t t = 0; t < run.first; ++t) CHECK(std::isnan(gradients.data()[layout.offset(t)]));
      for (size_t t = run.first; t < layout.tensor_count() - 1; ++t) {
        CHECK(std::memcmp(gradients.data() + layout.offset(t), expected.data() + layout.offset(t),
                          layout.specs()[t].size() * sizeof(float)) == 0);
      }
    }
    CHECK(std::isnan(gradients.data()[layout.offset(layout.tensor_count() - 1)]));
  }
}

TEST_CASE("a layer reads its own parameters and no others") {
  const Model model = MakeModel("mnist-cnn");
  const TensorLayout& layout = model.layout();
  const FloatBuffer parameters = InitialParameters(model);
  FloatBuffer poisoned(layout.float_count()), gradients(layout.float_count());
  Network network(model, 3);
  const FloatBuffer expected = Gradients(network, model, NoiseBatch(3), Name(0));
  auto only = [&](uint32_t layer) {
    std::fill_n(poisoned.data(), poisoned.size(), kPoison);
    const TensorRun run = network.LayerTensors(layer);
    const size_t first = layout.offset(run.first), last = layout.offset(run.last);
    std::copy(parameters.data() + first, parameters.data() + last, poisoned.data() + first);
    return poisoned.data();
  };
  network.SetBatch(NoiseBatch(3), Name(0), Mode::kTrain);
  for (uint32_t l = 0; l < network.layer_count(); ++l) network.Forward(l, only(l));
  for (uint32_t l = network.layer_count(); l-- > 0;) network.Backward(l, only(l), gradients.data());
  CHECK(SameBits(gradients, expected));
}

TEST_CASE("a micro-batch's gradient is the same in a new network, a used one, and a larger one") {
  for (const Model& model : Models()) {
    for (uint32_t count : {1u, 15u, 16u, 17u}) {
      Network fresh(model, count);
      const FloatBuffer expected = Gradients(fresh, model, NoiseBatch(count), Name(3, 2));
      Network used(model, 33);
      Gradients(used, model, NoiseBatch(33, 99), Name(8));
      Gradients(used, model, NoiseBatch(4, 5), Name(9), Mode::kTrainWithoutDropout);
      used.SetBatch(NoiseBatch(33, 3), Name(9), Mode::kEvaluate);
      ForwardAll(used, InitialParameters(model).data());
      CHECK(SameBits(Gradients(used, model, NoiseBatch(count), Name(3, 2)), expected));
    }
  }
}

TEST_CASE("threads do not change a gradient") {
  const Model model = MakeModel("mnist-cnn");
  Network network(model, 16);
  const FloatBuffer expected = Gradients(network, model, NoiseBatch(16), Name(1));
  std::vector<FloatBuffer> results(3);
  std::vector<std::thread> threads;
  for (FloatBuffer& result : results) {
    threads.emplace_back([&] {
      Network own(model, 16);
      for (int i = 0; i < 3; ++i) result = Gradients(own, model, NoiseBatch(16), Name(1));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const FloatBuffer& result : results) CHECK(SameBits(result, expected));
}

TEST_CASE("dropout follows the micro-batch's name when training, and can be off") {
  const Model model = MakeModel("mnist-cnn");
  Network network(model, 4);
  const Batch batch = NoiseBatch(4);
  const FloatBuffer base = Gradients(network, model, batch, Name(1));
  CHECK(SameBits(base, Gradients(network, model, batch, Name(1))));
  CHECK_FALSE(SameBits(base, Gradients(network, model, batch, Name(2))));
  CHECK_FALSE(SameBits(base, Gradients(network, model, batch, Name(1, 1))));
  const FloatBuffer still = Gradients(network, model, batch, Name(1), Mode::kTrainWithoutDropout);
  CHECK(SameBits(still, Gradients(network, model, batch, Name(2), Mode::kTrainWithoutDropout)));
}

// The network computes in fp32: its loss of about 10 carries noise of 1e-6, so differences are
// taken over a wide step, and at the largest gradient of each tensor. Measured 0.02; a relu or pool
// whose winner changes within the step makes most of it.
TEST_CASE("gradients with dropout equal finite differences of the loss") {
  constexpr float kStep = 2e-3f;
  constexpr double kTol = 0.03;
  for (const Model& model : Models()) {
    FloatBuffer parameters = InitialParameters(model);
    Network network(model, 4);
    const FloatBuffer gradients = Gradients(network, model, NoiseBatch(4), Name(6));
    auto loss = [&] {
      network.SetBatch(NoiseBatch(4), Name(6), Mode::kTrain);
      return ForwardAll(network, parameters.data()).loss_sum;
    };
    for (size_t t = 0; t + 1 < model.layout().tensor_count(); ++t) {
      if (model.layout().specs()[t].kind == TensorKind::kStatistic) continue;
      CAPTURE(model.layout().specs()[t].name);
      const float* first = gradients.data() + model.layout().offset(t);
      const float* largest =
          std::max_element(first, first + model.layout().specs()[t].size(),
                           [](float a, float b) { return std::abs(a) < std::abs(b); });
      float& parameter = parameters.data()[largest - gradients.data()];
      const float center = parameter;
      parameter = center + kStep;
      const double above = loss();
      parameter = center - kStep;
      const double below = loss();
      parameter = center;
      CHECK((above - below) / (2 * kStep) == doctest::Approx(*largest).epsilon(kTol));
    }
  }
}

// With equal logits the loss is log 10 for any labels; the gradients show how they are spread.
TEST_CASE("label smoothing spreads a share of the labels in training, and none in evaluation") {
  constexpr double kTol = 1e-6;
  constexpr double kShare = 0.25;
  Job job;
  job.model = "mlp";
  job.mlp_hidden = {};
  job.label_smoothing = kShare;
  const Model model = *Model::Create(job, {28, 28, 1}, 10);
  const TensorLayout& layout = model.layout();
  const FloatBuffer zeros(layout.float_count());
  FloatBuffer gradients(layout.float_count());
  Batch batch = NoiseBatch(5);
  batch.labels.assign(5, 3);
  Network network(model, 5);
  network.SetBatch(batch, Name(0), Mode::kTrain);
  CHECK(ForwardAll(network, zeros.data()).loss_sum == doctest::Approx(5 * std::log(10)));
  BackwardAll(network, zeros.data(), gradients.data());
  const float* bias = gradients.data() + layout.offset(layout.Find("fc1.bias"));
  for (size_t c = 0; c < 10; ++c) {
    const double target = kShare / 10 + (c == 3 ? 1 - kShare : 0);
    CHECK(bias[c] == doctest::Approx(5 * (0.1 - target)).epsilon(kTol));
  }
  FloatBuffer parameters = InitialParameters(model);
  network.SetBatch(batch, Name(0), Mode::kTrain);
  const double smoothed = ForwardAll(network, parameters.data()).loss_sum;
  network.SetBatch(batch, Name(0), Mode::kEvaluate);
  const double plain = ForwardAll(network, parameters.data()).loss_sum;
  CHECK(smoothed != plain);
  job.label_smoothing = 0;
  Network other(*Model::Create(job, {28, 28, 1}, 10), 5);
  other.SetBatch(batch, Name(0), Mode::kTrain);
  CHECK(ForwardAll(other, parameters.data()).loss_sum == plain);
}

TEST_CASE("gradients are sums over samples: two halves add up to the whole") {
  constexpr double kTol = 1e-5;  // the same sums in another order
  const Model model = MakeModel("lenet5");
  Network network(model, 8);
  const Batch whole = NoiseBatch(8);
  Batch halves[2] = {whole, whole};
  for (size_t h = 0; h < 2; ++h) {
    halves[h].bytes.assign(whole.bytes.begin() + h * 4 * 784,
                           whole.bytes.begin() + (h + 1) * 4 * 784);
    halves[h].labels.assign(whole.labels.begin() + h * 4, whole.labels.begin() + (h + 1) * 4);
  }
  const FloatBuffer all = Gradients(network, model, whole, Name(0));
  const FloatBuffer a = Gradients(network, model, halves[0], Name(0));
  const FloatBuffer b = Gradients(network, model, halves[1], Name(0));
  double error = 0, largest = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    error = std::max<double>(error, std::abs(all.data()[i] - (a.data()[i] + b.data()[i])));
    largest = std::max<double>(largest, std::abs(all.data()[i]));
  }
  CHECK(error < kTol * largest);
}

TEST_CASE("steps of gradient descent learn what sets the classes apart") {
  Batch batch = NoiseBatch(20);  // class c has its rows 2c and 2c + 1 bright
  for (size_t i = 0; i < batch.bytes.size(); ++i) {
    const auto label = static_cast<size_t>(batch.labels[i / 784]);
    batch.bytes[i] =
        i % 784 / 56 == label ? uint8_t{255} : static_cast<uint8_t>(batch.bytes[i] / 8);
  }
  const Model model = MakeModel("mnist-cnn");
  FloatBuffer parameters = InitialParameters(model);
  FloatBuffer gradients(model.layout().float_count());
  Network network(model, 20);
  for (uint64_t step = 0; step < 150; ++step) {
    network.SetBatch(batch, Name(step), Mode::kTrainWithoutDropout);
    ForwardAll(network, parameters.data());
    BackwardAll(network, parameters.data(), gradients.data());
    for (size_t i = 0; i < parameters.size(); ++i)
      parameters.data()[i] -= 0.005f * gradients.data()[i];
  }
  CHECK(network.Score().correct_count == 20);
}

}  // namespace
}  // namespace pando
