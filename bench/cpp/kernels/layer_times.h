// LayerTimer walks a model's network on one core, as a computing thread does, and takes each
// layer's time. Used by layers.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/cpp/kernels/eigen_product.h"
#include "common/batch.h"
#include "common/float_buffer.h"
#include "common/status.h"
#include "models/network.h"

namespace pando::bench {

// What a layer has to do at least, for one batch: layers that are computed in one go are one.
struct LayerWork {
  std::string names;  // "conv1 bn1 relu"
  std::string kind;   // of the first of them: "Conv2d 3x3"
  double forward_flops = 0.0;
  double backward_flops = 0.0;
  // Each array read or written once: activations and parameters, and in backward their gradients.
  double forward_bytes = 0.0;
  double backward_bytes = 0.0;
  MatrixProduct product;  // of the forward pass of the first of them
};
struct LayerTime {
  double forward_s = 0.0;
  double backward_s = 0.0;
};

class LayerTimer {
 public:
  // A batch of noise, and the parameters of version 0. kInvalidArgument for what is no model.
  static Result<LayerTimer> Create(const std::string& model, uint32_t batch);
  const std::vector<LayerWork>& work() const { return work_; }
  // One forward and one backward; processor time of this thread, by layer.
  std::vector<LayerTime> Pass();

 private:
  LayerTimer(const Model& model, SampleShape input, uint32_t batch);

  std::vector<LayerWork> work_;
  Normalisation normalisation_;
  Batch batch_;
  FloatBuffer parameters_;
  FloatBuffer gradients_;
  Network network_;
};

}  // namespace pando::bench
