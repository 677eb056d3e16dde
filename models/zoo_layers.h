// Layers as the zoo's files write them, and the model families with separate files. Called by
// models/zoo.cc.
#pragma once

#include <string>
#include <vector>

#include "models/graph.h"

namespace pando::zoo {

LayerSpec Conv(std::string name, uint32_t out, uint32_t kernel, uint32_t padding = 0);
LayerSpec Linear(std::string name, uint32_t out);
LayerSpec MaxPool(std::string name, uint32_t window = 2, uint32_t stride = 2, uint32_t padding = 0);
LayerSpec Dropout(std::string name, float probability);
LayerSpec Flatten();
LayerSpec Plain(LayerKind kind, std::string name);  // of a kind without options
LayerSpec Add(std::string name, std::string a, std::string b);

// A convolution before batch norm, as torchvision's: no bias, Kaiming's normal weights, and padding
// that keeps a picture's size at stride 1.
struct BareConv {
  uint32_t out = 0;
  uint32_t kernel = 1;  // odd
  uint32_t stride = 1;
  uint32_t groups = 1;
};
LayerSpec Conv(std::string name, const BareConv& conv);

// torchvision's `resnetN`; is_small: a 3 x 3 stem without pool, for pictures of about 32 x 32.
struct ResNetOptions {
  uint32_t depth = 18;  // 18, 34, 50, 101
  bool is_small = false;
  uint32_t class_count = 1000;
};
std::vector<LayerSpec> ResNet(const ResNetOptions& options);

// torchvision's `vgg16` and `vgg16_bn`; is_small: two hidden layers of 512 behind the convolutions,
// for 32 x 32 pictures.
struct Vgg16Options {
  bool has_batch_norm = false;
  bool is_small = false;
  uint32_t class_count = 1000;
};
std::vector<LayerSpec> Vgg16(const Vgg16Options& options);

// torchvision's `mobilenet_v2`; is_small: the stem and the second stage keep a picture's size.
struct MobileNetV2Options {
  bool is_small = false;
  uint32_t class_count = 1000;
};
std::vector<LayerSpec> MobileNetV2(const MobileNetV2Options& options);

}  // namespace pando::zoo
