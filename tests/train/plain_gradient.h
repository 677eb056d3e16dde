// One micro-batch on the test's device without threads or shards: what the trainer's tests compare
// its gradients with.
#pragma once

#include <span>
#include <vector>

#include "models/network.h"
#include "plan/job_plan.h"
#include "tests/test_device.h"

namespace pando {

// With the metric tensor. The batch is set.
inline std::vector<float> PlainGradient(Network& network, const TensorLayout& layout,
                                        std::span<const float> parameters) {
  const Device device = TestDevice();
  FloatBuffer values = DeviceFloats(device, layout.float_count());
  FloatBuffer gradients = DeviceFloats(device, layout.float_count());
  Upload(device, std::as_bytes(parameters), values.data());
  for (uint32_t l = 0; l < network.layer_count(); ++l) network.Forward(l, values.data());
  for (uint32_t l = network.layer_count(); l-- > 0;) {
    network.Backward(l, values.data(), gradients.data());
  }
  std::vector<float> gradient(layout.float_count());
  Download(device, gradients.data(), std::as_writable_bytes(std::span(gradient)));
  const BatchScore score = network.Score();
  float* metrics = gradient.data() + layout.offset(layout.tensor_count() - 1);
  metrics[kMetricLoss] = static_cast<float>(score.loss_sum);
  metrics[kMetricCorrect] = static_cast<float>(score.correct_count);
  return gradient;
}

inline bool IsOnGpu() { return TestDevice().kind != DeviceKind::kCpu; }

// Computing threads of a trainer on the test's device: `on_cpu`, or one on a GPU.
inline uint32_t ThreadsOnTestDevice(uint32_t on_cpu) { return IsOnGpu() ? 1 : on_cpu; }
// The counts that a test goes through on the CPU; on a GPU only one thread.
inline std::vector<uint32_t> ThreadCounts(const std::vector<uint32_t>& on_cpu) {
  return IsOnGpu() ? std::vector<uint32_t>{1} : on_cpu;
}

}  // namespace pando
