// Every operation that a network is made of, declared once. Networks (models/) call these; each
// device implements them in a folder of its own, with the same contract and the same tests.
//
// Shapes in comments are logical: [samples, height, width, channels]. The physical layout between
// operations is the device's choice; on the CPU it is the logical one, densely packed.
// Parameters and their gradients lie in PyTorch's layouts. Gradients are written, not added to, and
// are sums over samples, never means (P2).
//
// Promises of every operation: it runs on the calling thread, allocates nothing, and its result is
// a pure function of its arguments' values: not of addresses, threads, or what was in the outputs
// and in the scratch before (P35).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/batch.h"
#include "common/philox.h"

namespace pando {

// Where arrays lie and kernels run. Passed first to every operation, which switches on its kind
// once: a launch costs no virtual call and a new device is a new case in ops.cc.
enum class DeviceKind : uint8_t { kCpu };
struct Device {
  DeviceKind kind = DeviceKind::kCpu;
};

// Arrays of activations and of their gradients are this much longer than their shape says: kernels
// load and store whole vectors. What lies there means nothing.
inline constexpr size_t kSlackFloats = 64;

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

  SampleShape conv_output() const;  // of the convolution alone
  SampleShape output() const;
  size_t weight_size() const;  // [out_channels, in_channels, kernel, kernel]
};

struct Conv2dForwardArgs {
  uint32_t sample_count = 0;
  const float* x = nullptr;              // [samples, input], with slack
  const float* weight = nullptr;         // [out, in, kernel, kernel]
  const float* bias = nullptr;           // [out]
  const float* channel_scale = nullptr;  // [samples, out], ≥ 0: dropout2d's; null: 1
  float* y = nullptr;                    // out: [samples, output], with slack
  int32_t* argmax = nullptr;  // out, where max_pool: [samples, output], with slack; for backward
};

struct Conv2dBackwardArgs {
  uint32_t sample_count = 0;
  const float* x = nullptr;  // as given to forward, and so the next three
  const float* weight = nullptr;
  const float* channel_scale = nullptr;
  const float* y = nullptr;  // as made by forward
  const int32_t* argmax = nullptr;
  const float* dy = nullptr;  // [samples, output], with slack
  float* dx = nullptr;        // out: [samples, input], with slack; null: not wanted (first layer)
  float* dweight = nullptr;   // out: as weight
  float* dbias = nullptr;     // out: as bias
};

size_t Conv2dScratchBytes(Device device, const Conv2dSpec& spec);
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

struct LinearForwardArgs {  // y = x · weightᵀ + bias
  uint32_t sample_count = 0;
  const float* x = nullptr;       // [samples, in]
  const float* weight = nullptr;  // [out, in]
  const float* bias = nullptr;    // [out]
  float* y = nullptr;             // out: [samples, out]
};

struct LinearBackwardArgs {
  uint32_t sample_count = 0;
  const float* x = nullptr;       // [samples, in]
  const float* weight = nullptr;  // [out, in]
  const float* y = nullptr;       // [samples, out]: read where relu
  float* dy = nullptr;            // [samples, out]: where relu, its mask is applied in place
  float* dx = nullptr;            // out: [samples, in]; null: not wanted
  float* dweight = nullptr;       // out: as weight
  float* dbias = nullptr;         // out: [out]
};

size_t LinearScratchBytes(Device device, const LinearSpec& spec, uint32_t sample_count_max);
// REQUIRES: scratch.size() >= LinearScratchBytes(), aligned to 64 bytes.
void LinearForward(Device device, const LinearSpec& spec, const LinearForwardArgs& args,
                   std::span<std::byte> scratch);
void LinearBackward(Device device, const LinearSpec& spec, const LinearBackwardArgs& args,
                    std::span<std::byte> scratch);

// --------------------------------------------------------------------------------- element-wise

// y = max(x, 0).  May work in place.
void ReluForward(Device device, size_t count, const float* x, float* y);
// dx = y > 0 ? dy : 0.  May work in place.
void ReluBackward(Device device, size_t count, const float* y, const float* dy, float* dx);

// y = x · factor, element by element; dropout forward, and backward with dy for x.
void Multiply(Device device, size_t count, const float* x, const float* factor, float* y);
// y[s, h, w, c] = x[s, h, w, c] · factor[s, c]; dropout2d, forward and backward alike.
void MultiplyChannels(Device device, uint32_t sample_count, const SampleShape& shape,
                      const float* x, const float* factor, float* y);

// Which random numbers a dropout layer draws (P37): the key from (seed, kDropout, layer name).
struct DropoutStream {
  PhiloxKey key{};
  uint64_t step = 0;
  uint32_t micro_batch = 0;
};
// factor[i] = 0 with the given probability, else 1 / (1 − probability). Element i is decided by the
// i % 8-th 16-bit uniform of Philox block (i / 8, step, micro_batch).
void DropoutFactors(Device device, const DropoutStream& stream, float probability, size_t count,
                    float* factor);

// --------------------------------------------------------------------------------------- pooling

struct Pool2dSpec {
  SampleShape input;
  uint32_t window = 2;  // square; no padding; windows that would stick out are left out
  uint32_t stride = 2;
  SampleShape output() const;
};

// argmax: out, [samples, output]: the first largest element, as its pixel y · width + x.
void MaxPoolForward(Device device, const Pool2dSpec& spec, uint32_t sample_count, const float* x,
                    float* y, int32_t* argmax);
void MaxPoolBackward(Device device, const Pool2dSpec& spec, uint32_t sample_count,
                     const int32_t* argmax, const float* dy, float* dx);
void AveragePoolForward(Device device, const Pool2dSpec& spec, uint32_t sample_count,
                        const float* x, float* y);
void AveragePoolBackward(Device device, const Pool2dSpec& spec, uint32_t sample_count,
                         const float* dy, float* dx);

// ------------------------------------------------------------------------- in and out of a network

// A batch into the physical layout: pictures normalised as batch.normalisation says, tables copied.
// x: out, [samples, batch.shape], with slack.
void ImportBatch(Device device, const Batch& batch, float* x);

// PyTorch flattens channels first.  x: [samples, shape]; y: [samples, channels · height · width].
void FlattenForward(Device device, uint32_t sample_count, const SampleShape& shape, const float* x,
                    float* y);
void FlattenBackward(Device device, uint32_t sample_count, const SampleShape& shape,
                     const float* dy, float* dx);

struct CrossEntropyScore {
  double loss_sum = 0;  // over samples, in their order
  uint32_t correct_count = 0;
};
// Softmax cross-entropy.  logits: [samples, classes]; labels: [samples];
// dlogits: out, the gradient of the sum.  REQUIRES: labels in [0, class_count).
CrossEntropyScore SoftmaxCrossEntropy(Device device, uint32_t sample_count, uint32_t class_count,
                                      const float* logits, const int32_t* labels, float* dlogits);

}  // namespace pando
