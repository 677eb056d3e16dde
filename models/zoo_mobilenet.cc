// Sandler et al. 2018: inverted residuals with linear bottlenecks.
#include <utility>

#include "models/zoo_layers.h"

namespace pando::zoo {
namespace {

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

class Builder {
 public:
  explicit Builder(const MobileNetV2Options& options) : options_(options) {}

  std::vector<LayerSpec> Build() {
    uint32_t module = 0;
    auto next_prefix = [&] { return "features." + std::to_string(module++) + "."; };
    ConvNormRelu(next_prefix(),
                 {.out = kStemChannels, .kernel = 3, .stride = options_.is_small ? 1u : 2u});
    channels_ = kStemChannels;
    for (const StageSettings& stage : kStages) {
      const uint32_t stride = options_.is_small ? stage.small_stride : stage.stride;
      for (uint32_t block = 0; block < stage.block_count; ++block) {
        Block(next_prefix(), stage, block == 0 ? stride : 1);
      }
    }
    ConvNormRelu(next_prefix(), {.out = kLastChannels, .kernel = 1});
    layers_.push_back(Plain(LayerKind::kGlobalAveragePool, "avgpool"));
    layers_.push_back(Dropout("classifier.0", 0.2f));
    LayerSpec scores = Linear("classifier.1", options_.class_count);
    scores.init = WeightInit::kNormal;
    layers_.push_back(scores);
    return std::move(layers_);
  }

 private:
  // Expand, filter each channel, project; torchvision numbers them conv.0, conv.1, ...
  void Block(const std::string& prefix, const StageSettings& stage, uint32_t stride) {
    const std::string entrance = layers_.back().name;
    const uint32_t width = channels_ * stage.expansion;
    uint32_t module = 0;
    auto next_name = [&] { return prefix + "conv." + std::to_string(module++); };
    if (stage.expansion != 1) ConvNormRelu(next_name() + ".", {.out = width, .kernel = 1});
    ConvNormRelu(next_name() + ".", {.out = width, .kernel = 3, .stride = stride, .groups = width});
    layers_.push_back(Conv(next_name(), BareConv{.out = stage.channels, .kernel = 1}));
    const std::string exit = next_name();
    layers_.push_back(Plain(LayerKind::kBatchNorm, exit));
    if (stride == 1 && channels_ == stage.channels) {
      layers_.push_back(Add(prefix + "add", exit, entrance));
    }
    channels_ = stage.channels;
  }

  void ConvNormRelu(const std::string& prefix, const BareConv& conv) {
    layers_.push_back(Conv(prefix + "0", conv));
    layers_.push_back(Plain(LayerKind::kBatchNorm, prefix + "1"));
    layers_.push_back(Plain(LayerKind::kRelu6, prefix + "2"));
  }

  MobileNetV2Options options_;
  std::vector<LayerSpec> layers_;
  uint32_t channels_ = 0;  // of the last block's output
};

}  // namespace

std::vector<LayerSpec> MobileNetV2(const MobileNetV2Options& options) {
  return Builder(options).Build();
}

}  // namespace pando::zoo
