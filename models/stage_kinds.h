// The kinds of stages: each calls the operations of kernels/ops.h. Made by models/stage.cc.
#pragma once

#include <memory>

#include "models/stage.h"

namespace pando {

// Where a layer's tensors lie in the flat vector.
struct WeightAndBias {
  size_t weight = 0;
  size_t bias = 0;
  bool has_bias = true;
};
struct BatchNormTensors {
  size_t weight = 0;
  size_t bias = 0;
  size_t mean = 0;
  size_t variance = 0;
};

// A convolution with the dropout2d (null: none), 2x2 max pool and relu that follow it.
std::unique_ptr<Stage> MakeConvStage(const Conv2dSpec& spec, const WeightAndBias& at, Device device,
                                     const LayerSpec* dropout2d);
std::unique_ptr<Stage> MakeLinearStage(const LinearSpec& spec, const WeightAndBias& at,
                                       Device device);
// has_residual: the second input is added before the activation.
std::unique_ptr<Stage> MakeBatchNormStage(const BatchNormSpec& spec, const BatchNormTensors& at,
                                          Device device, bool has_residual);
std::unique_ptr<Stage> MakeAddStage(SampleShape shape, Activation activation);
std::unique_ptr<Stage> MakeActivationStage(SampleShape shape, Activation activation);
std::unique_ptr<Stage> MakeDropoutStage(const LayerSpec& spec, SampleShape shape);
std::unique_ptr<Stage> MakeMaxPoolStage(const Pool2dSpec& spec);
std::unique_ptr<Stage> MakeAveragePoolStage(const Pool2dSpec& spec);
std::unique_ptr<Stage> MakeAdaptiveAveragePoolStage(const AdaptivePool2dSpec& spec);
std::unique_ptr<Stage> MakeGlobalAveragePoolStage(SampleShape shape);
std::unique_ptr<Stage> MakeFlattenStage(SampleShape shape);

}  // namespace pando
