// What each kind of layer makes of the shapes that enter it, and the tensors it has. Called by
// Graph::Build.
#pragma once

#include <string>
#include <vector>

#include "models/graph.h"

namespace pando {

// The most values of a sample, and of what a layer makes of one: 4 GiB.
inline constexpr uint64_t kValuesMax = uint64_t{1} << 30;
bool IsWithinValuesMax(const SampleShape& shape);

// kInvalidArgument: names the model, the layer, and what it would need.
Status LayerError(const std::string& model, const LayerSpec& spec, const std::string& what);

// "model m: layer 'fc' gets 4 x 4 x 1 (height x width x channels) but needs 1 x 1 x features"; of a
// model that comes with the program, what to do.
Status DoesNotFit(const std::string& model, const LayerSpec& spec, const SampleShape& in,
                  const std::string& wanted);

// The shape that leaves the layer; kInvalidArgument when it cannot take what enters.
Result<SampleShape> OutputShape(const std::string& model, const LayerSpec& spec,
                                const std::vector<SampleShape>& inputs);

// Appends the layer's tensors, in PyTorch's order.
// REQUIRES: `in` fits the layer.
void AppendTensors(const LayerSpec& spec, const SampleShape& in, std::vector<TensorSpec>* tensors);

}  // namespace pando
