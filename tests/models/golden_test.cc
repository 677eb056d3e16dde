// Losses and gradients beside PyTorch's (tests/golden/make_goldens.py).
#include <cmath>
#include <cstring>
#include <fstream>

#include "tests/models/support.h"

namespace pando {
namespace {

constexpr double kLossTol = 1e-6;  // fp32 against double, relative
constexpr double kGradientTol =
    3e-5;  // of the tensor's largest: 1.5e-5 is the file's 16 bits, measured 1.6e-5
constexpr uint32_t kSampleCount = 17;

struct GoldenTensor {
  std::string name;
  std::vector<double> gradient;
};
struct Golden {
  std::string model;
  double loss = 0;
  uint32_t correct_count = 0;
  std::vector<GoldenTensor> tensors;
};

class Reader {
 public:
  explicit Reader(const std::string& path) : file_(path, std::ios::binary) {
    REQUIRE_MESSAGE(file_.good(), path);
  }
  template <class T>
  T Take() {
    T value{};
    file_.read(reinterpret_cast<char*>(&value), sizeof value);
    REQUIRE(file_.good());
    return value;
  }
  std::string TakeString() {
    std::string text(Take<uint32_t>(), ' ');
    file_.read(text.data(), static_cast<std::streamsize>(text.size()));
    return text;
  }

 private:
  std::ifstream file_;
};

std::vector<Golden> ReadGoldens() {
  Reader in(GoldenPath("models.bin"));
  std::vector<Golden> goldens(in.Take<uint32_t>());
  for (Golden& golden : goldens) {
    golden.model = in.TakeString();
    golden.loss = in.Take<double>();
    golden.correct_count = in.Take<uint32_t>();
    golden.tensors.resize(in.Take<uint32_t>());
    for (GoldenTensor& tensor : golden.tensors) {
      tensor.name = in.TakeString();
      tensor.gradient.resize(in.Take<uint32_t>());
      const auto scale = static_cast<double>(in.Take<float>());
      for (double& g : tensor.gradient) g = in.Take<int16_t>() * scale;
    }
  }
  return goldens;
}

FloatBuffer SmallGoldenParameters(const TensorLayout& layout) {
  FloatBuffer parameters(layout.float_count());
  for (uint32_t t = 0; t + 1 < layout.tensor_count(); ++t) {
    const double bound = layout.specs()[t].shape.size() > 2 ? 0.25 : 0.125;
    for (uint32_t i = 0; i < layout.specs()[t].size(); ++i) {
      const double value = Noise(i, 1000 + t) / 8388608.0 - 1;
      const double center = layout.specs()[t].init == InitKind::kOne ? 1 : 0;
      parameters.data()[layout.offset(t) + i] = static_cast<float>(center + value * bound);
    }
  }
  return parameters;
}

double RelativeError(const float* got, const std::vector<double>& expected) {
  double error = 0, largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error = std::max(error, std::abs(static_cast<double>(got[i]) - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  return error / largest;
}

TEST_CASE("losses and all gradients equal PyTorch's") {
  for (const Golden& golden : ReadGoldens()) {
    CAPTURE(golden.model);
    const Model model =
        golden.model.ends_with(".toml") ? MakeGoldenNetwork(golden.model) : MakeModel(golden.model);
    const TensorLayout& layout = model.layout();
    const FloatsOnDevice parameters(SmallGoldenParameters(layout));
    const FloatsOnDevice written(FloatBuffer(layout.float_count()));
    Network network(model, kSampleCount, TestDevice());
    network.SetBatch(NoiseBatch(kSampleCount), {}, Mode::kTrainWithoutDropout);
    const BatchScore score = ForwardAll(network, parameters.data());
    BackwardAll(network, parameters.data(), written.data());
    const FloatBuffer gradients = written.Read();

    CHECK(score.loss_sum == doctest::Approx(golden.loss).epsilon(kLossTol));
    CHECK(score.correct_count == golden.correct_count);
    REQUIRE(golden.tensors.size() + 1 == layout.tensor_count());
    for (size_t t = 0; t < golden.tensors.size(); ++t) {
      CAPTURE(golden.tensors[t].name);
      REQUIRE(golden.tensors[t].name == layout.specs()[t].name);
      REQUIRE(golden.tensors[t].gradient.size() == layout.specs()[t].size());
      const float* gradient = gradients.data() + layout.offset(t);
      CHECK(RelativeError(gradient, golden.tensors[t].gradient) < kGradientTol);
    }
  }
}

}  // namespace
}  // namespace pando
