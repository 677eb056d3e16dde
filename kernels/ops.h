// Every operation that a network is made of, declared once. Networks (models/) call these; each
// device implements them in a folder of its own, with the same contract and the same tests.
//
// Shapes in comments are logical: [samples, height, width, channels]; arrays of activations lie so,
// densely packed, and hold elements of the device's type: they are passed as `void`. Parameters,
// their gradients, statistics and random factors are floats. Parameters and their gradients lie in
// PyTorch's layouts. Gradients are written, not added to, and are sums over samples, never means
// (P2). Every pointer is the device's own memory (kernels/device.h), but where `host` is said.
// Parameters and their gradients may begin at any float; all other arrays are aligned to 64 bytes.
//
// Promises of every operation: it runs on the calling thread, or on the device's stream in the
// order of the calls; it allocates nothing; and its result is a pure function of its arguments'
// values: not of addresses, threads, or what was in the outputs and in the scratch before (P35).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/batch.h"
#include "common/philox.h"
#include "kernels/device.h"

namespace pando {

// Arrays of activations and of their gradients are this much longer than their shape says: kernels
// load and store whole vectors. What lies there means nothing.
inline constexpr size_t kSlackElements = 64;

// What an operation that is followed by one does to its result: max(x, 0), min(max(x, 0), 6).
enum class Activation : uint8_t { kNone, kRelu, kRelu6 };

// ---------------------------------------------------------------------------------- convolution

// conv2d + bias, then in one go what often follows: dropout2d's factors, a 2x2 max pool, relu.
// These commute with one another (all are monotone and applied per channel), so any order of them
// in a model is this one operation, and the four times larger array between them is never made.
struct Conv2dSpec {
  SampleShape input;
  uint32_t out_channels = 1;
  uint32_t kernel = 1;  // square
  uint32_t stride = 1;
  uint32_t padding = 0;
  bool max_pool = false;  // window 2, stride 2; an odd last row or column is left out
  bool relu = false;
  // Input and output channels are cut into this many equal groups; each output channel sees its
  // group's inputs alone. Depthwise: as many groups as input channels.
  uint32_t groups = 1;
  bool has_channel_scale = false;  // dropout2d's factors may be given

  SampleShape conv_output() const;  // of the convolution alone
  SampleShape output() const;
  size_t weight_size() const;  // [out_channels, in_channels / groups, kernel, kernel]
};

template <class Element>
struct Conv2dForwardArgsOf {
  uint32_t sample_count = 0;
  const Element* x = nullptr;            // [samples, input], with slack
  const float* weight = nullptr;         // [out, in / groups, kernel, kernel]
  const float* bias = nullptr;           // [out]; null: none
  const float* channel_scale = nullptr;  // [samples, out], ≥ 0: dropout2d's; null: 1
  Element* y = nullptr;                  // out: [samples, output], with slack
  int32_t* argmax = nullptr;  // out, where max_pool: [samples, output], with slack; for backward
};
using Conv2dForwardArgs = Conv2dForwardArgsOf<void>;

template <class Element>
struct Conv2dBackwardArgsOf {
  uint32_t sample_count = 0;
  const Element* x = nullptr;  // as given to forward, and so the next three
  const float* weight = nullptr;
  const float* channel_scale = nullptr;
  const Element* y = nullptr;  // as made by forward
  const int32_t* argmax = nullptr;
  const Element* dy = nullptr;  // [samples, output], with slack
  Element* dx = nullptr;        // out: [samples, input], with slack; null: not wanted (first layer)
  float* dweight = nullptr;     // out: as weight
  float* dbias = nullptr;       // out: as bias; null: not wanted
};
using Conv2dBackwardArgs = Conv2dBackwardArgsOf<void>;

size_t Conv2dScratchBytes(Device device, const Conv2dSpec& spec, uint32_t sample_count_max);
// REQUIRES: scratch.size() >= Conv2dScratchBytes(), aligned to 64 bytes.
void Conv2dForward(Device device, const Conv2dSpec& spec, const Conv2dForwardArgs& args,
                   std::span<std::byte> scratch);
void Conv2dBackward(Device device, const Conv2dSpec& spec, const Conv2dBackwardArgs& args,
                    std::span<std::byte> scratch);

// --------------------------------------------------------------------------------------- linear

struct LinearSpec {
  uint32_t in_features = 1;
  uint32_t out_features = 1;
  bool relu = false;  // of the result
};

template <class Element>
struct LinearForwardArgsOf {  // y = x · weightᵀ + bias
  uint32_t sample_count = 0;
  const Element* x = nullptr;     // [samples, in]
  const float* weight = nullptr;  // [out, in]
  const float* bias = nullptr;    // [out]; null: none
  Element* y = nullptr;           // out: [samples, out]
};
using LinearForwardArgs = LinearForwardArgsOf<void>;

template <class Element>
struct LinearBackwardArgsOf {
  uint32_t sample_count = 0;
  const Element* x = nullptr;     // [samples, in]
  const float* weight = nullptr;  // [out, in]
  const Element* y = nullptr;     // [samples, out]: read where relu
  Element* dy = nullptr;          // [samples, out]: where relu, its mask is applied in place
  Element* dx = nullptr;          // out: [samples, in]; null: not wanted
  float* dweight = nullptr;       // out: as weight
  float* dbias = nullptr;         // out: [out]; null: not wanted
};
using LinearBackwardArgs = LinearBackwardArgsOf<void>;

size_t LinearScratchBytes(Device device, const LinearSpec& spec, uint32_t sample_count_max);
// REQUIRES: scratch.size() >= LinearScratchBytes(), aligned to 64 bytes.
void LinearForward(Device device, const LinearSpec& spec, const LinearForwardArgs& args,
                   std::span<std::byte> scratch);
void LinearBackward(Device device, const LinearSpec& spec, const LinearBackwardArgs& args,
                    std::span<std::byte> scratch);

// --------------------------------------------------------------------------- batch normalisation

// Per channel over samples and pixels, then what often follows: a residual's addition, an
// activation.  y = activation((x − mean) · inverse_std · weight + bias + residual)
struct BatchNormSpec {
  SampleShape shape;
  float eps = 1e-5f;  // inverse_std = 1 / sqrt(biased variance + eps)
  Activation activation = Activation::kNone;
};

template <class Element>
struct BatchNormForwardArgsOf {  // training: with the statistics of these samples
  uint32_t sample_count = 0;
  const Element* x = nullptr;     // [samples, shape]
  const float* weight = nullptr;  // [channels], and so the next
  const float* bias = nullptr;
  const Element* residual = nullptr;  // [samples, shape]; null: none
  Element* y = nullptr;               // out: [samples, shape]; may be x or residual
  float* mean = nullptr;              // out: [channels], and so the next two
  float* inverse_std = nullptr;
  float* variance = nullptr;  // unbiased, for running statistics; 0 where there is one value alone
};
using BatchNormForwardArgs = BatchNormForwardArgsOf<void>;

template <class Element>
struct BatchNormInferenceArgsOf {  // with given statistics
  uint32_t sample_count = 0;
  const Element* x = nullptr;     // [samples, shape]
  const float* weight = nullptr;  // [channels], and so the next three
  const float* bias = nullptr;
  const float* mean = nullptr;
  const float* variance = nullptr;
  const Element* residual = nullptr;  // [samples, shape]; null: none
  Element* y = nullptr;               // out: [samples, shape]; may be x or residual
};
using BatchNormInferenceArgs = BatchNormInferenceArgsOf<void>;

template <class Element>
struct BatchNormBackwardArgsOf {
  uint32_t sample_count = 0;
  const Element* x = nullptr;     // as given to forward: not overwritten by its y
  const float* weight = nullptr;  // as given to forward
  const float* mean = nullptr;    // as made by forward, and so the next two
  const float* inverse_std = nullptr;
  const Element* y = nullptr;    // read where there is an activation
  Element* dy = nullptr;         // [samples, shape]: may be changed in place
  Element* dx = nullptr;         // out: [samples, shape]; may be dy; null: not wanted
  Element* dresidual = nullptr;  // out: [samples, shape]; may be dy unless dx is; null: not wanted
  float* dweight = nullptr;      // out: [channels], and so the next
  float* dbias = nullptr;
};
using BatchNormBackwardArgs = BatchNormBackwardArgsOf<void>;

size_t BatchNormScratchBytes(Device device, const BatchNormSpec& spec);
// REQUIRES of all three: scratch.size() >= BatchNormScratchBytes(), aligned to 64 bytes.
void BatchNormForward(Device device, const BatchNormSpec& spec, const BatchNormForwardArgs& args,
                      std::span<std::byte> scratch);
void BatchNormInference(Device device, const BatchNormSpec& spec,
                        const BatchNormInferenceArgs& args, std::span<std::byte> scratch);
void BatchNormBackward(Device device, const BatchNormSpec& spec, const BatchNormBackwardArgs& args,
                       std::span<std::byte> scratch);

// --------------------------------------------------------------------------------- element-wise

// y = max(x, 0).  May work in place.
void ReluForward(Device device, size_t count, const void* x, void* y);
// dx = y > 0 ? dy : 0.  May work in place.
void ReluBackward(Device device, size_t count, const void* y, const void* dy, void* dx);

// y = min(max(x, 0), 6).  May work in place.
void Relu6Forward(Device device, size_t count, const void* x, void* y);
// dx = 0 < y < 6 ? dy : 0.  May work in place.
void Relu6Backward(Device device, size_t count, const void* y, const void* dy, void* dx);

// y = activation(a + b); y may be a or b.
void AddForward(Device device, size_t count, const void* a, const void* b, Activation activation,
                void* y);
// dx = dy where the activation passes it, else 0: the gradient of a and of b alike. dx may be dy.
void AddBackward(Device device, size_t count, const void* y, Activation activation, const void* dy,
                 void* dx);

// y += x: sums the gradients of an array that several layers read.
void AddInPlace(Device device, size_t count, const void* x, void* y);

// y = x · factor, element by element; dropout forward, and backward with dy for x.
void Multiply(Device device, size_t count, const void* x, const float* factor, void* y);
// y[s, h, w, c] = x[s, h, w, c] · factor[s, c]; dropout2d, forward and backward alike.
void MultiplyChannels(Device device, uint32_t sample_count, const SampleShape& shape, const void* x,
                      const float* factor, void* y);

// y = x.
void Copy(Device device, size_t count, const void* x, void* y);
// y = x · factor, of floats.
void ScaleFloats(Device device, size_t count, const float* x, float factor, float* y);
// x = x · factor, of floats; `factor` is read when the kernel runs.
void ScaleFloatsInPlace(Device device, size_t count, const float* factor, float* x);
// y += x, of floats.  Bit for bit the same on every device: sums of gradients are added on several.
void AddFloats(Device device, size_t count, const float* x, float* y);

// What a pass is given in the device's memory, so that its launches are the same each time.
struct PassNumbers {
  uint64_t step = 0;  // this and the next: which random numbers a dropout layer draws (P37)
  uint32_t micro_batch = 0;
  float loss_scale = 1;  // of half floats: gradients of activations are so many times larger
  float inverse_loss_scale = 1;
};
// factor[i] = 0 with the given probability, else 1 / (1 − probability). Element i is decided by the
// i % 8-th 16-bit uniform of Philox block (i / 8, step, micro_batch); the key is made of (seed,
// kDropout, layer name). `numbers` are read when the kernel runs.
void DropoutFactors(Device device, PhiloxKey key, const PassNumbers* numbers, float probability,
                    size_t count, float* factor);

// --------------------------------------------------------------------------------------- pooling

struct Pool2dSpec {
  SampleShape input;
  uint32_t window = 2;  // square; windows that would stick out of the padded input are left out
  uint32_t stride = 2;
  uint32_t padding = 0;  // at most window / 2; never largest, and 0 to an average
  SampleShape output() const;
};

// argmax: out, [samples, output]: the first largest element, as its pixel y · width + x of input.
void MaxPoolForward(Device device, const Pool2dSpec& spec, uint32_t sample_count, const void* x,
                    void* y, int32_t* argmax);
void MaxPoolBackward(Device device, const Pool2dSpec& spec, uint32_t sample_count,
                     const int32_t* argmax, const void* dy, void* dx);
void AveragePoolForward(Device device, const Pool2dSpec& spec, uint32_t sample_count, const void* x,
                        void* y);
void AveragePoolBackward(Device device, const Pool2dSpec& spec, uint32_t sample_count,
                         const void* dy, void* dx);

// Averages over out_height x out_width windows of almost equal size, as PyTorch cuts them: window i
// of n over `size` pixels is [i · size / n, ceil((i + 1) · size / n)). They may overlap.
struct AdaptivePool2dSpec {
  SampleShape input;
  uint32_t out_height = 1;
  uint32_t out_width = 1;
  SampleShape output() const;
};

void AdaptiveAveragePoolForward(Device device, const AdaptivePool2dSpec& spec,
                                uint32_t sample_count, const void* x, void* y);
void AdaptiveAveragePoolBackward(Device device, const AdaptivePool2dSpec& spec,
                                 uint32_t sample_count, const void* dy, void* dx);
// To one pixel.  x: [samples, shape]; y: [samples, 1, 1, channels].
void GlobalAveragePoolForward(Device device, uint32_t sample_count, const SampleShape& shape,
                              const void* x, void* y);
void GlobalAveragePoolBackward(Device device, uint32_t sample_count, const SampleShape& shape,
                               const void* dy, void* dx);

// ------------------------------------------------------------------------- in and out of a network

// A batch in the device's memory.
struct DeviceBatch {
  SampleShape shape;
  uint32_t sample_count = 0;
  const int32_t* labels = nullptr;     // [samples]
  const float* byte_values = nullptr;  // of pictures: [channels, 256], what each byte becomes
  const uint8_t* bytes = nullptr;      // pictures: [samples, shape]
  const PictureMove* moves = nullptr;  // of pictures: [samples]; null: none is moved
  const float* values = nullptr;       // tables: [samples, shape]; one of the two is null
};
// A batch into the physical layout: pictures moved and normalised, tables copied.
// `channels`: the batch's own, or any number where it has one: that one is repeated.
// x: out, [samples, height, width, channels], with slack.  labels: out, [samples].
void ImportBatch(Device device, const DeviceBatch& batch, uint32_t channels, void* x,
                 int32_t* labels);
// The same of one in the host's memory, which is free again when it returns.
void ImportBatch(Device device, const Batch& batch, uint32_t channels, void* x, int32_t* labels);
// DeviceBatch::byte_values of it, in PyTorch's order of operations: ToTensor's division, then
// Normalize. Empty of tables.
std::vector<float> ByteValuesOf(const Batch& batch);
// Elements as floats of the host's memory; waits for what has been launched before.
void ExportFloats(Device device, size_t count, const void* x, float* host);

// PyTorch flattens channels first.  x: [samples, shape]; y: [samples, channels · height · width].
void FlattenForward(Device device, uint32_t sample_count, const SampleShape& shape, const void* x,
                    void* y);
void FlattenBackward(Device device, uint32_t sample_count, const SampleShape& shape, const void* dy,
                     void* dx);

// A class is ahead of another if its logit is greater, or equal and its index smaller.
struct CrossEntropyScore {
  double loss_sum = 0;         // over samples, in an order that their number decides
  uint32_t correct_count = 0;  // samples with no class ahead of the label
  uint32_t top5_count = 0;     // samples with at most four
};
struct CrossEntropyArgs {
  uint32_t sample_count = 0;
  uint32_t class_count = 1;
  float label_smoothing = 0;
  const void* logits = nullptr;           // [samples, classes]
  const int32_t* labels = nullptr;        // [samples], in [0, class_count)
  const float* gradient_scale = nullptr;  // read when the kernel runs; null: 1
  void* dlogits = nullptr;                // out: the gradient of the sum, times gradient_scale
  CrossEntropyScore* score = nullptr;     // out
};
// Softmax cross-entropy against (1 − label_smoothing) · (the label alone) + label_smoothing · (all
// classes alike), as PyTorch's.
size_t CrossEntropyScratchBytes(Device device, uint32_t sample_count_max);
// REQUIRES: scratch.size() >= CrossEntropyScratchBytes(), aligned to 64 bytes.
void SoftmaxCrossEntropy(Device device, const CrossEntropyArgs& args, std::span<std::byte> scratch);
// Sum of the losses and count of the correct, rounded to floats.  loss_and_correct: out, [2].
void ScoreToFloats(Device device, const CrossEntropyScore* score, float* loss_and_correct);

}  // namespace pando
