#include "models/zoo_layers.h"

#include <utility>

namespace pando::zoo {

LayerSpec Conv(std::string name, uint32_t out, uint32_t kernel, uint32_t padding) {
  return {.kind = LayerKind::kConv2d,
          .name = std::move(name),
          .out_units = out,
          .window = kernel,
          .padding = padding};
}

LayerSpec Conv(std::string name, const BareConv& conv) {
  return {.kind = LayerKind::kConv2d,
          .name = std::move(name),
          .out_units = conv.out,
          .window = conv.kernel,
          .stride = conv.stride,
          .padding = conv.kernel / 2,
          .groups = conv.groups,
          .bias = false,
          .init = WeightInit::kKaimingNormalFanOut};
}

LayerSpec Linear(std::string name, uint32_t out) {
  return {.kind = LayerKind::kLinear, .name = std::move(name), .out_units = out};
}

LayerSpec MaxPool(std::string name, uint32_t window, uint32_t stride, uint32_t padding) {
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

LayerSpec Plain(LayerKind kind, std::string name) {
  return {.kind = kind, .name = std::move(name)};
}

LayerSpec Add(std::string name, std::string a, std::string b) {
  return {.kind = LayerKind::kAdd, .name = std::move(name), .inputs = {std::move(a), std::move(b)}};
}

}  // namespace pando::zoo
