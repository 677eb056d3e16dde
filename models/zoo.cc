#include "models/zoo.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "common/nearest_name.h"
#include "models/zoo_layers.h"

namespace pando {
namespace {

using zoo::Conv;
using zoo::Flatten;
using zoo::Linear;
using zoo::MaxPool;

LayerSpec Relu(std::string name) { return zoo::Plain(LayerKind::kRelu, std::move(name)); }

// The CNN of PyTorch's MNIST example and of the papers: 21,840 parameters for 28 x 28 x 1.
std::vector<LayerSpec> MnistCnn(uint32_t class_count) {
  return {Conv("conv1", 10, 5),
          MaxPool("pool1"),
          Relu("relu1"),
          Conv("conv2", 20, 5),
          {.kind = LayerKind::kDropout2d, .name = "conv2_drop", .probability = 0.5f},
          MaxPool("pool2"),
          Relu("relu2"),
          Flatten(),
          Linear("fc1", 50),
          Relu("relu3"),
          zoo::Dropout("fc1_drop", 0.5f),
          Linear("fc2", class_count)};
}

// LeCun et al. 1998, with today's usual relu and max pools: 61,706 parameters for 28 x 28 x 1.
std::vector<LayerSpec> LeNet5(uint32_t class_count) {
  return {Conv("conv1", 6, 5, 2), Relu("relu1"),     MaxPool("pool1"), Conv("conv2", 16, 5),
          Relu("relu2"),          MaxPool("pool2"),  Flatten(),        Linear("fc1", 120),
          Relu("relu3"),          Linear("fc2", 84), Relu("relu4"),    Linear("fc3", class_count)};
}

// The CNN of PyTorch's CIFAR tutorial and of the papers: 62,006 parameters for 32 x 32 x 3.
std::vector<LayerSpec> CifarCnn(uint32_t class_count) {
  return {Conv("conv1", 6, 5), Relu("relu1"),     MaxPool("pool1"), Conv("conv2", 16, 5),
          Relu("relu2"),       MaxPool("pool2"),  Flatten(),        Linear("fc1", 120),
          Relu("relu3"),       Linear("fc2", 84), Relu("relu4"),    Linear("fc3", class_count)};
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

// For "resnet18", "resnet50-cifar", ...
std::vector<LayerSpec> ResNetNamed(const std::string& name, uint32_t class_count) {
  return zoo::ResNet({.depth = static_cast<uint32_t>(std::stoul(name.substr(6))),
                      .is_small = name.ends_with("-cifar"),
                      .class_count = class_count});
}

}  // namespace

const std::vector<ZooModel>& ZooModels() {
  constexpr SampleShape kDigits{28, 28, 1}, kCifar{32, 32, 3}, kImageNet{224, 224, 3};
  static const std::vector<ZooModel> models{
      {"mnist-cnn", "the CNN of PyTorch's MNIST example", kDigits, 10},
      {"lenet5", "LeNet-5 with relu and max pools", kDigits, 10},
      {"cifar-cnn", "the CNN of PyTorch's CIFAR tutorial", kCifar, 10},
      {"mlp", "a perceptron with model.hidden layers", kDigits, 10},
      {"vgg16", "VGG-16", kImageNet, 1000},
      {"vgg16-bn", "VGG-16 with batch norm", kImageNet, 1000},
      {"vgg16-cifar", "VGG-16 with a head for small pictures", kCifar, 10},
      {"vgg16-bn-cifar", "VGG-16 with batch norm, for small pictures", kCifar, 10},
      {"resnet18", "ResNet-18", kImageNet, 1000},
      {"resnet34", "ResNet-34", kImageNet, 1000},
      {"resnet50", "ResNet-50", kImageNet, 1000},
      {"resnet101", "ResNet-101", kImageNet, 1000},
      {"resnet18-cifar", "ResNet-18 with a stem for small pictures", kCifar, 10},
      {"resnet34-cifar", "ResNet-34 with a stem for small pictures", kCifar, 10},
      {"resnet50-cifar", "ResNet-50 with a stem for small pictures", kCifar, 10},
      {"resnet101-cifar", "ResNet-101 with a stem for small pictures", kCifar, 10},
      {"mobilenet-v2", "MobileNetV2", kImageNet, 1000},
      {"mobilenet-v2-small", "MobileNetV2 with strides for small pictures", kCifar, 10}};
  return models;
}

std::vector<std::string> ZooNames() {
  std::vector<std::string> names;
  for (const ZooModel& model : ZooModels()) names.emplace_back(model.name);
  return names;
}

const ZooModel* FindZooModel(const std::string& name) {
  for (const ZooModel& model : ZooModels()) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

Result<Architecture> ZooArchitecture(const Job& job, uint32_t class_count) {
  constexpr uint32_t kColours = 3;
  const std::string& name = job.model;
  if (FindZooModel(name) == nullptr) return UnknownModel(name);
  if (name == "mlp") {
    Result<std::vector<LayerSpec>> layers = Mlp(job, class_count);
    if (!layers.ok()) return layers.status();
    return Architecture{.layers = *std::move(layers)};
  }
  if (name == "mnist-cnn") return Architecture{.layers = MnistCnn(class_count)};
  if (name == "lenet5") return Architecture{.layers = LeNet5(class_count)};
  if (name == "cifar-cnn") return Architecture{CifarCnn(class_count), kColours};
  if (name.starts_with("resnet")) return Architecture{ResNetNamed(name, class_count), kColours};
  if (name.starts_with("vgg16")) {
    return Architecture{zoo::Vgg16({.has_batch_norm = name.starts_with("vgg16-bn"),
                                    .is_small = name.ends_with("-cifar"),
                                    .class_count = class_count}),
                        kColours};
  }
  return Architecture{
      zoo::MobileNetV2({.is_small = name.ends_with("-small"), .class_count = class_count}),
      kColours};
}

}  // namespace pando
