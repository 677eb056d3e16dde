// Whole models beside PyTorch's, in training and in evaluation
// (tests/golden/make_network_goldens.py).
#include <numeric>

#include "kernels/opened_gpu.h"
#include "tests/golden/network_goldens.h"
#include "tests/models/support.h"

namespace pando {
namespace {

// fp32 against double, through up to 53 convolutions, relative.
constexpr double kNetworkLossTol = 5e-6;
// A share of a tensor's norm: sums over samples and pixels, of gradients that came through the
// layers above and were divided by deviations. Measured 3.6e-5 (ResNet-50), else at most 1.4e-5.
constexpr double kNetworkGradientTol = 2e-4;
// A bias before a batch norm, with no relu between, changes nothing: its gradient is 0 except for
// roundings, whose size is that of the weight's gradient, the tensor before.
constexpr double kZeroNorm = 1e-9;

Model MakeGoldenModel(const NetworkGolden& golden) {
  Job job;
  job.model = golden.model;
  job.label_smoothing = golden.label_smoothing;
  if (golden.model.ends_with(".toml")) job.network = ReadGoldenFile(golden.model);
  Result<Model> model = Model::Create(job, golden.shape, 10);
  REQUIRE_MESSAGE(model.ok(), model.status().message());
  return *std::move(model);
}

Batch MakeGoldenBatch(const NetworkGolden& golden) {
  std::vector<uint64_t> indices(golden.sample_count);
  std::iota(indices.begin(), indices.end(), 0);
  return GoldenBatch(golden, indices);
}

void CheckGradients(const NetworkGolden& golden, const TensorLayout& layout,
                    const FloatBuffer& gradients) {
  REQUIRE(golden.tensors.size() + 1 == layout.tensor_count());
  double largest = 0, norm_before = 0;
  for (size_t t = 0; t < golden.tensors.size(); ++t) {
    const GoldenDigest& tensor = golden.tensors[t];
    CAPTURE(tensor.tensor);
    REQUIRE(tensor.tensor == layout.specs()[t].name);
    REQUIRE(tensor.size == layout.specs()[t].size());
    const float* gradient = gradients.data() + layout.offset(t);
    const Digest digest =
        DigestFor(tensor.size, [&](size_t i) { return static_cast<double>(gradient[i]); });
    const double norm = tensor.digest.norm < kZeroNorm ? norm_before : tensor.digest.norm;
    const double error = DigestError(digest, tensor, norm);
    CHECK(error < kNetworkGradientTol);
    largest = std::max(largest, error);
    norm_before = norm;
  }
  MESSAGE(golden.model << ": gradients off by at most " << largest);
}

TEST_CASE("a GPU's convolutions add to the gradient of a residual, without an array for it") {
  Job job;
  job.model = "resnet18-cifar";
  const Result<Model> model = Model::Create(job, {32, 32, 3}, 10);
  REQUIRE(model.ok());
  const std::vector<StagePlan> stages = PlanStages(model->graph());
  const NetworkPlan plan = PlanTraining({stages, {32, 32, 3}, 2, TestDevice()}, {});
  size_t adding_count = 0, sum_count = 0;
  for (const BackwardBuffers& buffers : plan.backward) {
    adding_count += buffers.adds_dx;
    for (size_t sum : buffers.sum) sum_count += sum != kNoBuffer;
  }
  constexpr size_t kBlocks = 8;
  const bool is_gpu = TestDevice().kind == DeviceKind::kCuda;
  CHECK(adding_count == (is_gpu ? kBlocks : 0));
  CHECK(sum_count == (is_gpu ? 0 : kBlocks));
}

uint32_t PlannedInputChannels(const std::string& model_name, SampleShape input, Device device) {
  const Model model = MakeModel(model_name, input);
  const std::vector<StagePlan> stages = PlanStages(model.graph());
  return PlanEvaluation({stages, input, 2, device}).input_channels;
}

TEST_CASE("pictures get eight channels for a convolution, on a GPU with small elements alone") {
  CHECK(PlannedInputChannels("resnet18-cifar", {32, 32, 3}, TestDevice()) == 3);
  if (TestDevice().kind != DeviceKind::kCuda) return;
  const Result<OpenedGpu> gpu = OpenCuda({.element = ElementType::kBfloat16});
  REQUIRE(gpu.ok());
  CHECK(PlannedInputChannels("resnet18-cifar", {32, 32, 3}, gpu->device()) == 8);
  CHECK(PlannedInputChannels("mnist-cnn", {28, 28, 1}, gpu->device()) == 1);
  CHECK(PlannedInputChannels("mlp", {8, 8, 3}, gpu->device()) == 3);
}

TEST_CASE("whole models' losses and gradients equal PyTorch's") {
  for (const nlohmann::json& j : ReadNetworkGoldens("network_goldens.json")) {
    const NetworkGolden golden = ReadNetworkGolden(j);
    CAPTURE(golden.model);
    const Model model = MakeGoldenModel(golden);
    const FloatsOnDevice parameters(GoldenParameters(golden, model.layout()));
    const FloatsOnDevice written(FloatBuffer(model.layout().float_count()));
    Network network(model, golden.sample_count, TestDevice());

    network.SetBatch(MakeGoldenBatch(golden), {}, Mode::kTrainWithoutDropout);
    const BatchScore trained = ForwardAll(network, parameters.data());
    BackwardAll(network, parameters.data(), written.data());
    network.SetBatch(MakeGoldenBatch(golden), {}, Mode::kEvaluate);
    const BatchScore evaluated = ForwardAll(network, parameters.data());

    CHECK(trained.loss_sum == doctest::Approx(j.at("loss").get<double>()).epsilon(kNetworkLossTol));
    CHECK(trained.correct_count == j.at("correct").get<uint32_t>());
    CHECK(evaluated.loss_sum ==
          doctest::Approx(j.at("evaluated_loss").get<double>()).epsilon(kNetworkLossTol));
    CHECK(evaluated.correct_count == j.at("evaluated_correct").get<uint32_t>());
    CheckGradients(golden, model.layout(), written.Read());
  }
}

}  // namespace
}  // namespace pando
