// ResNet (arXiv:1512.03385) in torchvision's variant: the 3 x 3 convolution of a bottleneck has the
// stride.
#include <array>
#include <utility>

#include "common/check.h"
#include "models/zoo_layers.h"

namespace pando::zoo {
namespace {

constexpr std::array<uint32_t, 4> kWidths{64, 128, 256, 512};
constexpr uint32_t kBottleneckExpansion = 4;

std::array<uint32_t, 4> BlockCounts(uint32_t depth) {
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

class Builder {
 public:
  explicit Builder(const ResNetOptions& options) : options_(options) {}

  std::vector<LayerSpec> Build() {
    Stem();
    const std::array<uint32_t, 4> block_counts = BlockCounts(options_.depth);
    for (uint32_t stage = 0; stage < block_counts.size(); ++stage) {
      for (uint32_t block = 0; block < block_counts[stage]; ++block) {
        const uint32_t stride = stage > 0 && block == 0 ? 2 : 1;
        Block("layer" + std::to_string(stage + 1) + "." + std::to_string(block) + ".",
              kWidths[stage], stride);
      }
    }
    layers_.push_back(Plain(LayerKind::kGlobalAveragePool, "avgpool"));
    layers_.push_back(Linear("fc", options_.class_count));
    return std::move(layers_);
  }

 private:
  bool has_bottlenecks() const { return options_.depth >= 50; }

  void Stem() {
    channels_ = kWidths[0];
    const BareConv conv{.out = channels_,
                        .kernel = options_.is_small ? 3u : 7u,
                        .stride = options_.is_small ? 1u : 2u};
    ConvNorm("conv1", "bn1", conv);
    layers_.push_back(Plain(LayerKind::kRelu, "relu"));
    if (!options_.is_small) layers_.push_back(MaxPool("maxpool", 3, 2, 1));
  }

  // In the order in which torchvision registers them, which is topological. The shortcut is last.
  void Block(const std::string& prefix, uint32_t width, uint32_t stride) {
    const std::string entrance = layers_.back().name;
    const uint32_t out = has_bottlenecks() ? width * kBottleneckExpansion : width;
    if (has_bottlenecks()) {
      ConvNorm(prefix + "conv1", prefix + "bn1", {.out = width, .kernel = 1});
      layers_.push_back(Plain(LayerKind::kRelu, prefix + "relu1"));
      ConvNorm(prefix + "conv2", prefix + "bn2", {.out = width, .kernel = 3, .stride = stride});
      layers_.push_back(Plain(LayerKind::kRelu, prefix + "relu2"));
      ConvNorm(prefix + "conv3", prefix + "bn3", {.out = out, .kernel = 1});
    } else {
      ConvNorm(prefix + "conv1", prefix + "bn1", {.out = width, .kernel = 3, .stride = stride});
      layers_.push_back(Plain(LayerKind::kRelu, prefix + "relu1"));
      ConvNorm(prefix + "conv2", prefix + "bn2", {.out = width, .kernel = 3});
    }
    const std::string trunk = layers_.back().name;
    std::string shortcut = entrance;
    if (stride != 1 || channels_ != out) {
      shortcut = prefix + "downsample.1";
      ConvNorm(prefix + "downsample.0", shortcut, {.out = out, .kernel = 1, .stride = stride});
      layers_[layers_.size() - 2].inputs = {entrance};
    }
    layers_.push_back(Add(prefix + "add", trunk, shortcut));
    layers_.push_back(Plain(LayerKind::kRelu, prefix + "relu"));
    channels_ = out;
  }

  void ConvNorm(const std::string& conv_name, const std::string& norm_name, const BareConv& conv) {
    layers_.push_back(Conv(conv_name, conv));
    layers_.push_back(Plain(LayerKind::kBatchNorm, norm_name));
  }

  ResNetOptions options_;
  std::vector<LayerSpec> layers_;
  uint32_t channels_ = 0;  // of the last block's output
};

}  // namespace

std::vector<LayerSpec> ResNet(const ResNetOptions& options) { return Builder(options).Build(); }

}  // namespace pando::zoo
