// The families whose blocks add their input to their output: ResNet and MobileNetV2, torchvision's
// `resnetN` and `mobilenet_v2`.
#include <array>

#include "common/check.h"
#include "models/zoo_layers.h"

namespace pando::zoo {
namespace {

// A convolution before batch norm, as torchvision's: no bias, Kaiming's normal weights, and padding
// that keeps a picture's size at stride 1.
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

  // In the order in which torchvision registers them, which is topological. The shortcut is last.
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
  uint32_t stride;        // of the first block
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
  // Expand, filter each channel, project; torchvision numbers them conv.0, conv.1, ...
  // An inverted residual: its bottleneck, the projection, is linear.
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

}  // namespace

std::vector<LayerSpec> ResNet(const std::string& name, uint32_t class_count) {
  const auto depth = static_cast<uint32_t>(std::stoul(name.substr(6)));  // "resnet50-cifar"
  return ResNetBuilder().Build(depth, name.ends_with("-cifar"), class_count);
}

std::vector<LayerSpec> MobileNetV2(const std::string& name, uint32_t class_count) {
  return MobileNetBuilder().Build(name.ends_with("-small"), class_count);
}

}  // namespace pando::zoo
