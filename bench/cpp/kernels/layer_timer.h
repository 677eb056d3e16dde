// What `pando bench kernels` asks of this program: times of the layers of the zoo's models on one
// core, and what the core and its memory do at most. GPUs have a separate program, gpu_bench.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/batch.h"
#include "common/float_buffer.h"
#include "common/status.h"
#include "models/network.h"

namespace pando::bench {

// Answers each line of standard input with a line of JSON on standard output, until it ends:
//   work MODEL             the model's layers, and the work of each for one batch
//   MODEL                  a pass: ms of each layer, forward, backward, and of Eigen's product
//   fused multiply-adds    GFLOP/s
//   memcpy                 GB/s
// kInvalidArgument for a model that the zoo does not have.
Status RunLayers(const std::vector<std::string>& models, uint32_t batch);

// [rows, inner] times [inner, columns], `count` times. A convolution is the product of its unfolded
// picture with its weights, once a sample; groups are separate products.
struct MatrixProduct {
  int64_t rows = 0;
  int64_t inner = 0;
  int64_t columns = 0;
  int64_t count = 0;  // 0: the layer is no product
};

// The product by Eigen, for comparison: Pando's kernels use no Eigen. Processor time of this
// thread. The matrices are at hand: nothing is unfolded.
double EigenSeconds(const MatrixProduct& product);

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

// Walks a model's network on one core, as a computing thread does, and takes each layer's time.
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
