// Shared by the model tests: models of the zoo, batches made by formula, and a whole pass.
#pragma once

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "common/float_buffer.h"
#include "models/graph.h"
#include "models/network.h"
#include "plan/tensor_init.h"
#include "tests/golden/golden_path.h"
#include "tests/golden/network_goldens.h"
#include "tests/test_device.h"

namespace pando {

inline constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

inline Model MakeModel(const std::string& name, SampleShape input = {28, 28, 1},
                       uint32_t class_count = 10, std::vector<uint64_t> hidden = {128}) {
  Job job;
  job.model = name;
  job.mlp_hidden = std::move(hidden);
  Result<Model> model = Model::Create(job, input, class_count);
  REQUIRE(model.ok());
  return *std::move(model);
}

inline std::string ReadGoldenFile(const std::string& file_name) {
  std::ifstream file(GoldenPath(file_name));
  REQUIRE_MESSAGE(file.good(), file_name);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A network of tests/golden, "residual.toml".
inline Model MakeGoldenNetwork(const std::string& file_name) {
  Job job;
  job.model = file_name;
  job.network = ReadGoldenFile(file_name);
  Result<Model> model = Model::Create(job, {28, 28, 1}, 10);
  REQUIRE_MESSAGE(model.ok(), model.status().message());
  return *std::move(model);
}

inline FloatBuffer InitialParameters(const Model& model, uint64_t seed = 1) {
  FloatBuffer parameters(model.layout().float_count());
  InitRange(model.layout(), seed, {0, parameters.size()}, parameters.span());
  return parameters;
}

// Floats in the memory of the device that is tested.
class FloatsOnDevice {
 public:
  explicit FloatsOnDevice(const FloatBuffer& host)
      : memory_(TestDevice(), host.size() * sizeof(float)), size_(host.size()) {
    Upload(TestDevice(), std::as_bytes(host.span()), memory_.data());
  }
  float* data() const { return reinterpret_cast<float*>(memory_.data()); }
  FloatBuffer Read() const {
    FloatBuffer host(size_);
    Download(TestDevice(), memory_.data(), std::as_writable_bytes(host.span()));
    return host;
  }

 private:
  DeviceMemory memory_;
  size_t size_;
};

inline const Normalisation kMnistNormalisation{{0.1307f}, {0.3081f}};

inline Batch NoiseBatch(uint32_t sample_count, uint32_t seed = 7) {
  Batch batch;
  batch.shape = {28, 28, 1};
  batch.normalisation = &kMnistNormalisation;
  for (uint32_t i = 0; i < sample_count * 784; ++i) {
    batch.bytes.push_back(static_cast<uint8_t>(Noise(i, seed) >> 16));
  }
  for (uint32_t s = 0; s < sample_count; ++s)
    batch.labels.push_back(static_cast<int32_t>(s * 7 % 10));
  return batch;
}

inline BatchScore ForwardAll(Network& network, const float* parameters) {
  for (uint32_t layer = 0; layer < network.layer_count(); ++layer)
    network.Forward(layer, parameters);
  return network.Score();
}

inline void BackwardAll(Network& network, const float* parameters, float* gradients) {
  for (uint32_t layer = network.layer_count(); layer-- > 0;) {
    network.Backward(layer, parameters, gradients);
  }
}

}  // namespace pando
