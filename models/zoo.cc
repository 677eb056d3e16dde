#include "models/zoo.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "common/check.h"
#include "common/text.h"

namespace pando {
namespace {

// Makes a layer of a kind without options.
LayerSpec Plain(LayerKind kind, std::string name) {
  return {.kind = kind, .name = std::move(name)};
}
LayerSpec Relu(std::string name) { return Plain(LayerKind::kRelu, std::move(name)); }

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

LayerSpec MaxPool(std::string name, uint32_t window = 2, uint32_t stride = 2,
                  uint32_t padding = 0) {
  return {.kind = LayerKind::kMaxPool2d,
          .name = std::move(name),
          .window = window,
          .stride = stride,
          .padding = padding};
}

LayerSpec Dropout(std::string name, float probability) {
  return {.kind = LayerKind::kDropout, .name = std::move(name), .probability = probability};
}

LayerSpec Flatten() { return Plain(LayerKind::kFlatten, "flatten"); }

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

// torchvision numbers the modules, and so do the tensors' names: "features.28.weight".
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
    if (has_batch_norm) layers.push_back(Plain(LayerKind::kBatchNorm, next_name()));
    layers.push_back(Relu(next_name()));
  }
  return layers;
}

// Makes two hidden layers and the scores: torchvision's, after 7 x 7 x 512, or those for small
// pictures, after 1 x 1 x 512. The latter have PyTorch's default weights: with deviations of 0.01,
// three layers as narrow as these would leave almost nothing of a signal.
std::vector<LayerSpec> VggClassifier(bool is_small, uint32_t class_count) {
  std::vector<LayerSpec> layers;
  uint32_t module = 0;
  auto next_name = [&] { return "classifier." + std::to_string(module++); };
  const auto add_linear = [&](uint32_t width) {
    layers.push_back(Linear(next_name(), width));
    if (!is_small) layers.back().init = WeightInit::kNormal;
  };
  if (!is_small) {
    layers.push_back(Plain(LayerKind::kAdaptiveAveragePool, "avgpool"));
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

// Makes torchvision's `vgg16` and `vgg16_bn`; with "-cifar" for 32 x 32 pictures.
std::vector<LayerSpec> Vgg16(const std::string& name, uint32_t class_count) {
  std::vector<LayerSpec> layers = VggFeatures(name.starts_with("vgg16-bn"));
  const std::vector<LayerSpec> head = VggClassifier(name.ends_with("-cifar"), class_count);
  layers.insert(layers.end(), head.begin(), head.end());
  return layers;
}

// ---------------------- ResNet and MobileNetV2: a block adds its input to its output

// A convolution before batch norm, as in torchvision: no bias, Kaiming's normal weights, and
// padding that keeps a picture's size at stride 1.
struct BareConv {
  uint32_t out = 0;
  uint32_t kernel = 1;  // odd
  uint32_t stride = 1;
  uint32_t groups = 1;
};

class Builder {
 protected:
  void Add(LayerSpec layer) { layers_.push_back(std::move(layer)); }

  void AddConvNorm(const std::string& conv_name, const std::string& norm_name,
                   const BareConv& conv) {
    Add({.kind = LayerKind::kConv2d,
         .name = conv_name,
         .out_units = conv.out,
         .window = conv.kernel,
         .stride = conv.stride,
         .padding = conv.kernel / 2,
         .groups = conv.groups,
         .bias = false,
         .init = WeightInit::kKaimingNormalFanOut});
    Add(Plain(LayerKind::kBatchNorm, norm_name));
  }

  void AddSum(const std::string& name, const std::string& a, const std::string& b) {
    Add({.kind = LayerKind::kAdd, .name = name, .inputs = {a, b}});
  }

  std::vector<LayerSpec> layers_;
  uint32_t channels_ = 0;  // of the last block's output
};

// -------------------------------------------------------- ResNet (arXiv:1512.03385)

constexpr std::array<uint32_t, 4> kWidths{64, 128, 256, 512};
constexpr uint32_t kBottleneckExpansion = 4;

std::array<uint32_t, 4> CountBlocks(uint32_t depth) {
  switch (depth) {
    case 18:
      return {2, 2, 2, 2};
    case 34:
    case 50:
      return {3, 4, 6, 3};
    case 101:
      return {3, 4, 23, 3};
    default:
      PANDO_CHECK(false);
  }
}

class ResNetBuilder : public Builder {
 public:
  std::vector<LayerSpec> Build(uint32_t depth, bool is_small, uint32_t class_count) {
    has_bottlenecks_ = depth >= 50;
    AddStem(is_small);
    const std::array<uint32_t, 4> block_counts = CountBlocks(depth);
    for (uint32_t stage = 0; stage < block_counts.size(); ++stage) {
      for (uint32_t block = 0; block < block_counts[stage]; ++block) {
        const uint32_t stride = stage > 0 && block == 0 ? 2 : 1;
        AddBlock("layer" + std::to_string(stage + 1) + "." + std::to_string(block) + ".",
                 kWidths[stage], stride);
      }
    }
    Add(Plain(LayerKind::kGlobalAveragePool, "avgpool"));
    Add(Linear("fc", class_count));
    return std::move(layers_);
  }

 private:
  void AddStem(bool is_small) {
    channels_ = kWidths[0];
    const uint32_t kernel = is_small ? 3 : 7, stride = is_small ? 1 : 2;
    AddConvNorm("conv1", "bn1", {.out = channels_, .kernel = kernel, .stride = stride});
    Add(Relu("relu"));
    if (!is_small) Add(MaxPool("maxpool", 3, 2, 1));
  }

  // Adds layers in torchvision's order of registration, which is topological. The shortcut is last.
  // In torchvision's variant the 3 x 3 convolution of a bottleneck has the stride.
  void AddBlock(const std::string& prefix, uint32_t width, uint32_t stride) {
    const std::string entrance = layers_.back().name;
    const uint32_t out = has_bottlenecks_ ? width * kBottleneckExpansion : width;
    const BareConv filter{.out = width, .kernel = 3, .stride = stride};
    const std::vector<BareConv> convs =
        has_bottlenecks_ ? std::vector<BareConv>{{.out = width}, filter, {.out = out}}
                         : std::vector<BareConv>{filter, {.out = out, .kernel = 3}};
    for (size_t i = 0; i < convs.size(); ++i) {
      if (i > 0) Add(Relu(prefix + "relu" + std::to_string(i)));
      const std::string number = std::to_string(i + 1);
      AddConvNorm(prefix + "conv" + number, prefix + "bn" + number, convs[i]);
    }
    const std::string trunk = layers_.back().name;
    std::string shortcut = entrance;
    if (stride != 1 || channels_ != out) {
      shortcut = prefix + "downsample.1";
      AddConvNorm(prefix + "downsample.0", shortcut, {.out = out, .stride = stride});
      layers_[layers_.size() - 2].inputs = {entrance};
    }
    AddSum(prefix + "add", trunk, shortcut);
    Add(Relu(prefix + "relu"));
    channels_ = out;
  }

  bool has_bottlenecks_ = false;
};

// -------------------------------------------------------- MobileNetV2 (Sandler et al. 2018)

struct StageSettings {
  uint32_t expansion;
  uint32_t channels;
  uint32_t block_count;
  uint32_t stride;        // the first block's
  uint32_t small_stride;  // the same for small pictures
};
// The paper's table 2.
constexpr StageSettings kStages[] = {{1, 16, 1, 1, 1}, {6, 24, 2, 2, 1}, {6, 32, 3, 2, 2},
                                     {6, 64, 4, 2, 2}, {6, 96, 3, 1, 1}, {6, 160, 3, 2, 2},
                                     {6, 320, 1, 1, 1}};
constexpr uint32_t kStemChannels = 32;
constexpr uint32_t kLastChannels = 1280;

class MobileNetBuilder : public Builder {
 public:
  std::vector<LayerSpec> Build(bool is_small, uint32_t class_count) {
    uint32_t module = 0;
    auto next_prefix = [&] { return "features." + std::to_string(module++) + "."; };
    AddConvNormRelu(next_prefix(),
                    {.out = kStemChannels, .kernel = 3, .stride = is_small ? 1u : 2u});
    channels_ = kStemChannels;
    for (const StageSettings& stage : kStages) {
      const uint32_t stride = is_small ? stage.small_stride : stage.stride;
      for (uint32_t block = 0; block < stage.block_count; ++block) {
        AddBlock(next_prefix(), stage, block == 0 ? stride : 1);
      }
    }
    AddConvNormRelu(next_prefix(), {.out = kLastChannels});
    Add(Plain(LayerKind::kGlobalAveragePool, "avgpool"));
    Add(Dropout("classifier.0", 0.2f));
    Add(Linear("classifier.1", class_count));
    layers_.back().init = WeightInit::kNormal;
    return std::move(layers_);
  }

 private:
  // Adds an inverted residual: expand, filter each channel, project, which torchvision numbers
  // conv.0, conv.1, ... Its bottleneck, the projection, is linear.
  void AddBlock(const std::string& prefix, const StageSettings& stage, uint32_t stride) {
    const std::string entrance = layers_.back().name;
    const uint32_t width = channels_ * stage.expansion;
    uint32_t module = 0;
    auto next_name = [&] { return prefix + "conv." + std::to_string(module++); };
    if (stage.expansion != 1) AddConvNormRelu(next_name() + ".", {.out = width});
    AddConvNormRelu(next_name() + ".",
                    {.out = width, .kernel = 3, .stride = stride, .groups = width});
    const std::string project = next_name(), exit = next_name();
    AddConvNorm(project, exit, {.out = stage.channels});
    if (stride == 1 && channels_ == stage.channels) AddSum(prefix + "add", exit, entrance);
    channels_ = stage.channels;
  }

  void AddConvNormRelu(const std::string& prefix, const BareConv& conv) {
    AddConvNorm(prefix + "0", prefix + "1", conv);
    Add(Plain(LayerKind::kRelu6, prefix + "2"));
  }
};

// Makes torchvision's `resnetN`; with "-cifar" the stem is 3 x 3 without pool, for pictures of
// about 32 x 32.
std::vector<LayerSpec> ResNet(const std::string& name, uint32_t class_count) {
  const auto depth = static_cast<uint32_t>(std::stoul(name.substr(6)));  // "resnet50-cifar"
  return ResNetBuilder().Build(depth, name.ends_with("-cifar"), class_count);
}

// Makes torchvision's `mobilenet_v2`; with "-small" the stem and the second stage keep the size.
std::vector<LayerSpec> MobileNetV2(const std::string& name, uint32_t class_count) {
  return MobileNetBuilder().Build(name.ends_with("-small"), class_count);
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
      {"resnet18", "ResNet-18", kImageNet, 1000, ResNet},
      {"resnet34", "ResNet-34", kImageNet, 1000, ResNet},
      {"resnet50", "ResNet-50", kImageNet, 1000, ResNet},
      {"resnet101", "ResNet-101", kImageNet, 1000, ResNet},
      {"resnet18-cifar", "ResNet-18 with a stem for small pictures", kCifar, 10, ResNet},
      {"resnet34-cifar", "ResNet-34 with a stem for small pictures", kCifar, 10, ResNet},
      {"resnet50-cifar", "ResNet-50 with a stem for small pictures", kCifar, 10, ResNet},
      {"resnet101-cifar", "ResNet-101 with a stem for small pictures", kCifar, 10, ResNet},
      {"mobilenet-v2", "MobileNetV2", kImageNet, 1000, MobileNetV2},
      {"mobilenet-v2-small", "MobileNetV2 with strides for small pictures", kCifar, 10,
       MobileNetV2}};
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
