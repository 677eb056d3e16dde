// Layers as the zoo writes them, and the families of zoo_residual.cc. Called by models/zoo.cc.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/graph.h"

namespace pando::zoo {

// Of a kind without options.
inline LayerSpec Plain(LayerKind kind, std::string name) {
  return {.kind = kind, .name = std::move(name)};
}
inline LayerSpec Relu(std::string name) { return Plain(LayerKind::kRelu, std::move(name)); }

inline LayerSpec Conv(std::string name, uint32_t out, uint32_t kernel, uint32_t padding = 0) {
  return {.kind = LayerKind::kConv2d,
          .name = std::move(name),
          .out_units = out,
          .window = kernel,
          .padding = padding};
}

inline LayerSpec Linear(std::string name, uint32_t out) {
  return {.kind = LayerKind::kLinear, .name = std::move(name), .out_units = out};
}

inline LayerSpec MaxPool(std::string name, uint32_t window = 2, uint32_t stride = 2,
                         uint32_t padding = 0) {
  return {.kind = LayerKind::kMaxPool2d,
          .name = std::move(name),
          .window = window,
          .stride = stride,
          .padding = padding};
}

inline LayerSpec Dropout(std::string name, float probability) {
  return {.kind = LayerKind::kDropout, .name = std::move(name), .probability = probability};
}

// By name: torchvision's `resnetN`; with "-cifar" a 3 x 3 stem without pool, for pictures of about
// 32 x 32.
std::vector<LayerSpec> ResNet(const std::string& name, uint32_t class_count);
// torchvision's `mobilenet_v2`; with "-small" the stem and the second stage keep a picture's size.
std::vector<LayerSpec> MobileNetV2(const std::string& name, uint32_t class_count);

}  // namespace pando::zoo
