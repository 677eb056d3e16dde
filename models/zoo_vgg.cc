// Simonyan and Zisserman 2014, configuration D.
#include <array>

#include "models/zoo_layers.h"

namespace pando::zoo {
namespace {

constexpr uint32_t kPool = 0;
constexpr std::array<uint32_t, 18> kPlan{64,    64,  kPool, 128, 128,   kPool, 256, 256, 256,
                                         kPool, 512, 512,   512, kPool, 512,   512, 512, kPool};

// torchvision numbers the modules; so do tensors' names: "features.28.weight".
std::vector<LayerSpec> Features(bool has_batch_norm) {
  std::vector<LayerSpec> layers;
  auto next_name = [&] { return "features." + std::to_string(layers.size()); };
  for (uint32_t width : kPlan) {
    if (width == kPool) {
      layers.push_back(MaxPool(next_name()));
      continue;
    }
    LayerSpec conv = Conv(next_name(), width, 3, 1);
    conv.init = WeightInit::kKaimingNormalFanOut;
    layers.push_back(conv);
    if (has_batch_norm) layers.push_back(Plain(LayerKind::kBatchNorm, next_name()));
    layers.push_back(Plain(LayerKind::kRelu, next_name()));
  }
  return layers;
}

// torchvision's, after 7 x 7 x 512.
std::vector<LayerSpec> Classifier(uint32_t class_count) {
  constexpr uint32_t kWidth = 4096;
  LayerSpec pool = Plain(LayerKind::kAdaptiveAveragePool, "avgpool");
  pool.out_units = 7;
  std::vector<LayerSpec> layers{pool,
                                Flatten(),
                                Linear("classifier.0", kWidth),
                                Plain(LayerKind::kRelu, "classifier.1"),
                                Dropout("classifier.2", 0.5f),
                                Linear("classifier.3", kWidth),
                                Plain(LayerKind::kRelu, "classifier.4"),
                                Dropout("classifier.5", 0.5f),
                                Linear("classifier.6", class_count)};
  for (LayerSpec& layer : layers) {
    if (layer.kind == LayerKind::kLinear) layer.init = WeightInit::kNormal;
  }
  return layers;
}

// After 1 x 1 x 512. It has PyTorch's default weights: with deviations of 0.01, three layers as
// narrow as these would leave almost nothing of a signal.
std::vector<LayerSpec> SmallClassifier(uint32_t class_count) {
  constexpr uint32_t kWidth = 512;
  return {Flatten(),
          Dropout("classifier.0", 0.5f),
          Linear("classifier.1", kWidth),
          Plain(LayerKind::kRelu, "classifier.2"),
          Dropout("classifier.3", 0.5f),
          Linear("classifier.4", kWidth),
          Plain(LayerKind::kRelu, "classifier.5"),
          Linear("classifier.6", class_count)};
}

}  // namespace

std::vector<LayerSpec> Vgg16(const Vgg16Options& options) {
  std::vector<LayerSpec> layers = Features(options.has_batch_norm);
  const std::vector<LayerSpec> head =
      options.is_small ? SmallClassifier(options.class_count) : Classifier(options.class_count);
  layers.insert(layers.end(), head.begin(), head.end());
  return layers;
}

}  // namespace pando::zoo
