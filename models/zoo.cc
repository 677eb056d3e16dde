#include "models/zoo.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/nearest_name.h"

namespace pando {
namespace {

LayerSpec Conv(std::string name, uint32_t out, uint32_t kernel, uint32_t padding = 0) {
  return {.kind = LayerKind::kConv2d,
          .name = std::move(name),
          .out_units = out,
          .window = kernel,
          .padding = padding};
}
LayerSpec Linear(std::string name, uint32_t out) {
  return {.kind = LayerKind::kLinear, .name = std::move(name), .out_units = out};
}
LayerSpec MaxPool(std::string name) {
  return {.kind = LayerKind::kMaxPool2d, .name = std::move(name), .window = 2, .stride = 2};
}
LayerSpec Relu(std::string name) { return {.kind = LayerKind::kRelu, .name = std::move(name)}; }
LayerSpec Flatten() { return {.kind = LayerKind::kFlatten, .name = "flatten"}; }
LayerSpec Drop(LayerKind kind, std::string name, float probability) {
  return {.kind = kind, .name = std::move(name), .probability = probability};
}

// The CNN of PyTorch's MNIST example and of the papers: 21,840 parameters for 28 x 28 x 1.
std::vector<LayerSpec> MnistCnn(uint32_t class_count) {
  return {Conv("conv1", 10, 5),
          MaxPool("pool1"),
          Relu("relu1"),
          Conv("conv2", 20, 5),
          Drop(LayerKind::kDropout2d, "conv2_drop", 0.5f),
          MaxPool("pool2"),
          Relu("relu2"),
          Flatten(),
          Linear("fc1", 50),
          Relu("relu3"),
          Drop(LayerKind::kDropout, "fc1_drop", 0.5f),
          Linear("fc2", class_count)};
}

// LeCun et al. 1998, with relu and max pools as is usual now: 61,706 parameters for 28 x 28 x 1.
std::vector<LayerSpec> LeNet5(uint32_t class_count) {
  return {Conv("conv1", 6, 5, 2), Relu("relu1"),     MaxPool("pool1"), Conv("conv2", 16, 5),
          Relu("relu2"),          MaxPool("pool2"),  Flatten(),        Linear("fc1", 120),
          Relu("relu3"),          Linear("fc2", 84), Relu("relu4"),    Linear("fc3", class_count)};
}

Result<std::vector<LayerSpec>> Mlp(const Job& job, uint32_t class_count) {
  constexpr uint64_t kWidthMax = 1 << 20;
  std::vector<LayerSpec> layers{Flatten()};
  for (size_t i = 0; i < job.mlp_hidden.size(); ++i) {
    const uint64_t width = job.mlp_hidden[i];
    if (width == 0 || width > kWidthMax) {
      return InvalidArgument(fmt::format(
          "model mlp: model.hidden[{}] is {}; a layer's width is 1 to {}", i, width, kWidthMax));
    }
    layers.push_back(Linear("fc" + std::to_string(i + 1), static_cast<uint32_t>(width)));
    layers.push_back(Relu("relu" + std::to_string(i + 1)));
  }
  layers.push_back(Linear("fc" + std::to_string(job.mlp_hidden.size() + 1), class_count));
  return layers;
}

Status UnknownModel(const std::string& model) {
  const std::vector<std::string> names = ZooNames();
  std::string known = names.front();
  for (size_t i = 1; i < names.size(); ++i) known += ", " + names[i];
  const std::string hint = DidYouMean(model, names);
  return InvalidArgument("unknown model '" + model + "'; " + (hint.empty() ? "" : hint + " ") +
                         "there are: " + known);
}

}  // namespace

std::vector<std::string> ZooNames() { return {"lenet5", "mlp", "mnist-cnn"}; }

Result<std::vector<LayerSpec>> ZooLayers(const Job& job, uint32_t class_count) {
  if (job.model == "mnist-cnn") return MnistCnn(class_count);
  if (job.model == "lenet5") return LeNet5(class_count);
  if (job.model == "mlp") return Mlp(job, class_count);
  return UnknownModel(job.model);
}

}  // namespace pando
