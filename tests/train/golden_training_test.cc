// Three steps of SGD beside PyTorch's (tests/golden/make_network_goldens.py), each on all samples
// in one micro-batch: batch norm's statistics are then PyTorch's, and the order of samples
// changes the result by roundings only.
#include <memory>

#include "run/serial_trainer.h"
#include "tests/golden/network_goldens.h"
#include "tests/train/plain_training.h"

namespace pando {
namespace {

constexpr double kLossTol = 3e-6;  // fp32 against double, relative
// A share of the norm of a tensor's move. A batch norm's weights near 1 move by 3e-4 of themselves,
// and are floats: each step rounds them by up to 1e-4 of that. Measured 6.4e-4.
constexpr double kMoveTol = 3e-3;
// Serial training takes given parameters for those of a later version: all begins with step 1.
constexpr Step kFirstStep(1);

class GoldenSet : public DataSet {
 public:
  explicit GoldenSet(const NetworkGolden& golden) : golden_(golden) {}
  SampleShape shape() const override { return golden_.shape; }
  uint32_t class_count() const override { return 10; }
  uint64_t sample_count(Split) const override { return golden_.sample_count; }
  uint64_t fingerprint() const override { return 1; }
  Status Fill(const Samples& part, size_t place, Batch* batch) const override {
    PANDO_CHECK(place == 0);  // one thread reads whole batches
    *batch = GoldenBatch(golden_, part.indices);
    return {};
  }

 private:
  const NetworkGolden& golden_;
};

// The training, and its start.
struct Training {
  explicit Training(const nlohmann::json& j) : golden(ReadNetworkGolden(j)) {
    for (const nlohmann::json& loss : j.at("losses")) losses.push_back(loss);
    job.model = golden.model;
    job.label_smoothing = golden.label_smoothing;
    job.global_batch = golden.sample_count;
    job.micro_batches = 1;
    job.steps = kFirstStep.value() + losses.size();
    job.optimizer.lr = j.at("lr");
    job.optimizer.momentum = j.at("momentum");
    job.optimizer.weight_decay = j.at("weight_decay");
    model = std::make_unique<Model>(*Model::Create(job, golden.shape, 10));
    first = GoldenParameters(golden, model->layout());
  }
  NetworkGolden golden;
  std::vector<double> losses;
  Job job;
  GoldenSet data{golden};
  std::unique_ptr<Model> model;
  FloatBuffer first;
};

void CheckMoves(const Training& training, std::span<const float> parameters) {
  const TensorLayout& layout = training.model->layout();
  const std::vector<GoldenDigest>& tensors = training.golden.tensors;
  REQUIRE(tensors.size() + 1 == layout.tensor_count());
  double largest = 0;
  for (size_t t = 0; t < tensors.size(); ++t) {
    CAPTURE(tensors[t].tensor);
    REQUIRE(tensors[t].tensor == layout.specs()[t].name);
    REQUIRE(tensors[t].size == layout.specs()[t].size());
    const size_t at = layout.offset(t);
    const Digest digest = DigestFor(tensors[t].size, [&](size_t i) {
      return static_cast<double>(parameters[at + i]) -
             static_cast<double>(training.first.data()[at + i]);
    });
    const double error = DigestError(digest, tensors[t], tensors[t].digest.norm);
    CHECK(error < kMoveTol);
    largest = std::max(largest, error);
  }
  MESSAGE(training.golden.model << ": moves off by at most " << largest);
  const float loss = parameters[layout.offset(tensors.size()) + kMetricLoss];
  CHECK(loss == doctest::Approx(training.losses.back()).epsilon(kLossTol));
}

TEST_CASE("three steps of ResNet-18 end with PyTorch's parameters and running statistics") {
  const Training training(ReadNetworkGoldens("training_goldens.json").at(0));
  REQUIRE(training.job.model == "resnet18-cifar");
  const ShardPlan shards(training.model->layout());
  std::vector<SharedBuffer> states;  // momentum alone: as many floats as parameters
  for (const ShardRange& range : shards.ranges()) {
    states.push_back(std::make_shared<FloatBuffer>(range.size()));
  }
  std::vector<float> losses;
  const Result<SerialResult> result = TrainSerially(
      training.job, training.data, *training.model,
      {.on_step = [&](const SerialStep& step) { losses.push_back(step.metrics.loss); }},
      {.first = VersionUpdatedBy(kFirstStep),
       .parameters = &training.first,
       .states = states,
       .is_evaluated = false});
  REQUIRE(result.ok());
  REQUIRE(losses.size() == training.losses.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    CHECK(losses[i] == doctest::Approx(training.losses[i]).epsilon(kLossTol));
  }
  CheckMoves(training, result->parameters->span());
}

// The serial trainer would drop out, so the plain loop, which makes its bits (serial_trainer_test).
TEST_CASE("three steps of MobileNetV2 end with PyTorch's parameters and running statistics") {
  const Training training(ReadNetworkGoldens("training_goldens.json").at(1));
  REQUIRE(training.job.model == "mobilenet-v2-small");
  const std::span<const float> first = training.first.span();
  CheckMoves(training,
             TrainPlainly(training.job, training.data, *training.model,
                          {first.begin(), first.end()}, kFirstStep, Mode::kTrainWithoutDropout));
}

}  // namespace
}  // namespace pando
