// The part of `pando bench kernels` in this program: times of the layers of the zoo's models on one
// core, and the limits of the core and its memory. GPUs have a separate program, gpu_bench.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/batch.h"
#include "common/float_buffer.h"
#include "common/result.h"
#include "models/network.h"

namespace pando::bench {

// Answers each line of standard input with a line of JSON on standard output, until the end:
//   work MODEL             the model's layers, and the work of each for one batch
//   MODEL                  a pass: ms of each layer, forward, backward, and of Eigen's product
//   fused multiply-adds    GFLOP/s
//   memcpy                 GB/s
// kInvalidArgument for a model that the zoo does not have.
Status RunLayers(const std::vector<std::string>& models, uint32_t batch);

// MatrixProduct is [rows, inner] times [inner, columns], `count` times. A convolution is the
// product of its unfolded picture with its weights, once per sample; groups are separate products.
struct MatrixProduct {
  int64_t rows = 0;
  int64_t inner = 0;
  int64_t columns = 0;
  int64_t count = 0;  // 0: the layer is not a product
};

// Measures the product with Eigen, for comparison: Pando's kernels use no Eigen. It counts
// processor time of this thread. The matrices exist already, so nothing is unfolded.
double EigenSeconds(const MatrixProduct& product);

// LayerWork is a layer's least work for one batch. Layers that are computed together count as one.
struct LayerWork {
  std::string names;  // "conv1 bn1 relu"
  std::string kind;   // the kind of the first layer: "Conv2d 3x3"
  double forward_flops = 0.0;
  double backward_flops = 0.0;
  // Each array is read or written once: activations and parameters; in backward also gradients.
  double forward_bytes = 0.0;
  double backward_bytes = 0.0;
  MatrixProduct product;  // of the first layer's forward pass
};
struct LayerTime {
  double forward_s = 0.0;
  double backward_s = 0.0;
};

// LayerTimer runs a model's network on one core, as a computing thread does, and times each layer.
class LayerTimer {
 public:
  // Makes a batch of noise, and version 0's parameters. kInvalidArgument: there is no such model.
  static Result<LayerTimer> Create(const std::string& model, uint32_t batch);
  const std::vector<LayerWork>& work() const { return work_; }
  // Runs one forward and one backward; returns processor time of this thread, by layer.
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
