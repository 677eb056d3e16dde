// TensorSpec and TensorLayout describe the model's tensors and their places in the flat parameter
// vector. Models make the specs; servers, workers and the exporter read them. Parameters are in
// PyTorch's layouts (convolution [out, in, kh, kw], linear [out, in]). A backend that needs another
// layout permutes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/ids.h"

namespace pando {

enum class TensorKind : uint8_t {
  kParameter,  // updated by the optimizer from its gradient
  kStatistic,  // batch-norm running statistic: "gradient" = batch statistic, moving average
  kMetric,     // loss and counts of the step: version t + 1 has the mean over step t's samples
};

// The way in which version 0 of a tensor is made (tensor_init.h), from (seed, tensor name) alone.
enum class InitKind : uint8_t { kZero, kOne, kUniform, kNormal };

struct TensorSpec {
  std::string name;             // PyTorch's: "conv1.weight"
  std::vector<uint64_t> shape;  // PyTorch's
  TensorKind kind = TensorKind::kParameter;
  InitKind init = InitKind::kZero;
  float init_bound = 0.0f;   // kUniform: drawn from [-init_bound, init_bound)
  float init_stddev = 0.0f;  // kNormal: mean 0, this deviation
  float momentum = 0.1f;     // kStatistic: the share of a step in the running value
  double lr_factor = 1.0;    // kParameter: factor of the schedule's rate
  double weight_decay = -1;  // kParameter: the tensor's own; negative: the optimizer's
  uint32_t group = 0;        // kParameter: its group of optimizer.groups
  uint64_t size() const;     // elements
};

// The name of the metric tensor at the end of every model. Leaves push its sums over samples. The
// root divides by the sample count, so a version has means (P2).
inline constexpr const char* kMetricTensorName = "pando.metrics";
// The floats of version t + 1's metric tensor: means over step t's samples, and with loss scaling
// the scale of step t + 1's loss (plan/loss_scale.h); otherwise the scale's floats are 0.
enum MetricSlot : size_t {
  kMetricLoss,
  kMetricCorrect,
  kMetricLossScale,
  kMetricGoodSteps,
  kMetricHysteresis,
  kMetricWeight,  // in a weighted job (train.weighted): the sum that the step's means divide by
  kMetricSlotCount
};
// `log_count`: of Job::train_logs, whose means follow those of the slots.
TensorSpec MetricTensorSpec(size_t log_count = 0);

// TensorLayout has tensors in model order. Each starts on a 64-byte line; padding stays zero.
class TensorLayout {
 public:
  static constexpr size_t kAlignFloats = 16;
  // A tensor's pieces, counted from its start; its last piece may be smaller. Norms and codes are
  // computed piece by piece, and servers' shards begin with a tensor or a piece, so that the cut
  // into shards changes no bit.
  static constexpr size_t kPieceFloats = 1024;
  static size_t Padded(size_t floats) {  // to whole lines
    return (floats + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
  }
  TensorLayout() = default;
  explicit TensorLayout(std::vector<TensorSpec> specs);

  const std::vector<TensorSpec>& specs() const { return specs_; }
  size_t tensor_count() const { return specs_.size(); }
  // The first float of tensor i; offset(tensor_count()) is the end.
  size_t offset(size_t i) const { return offsets_[i]; }
  size_t float_count() const { return offsets_.back(); }
  uint64_t parameter_count() const;  // elements of kParameter tensors, without padding
  // Returns the index of the tensor with this name; tensor_count() if there is none.
  size_t Find(const std::string& name) const;

 private:
  std::vector<TensorSpec> specs_;
  std::vector<size_t> offsets_{0};
};

}  // namespace pando
