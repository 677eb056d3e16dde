// Every operation of networks, declared once. Networks (models/) call these. Each device implements
// them in a separate folder, with the same contract and the same tests.
//
// Shapes in comments are logical: [samples, height, width, channels]. Arrays of activations are
// stored in that order, densely packed, with elements of the device's type, and are passed as
// `void`. Parameters, their gradients, statistics and random factors are floats. Parameters and
// their gradients are in PyTorch's layouts. Gradients are written, not added to except by adds_dx,
// and are sums over samples, never means (P2). Every pointer is to the device's memory
// (kernels/device.h), unless it is called `host`. Parameters and their gradients may begin at any
// float; all other arrays are aligned to 64 bytes.
//
// Every operation runs on the calling thread, or on the device's stream in the order of the calls.
// It allocates nothing. Its result is a pure function of its arguments' values: it does not depend
// on addresses, threads, or the previous content of outputs and scratch (P35).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/batch.h"
#include "common/philox.h"
#include "kernels/device.h"

namespace pando {

// Arrays of activations and of their gradients have this many elements more than their shape,
// because kernels load and store whole vectors. Their values are undefined.
inline constexpr size_t kSlackElements = 64;

// The last part of an operation: max(x, 0), or min(max(x, 0), 6).
enum class Activation : uint8_t { kNone, kRelu, kRelu6 };

// ---------------------------------------------------------------------------------- convolution

// conv2d + bias, then in one pass the operations that often follow: dropout2d's factors, a 2x2 max
// pool, relu. These commute (all are monotone and applied per channel), so any order of them in a
// model is this one operation. The array between them, which is four times larger, is never stored.
struct Conv2dSpec {
  SampleShape input;
  uint32_t out_channels = 1;
  uint32_t kernel = 1;  // square
  uint32_t stride = 1;
  uint32_t padding = 0;
  bool max_pool = false;  // window 2, stride 2; an odd last row or column is omitted
  bool relu = false;
  // Input and output channels are cut into this many equal groups. An output channel reads only its
  // group's inputs. Depthwise: as many groups as input channels.
  uint32_t groups = 1;
  bool has_channel_scale = false;  // whether dropout2d's factors may be given

  SampleShape conv_output() const;  // the convolution alone
  SampleShape output() const;
  size_t weight_size() const;  // [out_channels, in_channels / groups, kernel, kernel]
  bool IsValid() const;
};

template <class Element>
struct Conv2dForwardArgsOf {
  uint32_t sample_count = 0;
  const Element* x = nullptr;            // [samples, input], with slack
  const float* weight = nullptr;         // [out, in / groups, kernel, kernel]
  const float* bias = nullptr;           // [out]; null: none
  const float* channel_scale = nullptr;  // [samples, out], ≥ 0: dropout2d's; null: 1
  Element* y = nullptr;                  // out: [samples, output], with slack
  int32_t* argmax = nullptr;  // out, if max_pool: [samples, output], with slack; for backward
  uint32_t x_channels = 0;    // x's stored channels (StoredChannels); 0: the input's
};
using Conv2dForwardArgs = Conv2dForwardArgsOf<void>;

template <class Element>
struct Conv2dBackwardArgsOf {
  uint32_t sample_count = 0;
  const Element* x = nullptr;  // the argument of forward; the next two too
  const float* weight = nullptr;
  const float* channel_scale = nullptr;
  const Element* y = nullptr;  // made by forward
  const int32_t* argmax = nullptr;
  const Element* dy = nullptr;  // [samples, output], with slack
  Element* dx = nullptr;        // out: [samples, input], with slack; null: not needed (first layer)
  float* dweight = nullptr;     // out: as weight
  float* dbias = nullptr;       // out: as bias; null: not needed
  bool adds_dx = false;         // on a GPU: the result is added to dx
  uint32_t x_channels = 0;      // the argument of forward; unless 0, dx is null
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
  bool relu = false;  // on the result
  bool IsValid() const { return in_features > 0 && out_features > 0; }
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
  const Element* y = nullptr;     // [samples, out]: read if relu
  Element* dy = nullptr;          // [samples, out]: if relu, its mask is applied in place
  Element* dx = nullptr;          // out: [samples, in]; null: not needed
  float* dweight = nullptr;       // out: as weight
  float* dbias = nullptr;         // out: [out]; null: not needed
};
using LinearBackwardArgs = LinearBackwardArgsOf<void>;

size_t LinearScratchBytes(Device device, const LinearSpec& spec, uint32_t sample_count_max);
// REQUIRES: scratch.size() >= LinearScratchBytes(), aligned to 64 bytes.
void LinearForward(Device device, const LinearSpec& spec, const LinearForwardArgs& args,
                   std::span<std::byte> scratch);
void LinearBackward(Device device, const LinearSpec& spec, const LinearBackwardArgs& args,
                    std::span<std::byte> scratch);

// --------------------------------------------------------------------------- batch normalisation

// Normalises each channel over samples and pixels, then adds a residual and applies an activation,
// if there is one. y = activation((x − mean) · inverse_std · weight + bias + residual)
struct BatchNormSpec {
  SampleShape shape;
  float eps = 1e-5f;  // inverse_std = 1 / sqrt(biased variance + eps)
  Activation activation = Activation::kNone;
  bool has_residual = false;  // whether a residual may be given
  bool IsValid() const { return shape.size() > 0 && eps >= 0.0f; }
};

template <class Element>
struct BatchNormForwardArgsOf {  // training: with the statistics of these samples
  uint32_t sample_count = 0;
  const Element* x = nullptr;     // [samples, shape]
  const float* weight = nullptr;  // [channels]; the next one too
  const float* bias = nullptr;
  const Element* residual = nullptr;  // [samples, shape]; null: none
  Element* y = nullptr;               // out: [samples, shape]; may be x or residual
  float* mean = nullptr;              // out: [channels]; the next two too
  float* inverse_std = nullptr;
  float* variance = nullptr;  // unbiased, for running statistics; 0 for a single value
};
using BatchNormForwardArgs = BatchNormForwardArgsOf<void>;

template <class Element>
struct BatchNormInferenceArgsOf {  // with given statistics
  uint32_t sample_count = 0;
  const Element* x = nullptr;     // [samples, shape]
  const float* weight = nullptr;  // [channels]; the next three too
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
  const Element* x = nullptr;     // the argument of forward, not overwritten by its y
  const float* weight = nullptr;  // the argument of forward; the next one too
  const float* bias = nullptr;
  const float* mean = nullptr;  // made by forward; the next two too
  const float* inverse_std = nullptr;
  const Element* y = nullptr;    // read if there is an activation
  Element* dy = nullptr;         // [samples, shape]: may be changed in place
  Element* dx = nullptr;         // out: [samples, shape]; may be dy; null: not needed
  Element* dresidual = nullptr;  // out: [samples, shape]; may be dy unless dx is; null: not needed
  float* dweight = nullptr;      // out: [channels]; the next one too
  float* dbias = nullptr;
};
using BatchNormBackwardArgs = BatchNormBackwardArgsOf<void>;

size_t BatchNormScratchBytes(Device device, const BatchNormSpec& spec);
// REQUIRES for all three: scratch.size() >= BatchNormScratchBytes(), aligned to 64 bytes.
void BatchNormForward(Device device, const BatchNormSpec& spec, const BatchNormForwardArgs& args,
                      std::span<std::byte> scratch);
void BatchNormInference(Device device, const BatchNormSpec& spec,
                        const BatchNormInferenceArgs& args, std::span<std::byte> scratch);
void BatchNormBackward(Device device, const BatchNormSpec& spec, const BatchNormBackwardArgs& args,
                       std::span<std::byte> scratch);

// --------------------------------------------------------------------------- group normalisation

// Normalises per sample and group of channels, over the group's channels and all pixels.
// y = (x − mean) · inverse_std · weight + bias
struct GroupNormSpec {
  SampleShape shape;
  uint32_t groups = 1;  // of equal size
  float eps = 1e-5f;    // inverse_std = 1 / sqrt(biased variance + eps)
  bool IsValid() const {
    return shape.size() > 0 && groups > 0 && shape.channels % groups == 0 && eps >= 0.0f;
  }
};

template <class Element>
struct GroupNormForwardArgsOf {
  uint32_t sample_count = 0;
  const Element* x = nullptr;     // [samples, shape]
  const float* weight = nullptr;  // [channels]; the next one too
  const float* bias = nullptr;
  Element* y = nullptr;   // out: [samples, shape]; may be x
  float* mean = nullptr;  // out: [samples, groups]; the next one too
  float* inverse_std = nullptr;
};
using GroupNormForwardArgs = GroupNormForwardArgsOf<void>;

template <class Element>
struct GroupNormBackwardArgsOf {
  uint32_t sample_count = 0;
  const Element* x = nullptr;     // the argument of forward, not overwritten by its y
  const float* weight = nullptr;  // the argument of forward
  const float* mean = nullptr;    // made by forward; the next one too
  const float* inverse_std = nullptr;
  const Element* dy = nullptr;  // [samples, shape]
  Element* dx = nullptr;        // out: [samples, shape]; may be dy; null: not needed
  float* dweight = nullptr;     // out: [channels]; the next one too
  float* dbias = nullptr;
};
using GroupNormBackwardArgs = GroupNormBackwardArgsOf<void>;

size_t GroupNormScratchBytes(Device device, const GroupNormSpec& spec, uint32_t sample_count_max);
// REQUIRES: scratch.size() >= GroupNormScratchBytes(), aligned to 64 bytes.
void GroupNormForward(Device device, const GroupNormSpec& spec, const GroupNormForwardArgs& args,
                      std::span<std::byte> scratch);
void GroupNormBackward(Device device, const GroupNormSpec& spec, const GroupNormBackwardArgs& args,
                       std::span<std::byte> scratch);

// --------------------------------------------------------------------------------- element-wise

// y = activation(x).  May work in place.
void ActivationForward(Device device, size_t count, const void* x, Activation activation, void* y);
// dx = dy if the activation passes it, else 0. dx may be dy. Without an activation y is not read.
void ActivationBackward(Device device, size_t count, const void* y, Activation activation,
                        const void* dy, void* dx);

// y = activation(a + b); y may be a or b. Its gradient, for both a and b, is ActivationBackward's.
void AddForward(Device device, size_t count, const void* a, const void* b, Activation activation,
                void* y);

// y += x: sums the gradients of an array that several layers read.
void AddInPlace(Device device, size_t count, const void* x, void* y);

// y = x · factor, element by element; dropout forward, and backward with dy for x. `factor` is
// aligned to 16 bytes, also in the next one.
void Multiply(Device device, size_t count, const void* x, const float* factor, void* y);
// y[s, h, w, c] = x[s, h, w, c] · factor[s, c]; dropout2d, both forward and backward.
void MultiplyChannels(Device device, uint32_t sample_count, const SampleShape& shape, const void* x,
                      const float* factor, void* y);

// y = x.
void Copy(Device device, size_t count, const void* x, void* y);
// y = x · factor, for floats.
void ScaleFloats(Device device, size_t count, const float* x, float factor, float* y);
// x = x · factor, for floats; `factor` is read when the kernel runs.
void ScaleFloatsInPlace(Device device, size_t count, const float* factor, float* x);
// y += x, for floats. It has the same bits on every device, since several devices add gradients.
void AddFloats(Device device, size_t count, const float* x, float* y);

// A pass's values in the device's memory, so that its launches are the same each time.
struct PassNumbers {
  uint64_t step = 0;  // this and the next select a dropout layer's random numbers (P37)
  uint32_t micro_batch = 0;
  float loss_scale = 1;  // for half floats: the factor of activations' gradients
  float inverse_loss_scale = 1;
};
// factor[i] = 0 with the given probability, else 1 / (1 − probability). The i % 8-th 16-bit uniform
// of Philox block (i / 8, step, micro_batch) decides element i. The key has (seed, kDropout, layer
// name). `numbers` are read when the kernel runs.
void DropoutFactors(Device device, PhiloxKey key, const PassNumbers* numbers, float probability,
                    size_t count, float* factor);

// --------------------------------------------------------------------------------------- pooling

struct Pool2dSpec {
  SampleShape input;
  uint32_t window = 2;  // square; windows that exceed the padded input are omitted
  uint32_t stride = 2;
  uint32_t padding = 0;  // at most window / 2; never the largest, and 0 in an average
  SampleShape output() const;
};

// argmax: out, [samples, output]: the first largest element, as pixel y · width + x of the input.
void MaxPoolForward(Device device, const Pool2dSpec& spec, uint32_t sample_count, const void* x,
                    void* y, int32_t* argmax);
void MaxPoolBackward(Device device, const Pool2dSpec& spec, uint32_t sample_count,
                     const int32_t* argmax, const void* dy, void* dx);
void AveragePoolForward(Device device, const Pool2dSpec& spec, uint32_t sample_count, const void* x,
                        void* y);
void AveragePoolBackward(Device device, const Pool2dSpec& spec, uint32_t sample_count,
                         const void* dy, void* dx);

// Averages over out_height x out_width windows of almost equal size, as in PyTorch: window i of n
// over `size` pixels is [i · size / n, ceil((i + 1) · size / n)). They may overlap. One window is
// the global average.
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

// ------------------------------------------------------------------------- in and out of a network

// A batch in the device's memory.
struct DeviceBatch {
  SampleShape shape;
  uint32_t sample_count = 0;
  const int32_t* labels = nullptr;     // [samples]
  const float* byte_values = nullptr;  // for pictures: [channels, 256], the value of each byte
  const uint8_t* bytes = nullptr;      // pictures: [samples, shape]
  const PictureMove* moves = nullptr;  // for pictures: [samples]; null: no moves
  const float* values = nullptr;       // tables: [samples, shape]; either this or `bytes` is null
};
// Returns the channels with which an input of `channels` is stored, if only convolutions without
// groups read it. On a GPU with elements of 16 bits cuDNN's fastest engines for 3 to 7 channels
// need 8, and would copy x in each pass into the workspace (196 MiB for 256 pictures of 224 x 224).
// So the input is stored with 8 channels, of which the last ones are 0.
uint32_t StoredChannels(Device device, uint32_t channels);

// Imports a batch into the physical layout: pictures are moved and normalised, tables copied.
// `channels` is the batch's number, or any number if it has one channel, which is then repeated.
// x: out, [samples, height, width, stored_channels], with slack.  labels: out, [samples].
// `stored_channels` is `channels` (0 means this), or StoredChannels().
void ImportBatch(Device device, const DeviceBatch& batch, uint32_t channels, void* x,
                 int32_t* labels, uint32_t stored_channels = 0);
// Does the same for a batch in the host's memory, which may be reused when this returns.
void ImportBatch(Device device, const Batch& batch, uint32_t channels, void* x, int32_t* labels,
                 uint32_t stored_channels = 0);
// Makes the batch's DeviceBatch::byte_values, in PyTorch's order of operations: ToTensor's
// division, then Normalize. Empty for tables.
std::vector<float> MakeByteValues(const Batch& batch);

// Converts elements to floats in the host's memory. Waits for earlier launches.
void ExportFloats(Device device, size_t count, const void* x, float* host);

// y[s, column, row] = x[s, row, column]: PyTorch flattens channels first, so [pixels, channels]
// becomes [channels, pixels], and in backward the other way.
void TransposeSamples(Device device, uint32_t sample_count, uint32_t rows, uint32_t columns,
                      const void* x, void* y);

// A class is ahead of another if its logit is greater, or equal and its index smaller.
struct CrossEntropyScore {
  double loss_sum = 0;         // over samples, in an order that depends only on their number
  uint32_t correct_count = 0;  // samples with no class ahead of the label
  uint32_t top5_count = 0;     // samples with at most four classes ahead
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
// Softmax cross-entropy against (1 − label_smoothing) · (the label alone) + label_smoothing · (the
// uniform distribution), as in PyTorch.
size_t CrossEntropyScratchBytes(Device device, uint32_t sample_count_max);
// REQUIRES: scratch.size() >= CrossEntropyScratchBytes(), aligned to 64 bytes.
void SoftmaxCrossEntropy(Device device, const CrossEntropyArgs& args, std::span<std::byte> scratch);
// Writes the sum of losses and the count of correct samples, as floats. loss_and_correct: [2].
void ScoreToFloats(Device device, const CrossEntropyScore* score, float* loss_and_correct);

// ------------------------------------------------------------------------- lists of the operations

// The launchers (ops.cc) and the devices' declarations (cpu/cpu_ops.h, cuda/cuda_ops.h) are made
// from these lists. So a new operation is declared here, and written once per device. First come
// those that take (device, spec, args, scratch), and those whose scratch depends on the samples.
#define PANDO_OPERATIONS_WITH_ARGS(X)  \
  X(Conv2dForward, Conv2dSpec)         \
  X(Conv2dBackward, Conv2dSpec)        \
  X(LinearForward, LinearSpec)         \
  X(LinearBackward, LinearSpec)        \
  X(BatchNormForward, BatchNormSpec)   \
  X(BatchNormInference, BatchNormSpec) \
  X(BatchNormBackward, BatchNormSpec)  \
  X(GroupNormForward, GroupNormSpec)   \
  X(GroupNormBackward, GroupNormSpec)
#define PANDO_OPERATIONS_WITH_SCRATCH(X) X(Conv2d) X(Linear) X(GroupNorm)
// clang-format off
#define PANDO_OTHER_OPERATIONS(X)                                                                \
  X(BatchNormScratchBytes) X(ActivationForward) X(ActivationBackward) X(AddForward)              \
  X(AddInPlace) X(Multiply) X(MultiplyChannels) X(Copy) X(ScaleFloats) X(ScaleFloatsInPlace)     \
  X(AddFloats) X(DropoutFactors) X(MaxPoolForward) X(MaxPoolBackward) X(AveragePoolForward)      \
  X(AveragePoolBackward) X(AdaptiveAveragePoolForward) X(AdaptiveAveragePoolBackward)            \
  X(ExportFloats) X(TransposeSamples) X(CrossEntropyScratchBytes) X(SoftmaxCrossEntropy)         \
  X(ScoreToFloats)
// clang-format on

}  // namespace pando
