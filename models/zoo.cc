#include "models/zoo.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/text.h"
#include "models/zoo_layers.h"

namespace pando {
namespace {

using zoo::Conv;
using zoo::Dropout;
using zoo::Linear;
using zoo::MaxPool;
using zoo::Relu;

LayerSpec Flatten() { return zoo::Plain(LayerKind::kFlatten, "flatten"); }

// The CNN of PyTorch's MNIST example and of the papers: 21,840 parameters for 28 x 28 x 1.
std::vector<LayerSpec> MnistCnn(const std::string&, uint32_t class_count) {
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
          Dropout("fc1_drop", 0.5f),
          Linear("fc2", class_count)};
}

// "lenet5": LeCun et al. 1998, with today's usual relu and max pools: 61,706 parameters for
// 28 x 28 x 1. "cifar-cnn", the CNN of PyTorch's CIFAR tutorial and of the papers, is the same
// without padding: 62,006 parameters for 32 x 32 x 3.
std::vector<LayerSpec> LeNet(const std::string& name, uint32_t class_count) {
  std::vector<LayerSpec> layers{
      Conv("conv1", 6, 5), Relu("relu1"),     MaxPool("pool1"), Conv("conv2", 16, 5),
      Relu("relu2"),       MaxPool("pool2"),  Flatten(),        Linear("fc1", 120),
      Relu("relu3"),       Linear("fc2", 84), Relu("relu4"),    Linear("fc3", class_count)};
  if (name == "lenet5") layers.front().padding = 2;
  return layers;
}

Result<Architecture> Mlp(const Job& job, uint32_t class_count) {
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
  return Architecture{.layers = std::move(layers)};
}

// ---------------------------------------- VGG-16 (Simonyan and Zisserman 2014, configuration D)

constexpr uint32_t kPool = 0;
constexpr uint32_t kVggPlan[] = {64,    64,  kPool, 128, 128,   kPool, 256, 256, 256,
                                 kPool, 512, 512,   512, kPool, 512,   512, 512, kPool};

// torchvision numbers the modules; so do tensors' names: "features.28.weight".
std::vector<LayerSpec> VggFeatures(bool has_batch_norm) {
  std::vector<LayerSpec> layers;
  auto next_name = [&] { return "features." + std::to_string(layers.size()); };
  for (uint32_t width : kVggPlan) {
    if (width == kPool) {
      layers.push_back(MaxPool(next_name()));
      continue;
    }
    layers.push_back(Conv(next_name(), width, 3, 1));
    layers.back().init = WeightInit::kKaimingNormalFanOut;
    if (has_batch_norm) layers.push_back(zoo::Plain(LayerKind::kBatchNorm, next_name()));
    layers.push_back(Relu(next_name()));
  }
  return layers;
}

// Two hidden layers and the scores: torchvision's, after 7 x 7 x 512, or those for small pictures,
// after 1 x 1 x 512. The latter have PyTorch's default weights: with deviations of 0.01, three
// layers as narrow as these would leave almost nothing of a signal.
std::vector<LayerSpec> VggClassifier(bool is_small, uint32_t class_count) {
  std::vector<LayerSpec> layers;
  uint32_t module = 0;
  auto next_name = [&] { return "classifier." + std::to_string(module++); };
  const auto add_linear = [&](uint32_t width) {
    layers.push_back(Linear(next_name(), width));
    if (!is_small) layers.back().init = WeightInit::kNormal;
  };
  if (!is_small) {
    layers.push_back(zoo::Plain(LayerKind::kAdaptiveAveragePool, "avgpool"));
    layers.back().out_units = 7;
  }
  layers.push_back(Flatten());
  for (int hidden = 0; hidden < 2; ++hidden) {
    if (is_small) layers.push_back(Dropout(next_name(), 0.5f));
    add_linear(is_small ? 512 : 4096);
    layers.push_back(Relu(next_name()));
    if (!is_small) layers.push_back(Dropout(next_name(), 0.5f));
  }
  add_linear(class_count);
  return layers;
}

// torchvision's `vgg16` and `vgg16_bn`; with "-cifar" for 32 x 32 pictures.
std::vector<LayerSpec> Vgg16(const std::string& name, uint32_t class_count) {
  std::vector<LayerSpec> layers = VggFeatures(name.starts_with("vgg16-bn"));
  const std::vector<LayerSpec> head = VggClassifier(name.ends_with("-cifar"), class_count);
  layers.insert(layers.end(), head.begin(), head.end());
  return layers;
}

// ----------------------------------------------------------------------------------- by name

Status UnknownModel(const std::string& model) {
  const std::vector<std::string> names = ZooNames();
  const std::string hint = DidYouMean(model, names);
  return InvalidArgument(fmt::format("unknown model '{}'; {}{}there are: {}", model, hint,
                                     hint.empty() ? "" : " ", Joined(names)));
}

}  // namespace

const std::vector<ZooModel>& ZooModels() {
  constexpr SampleShape kDigits{28, 28, 1}, kCifar{32, 32, 3}, kImageNet{224, 224, 3};
  static const std::vector<ZooModel> models{
      {"mnist-cnn", "the CNN of PyTorch's MNIST example", kDigits, 10, MnistCnn},
      {"lenet5", "LeNet-5 with relu and max pools", kDigits, 10, LeNet},
      {"cifar-cnn", "the CNN of PyTorch's CIFAR tutorial", kCifar, 10, LeNet},
      {"mlp", "a perceptron with model.hidden layers", kDigits, 10, nullptr},
      {"vgg16", "VGG-16", kImageNet, 1000, Vgg16},
      {"vgg16-bn", "VGG-16 with batch norm", kImageNet, 1000, Vgg16},
      {"vgg16-cifar", "VGG-16 with a head for small pictures", kCifar, 10, Vgg16},
      {"vgg16-bn-cifar", "VGG-16 with batch norm, for small pictures", kCifar, 10, Vgg16},
      {"resnet18", "ResNet-18", kImageNet, 1000, zoo::ResNet},
      {"resnet34", "ResNet-34", kImageNet, 1000, zoo::ResNet},
      {"resnet50", "ResNet-50", kImageNet, 1000, zoo::ResNet},
      {"resnet101", "ResNet-101", kImageNet, 1000, zoo::ResNet},
      {"resnet18-cifar", "ResNet-18 with a stem for small pictures", kCifar, 10, zoo::ResNet},
      {"resnet34-cifar", "ResNet-34 with a stem for small pictures", kCifar, 10, zoo::ResNet},
      {"resnet50-cifar", "ResNet-50 with a stem for small pictures", kCifar, 10, zoo::ResNet},
      {"resnet101-cifar", "ResNet-101 with a stem for small pictures", kCifar, 10, zoo::ResNet},
      {"mobilenet-v2", "MobileNetV2", kImageNet, 1000, zoo::MobileNetV2},
      {"mobilenet-v2-small", "MobileNetV2 with strides for small pictures", kCifar, 10,
       zoo::MobileNetV2}};
  return models;
}

std::vector<std::string> ZooNames() {
  std::vector<std::string> names;
  for (const ZooModel& model : ZooModels()) names.emplace_back(model.name);
  return names;
}

const ZooModel* FindZooModel(const std::string& name) {
  const auto at =
      std::ranges::find_if(ZooModels(), [&](const ZooModel& model) { return model.name == name; });
  return at == ZooModels().end() ? nullptr : &*at;
}

Result<Architecture> ZooArchitecture(const Job& job, uint32_t class_count) {
  const ZooModel* model = FindZooModel(job.model);
  if (model == nullptr) return UnknownModel(job.model);
  if (model->layers == nullptr) return Mlp(job, class_count);
  const uint32_t channels = model->input.channels == 1 ? 0 : model->input.channels;
  return Architecture{model->layers(job.model, class_count), channels};
}

}  // namespace pando
